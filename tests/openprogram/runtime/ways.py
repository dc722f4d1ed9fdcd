"""Ways to record what a Runtime does. The contract tests run over each; one more (through a worker, say) is one more row here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

from openprogram import session
from openprogram.agentic_programming.session import Session
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore

Way = AbstractContextManager[Session | None]


@contextlib.contextmanager
def _unrecorded(folder: Path) -> Generator[None]:
    yield


@contextlib.contextmanager
def _recorded(store: Store) -> Generator[Session]:
    try:
        with session("contract", store=store) as recorded:
            yield recorded
    finally:
        store.close()


WAYS: dict[str, Callable[[Path], Way]] = {
    "no store": _unrecorded,
    "memory": lambda _: _recorded(MemoryStore()),
    "sqlite": lambda folder: _recorded(SqliteStore(folder / "store.sqlite3")),
}
