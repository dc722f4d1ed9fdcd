"""A session on each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from openprogram.store.base import Store
from tests.openprogram.context.support import STORES


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    opened = STORES[request.param](tmp_path)
    yield opened
    opened.close()
