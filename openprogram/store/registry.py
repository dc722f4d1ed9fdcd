"""Which backend a store's name means, and one shared instance per file and process.

Two writers in one process would wait for each other's lock instead of sharing a commit, so everybody who names the same file gets the same object until it
is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from openprogram.store import files, forks
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore

BACKENDS: dict[str, Callable[[], Store]] = {"memory": MemoryStore}
"""Backends that are named by one word; anything else is the path of a SQLite file."""


class _Shared:
    """The open SQLite stores of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[Path, SqliteStore] = {}
        forks.guard(self)

    def open(self, path: Path) -> SqliteStore:
        path = files.resolve(path)
        with self._lock:
            store = self._stores.get(path)
            if store is None or store.closed:
                self._stores[path] = store = SqliteStore(path)
            return store

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self) -> None:
        self._lock.release()


_shared = _Shared()


def open_store(where: str | Path | None = None) -> Store:
    """The store that ``where`` names: None the one file of ``OPENPROGRAM_HOME`` (its folder is made), ``"memory"`` a new one in memory, else a SQLite file.

    Raises StoreError when it cannot be opened; the message names the path.
    """
    if isinstance(where, str) and where in BACKENDS:
        return BACKENDS[where]()
    return _shared.open(_home_file() if where is None else Path(where))


def _home_file() -> Path:
    from openprogram_protocol import paths

    from openprogram.errors import StoreError

    path = paths.store_file()
    try:
        for folder in reversed(path.parents):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the folder {path.parent} cannot be made: {error.strerror}; set OPENPROGRAM_HOME to a folder that you may write") from error
    return path
