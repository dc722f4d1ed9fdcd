"""What the SQLite tests share."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

from openprogram.context.call import Call, Close, new_id
from openprogram.store.base import Store


def opened(store: Store, session: str = "s", **fields: Any) -> Call:
    """A running node in the session's main branch."""
    info = store.create_session(session)
    values: dict[str, Any] = {"role": "code", "name": "f", "frame": info.frame, **fields}
    return store.append(Call(id=new_id("code"), session=session, **values))


def closed(store: Store, session: str = "s", **fields: Any) -> Call:
    """A completed node that entered the log."""
    return store.finish(Close(id=opened(store, session, **fields).id, status="completed", enters=True))


@contextlib.contextmanager
def raw(path: Path) -> Generator[sqlite3.Connection]:
    """The file, without the store."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        yield connection


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
