"""Ways to a store. The contract tests run over each row of `BACKENDS`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from openprogram.context.scope import current
from openprogram.remote import RemoteStore
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore
from tests.support.daemons import IN_WORKER, daemon_store


@contextlib.contextmanager
def _closing(store: Store) -> Generator[Store]:
    yield store
    store.close()


@contextlib.contextmanager
def _workers(folder: Path) -> Generator[Store]:
    scope = current.get()
    assert scope is not None
    yield RemoteStore(scope.store.connection)


EVERYWHERE: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    "memory": lambda _: _closing(MemoryStore()),
    "sqlite": lambda folder: _closing(SqliteStore(folder / "store.sqlite3")),
    "sqlite-rollback-journal": lambda folder: _closing(SqliteStore(folder / "store.sqlite3", vfs="unix-dotfile")),
    "daemon": daemon_store,
}
BACKENDS = {"worker": _workers} if IN_WORKER in os.environ else EVERYWHERE


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each backend."""
    with BACKENDS[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a SQLite store may be made."""
    return tmp_path / "store.sqlite3"
