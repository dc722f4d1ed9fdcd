"""Each way to record, and retries that do not wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from openprogram.agentic_programming.session import Session
from tests.openprogram.runtime.ways import WAYS


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""
    monkeypatch.setenv("OPENPROGRAM_RETRY_BACKOFF_BASE", "0")


@pytest.fixture(params=WAYS)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session | None]:
    """The session that the test is recorded in, None where nothing is."""
    with WAYS[request.param](tmp_path) as session:
        yield session
