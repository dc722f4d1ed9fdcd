"""Ways to record what a Runtime does. The contract tests run over each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

from openprogram import session
from openprogram.agentic_programming.session import Session
from openprogram.context.scope import current
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore
from tests.support.daemons import IN_WORKER, daemon_store

Way = AbstractContextManager[Session | None]


@contextlib.contextmanager
def _unrecorded(folder: Path) -> Generator[None]:
    yield


@contextlib.contextmanager
def _recorded(store: Store) -> Generator[Session]:
    try:
        with session(f"contract-{os.urandom(4).hex()}", store=store) as recorded:
            yield recorded
    finally:
        store.close()


@contextlib.contextmanager
def _through_the_daemon(folder: Path) -> Generator[Session]:
    with daemon_store(folder) as store, _recorded(store) as recorded:
        yield recorded


@contextlib.contextmanager
def _in_the_worker(folder: Path) -> Generator[Session]:
    scope = current.get()
    assert scope is not None
    with session(f"contract-{os.urandom(4).hex()}", store=scope.store) as recorded:
        yield recorded


EVERYWHERE: dict[str, Callable[[Path], Way]] = {
    "no store": _unrecorded,
    "memory": lambda _: _recorded(MemoryStore()),
    "sqlite": lambda folder: _recorded(SqliteStore(folder / "store.sqlite3")),
    "daemon": _through_the_daemon,
}
WAYS = {"worker": _in_the_worker} if IN_WORKER in os.environ else EVERYWHERE
