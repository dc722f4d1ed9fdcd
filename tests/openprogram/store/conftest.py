"""Ways to a store. The contract tests run over each `Backend`; one more way (through a worker, say) is one more row here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore

BACKENDS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "store.sqlite3"),
    "sqlite-rollback-journal": lambda folder: SqliteStore(folder / "store.sqlite3", vfs="unix-dotfile"),
}


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each backend."""
    opened = BACKENDS[request.param](tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a SQLite store may be made."""
    return tmp_path / "store.sqlite3"
