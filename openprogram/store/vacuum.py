"""Give back what a SQLite store no longer needs, beside whoever writes to it.

Long texts of deleted sessions are garbage once no node refers to them. They are looked for without a lock, and deleted in small transactions, each of which
looks again at the nodes that were written since: so a text that somebody is just storing again stays. Then the index forgets what is gone, and free pages go
back to the disk, a few at a time.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from openprogram.store import index
from openprogram.store.sqlite import SqliteStore

# What is deleted, or given back, while others wait to write: some milliseconds.
_AT_ONCE = 200
_ATTEMPTS = 3
_CELLS = ("input", "output", "exchanges", "metadata", "closing")


class Vacuumed(NamedTuple):
    """How many long texts were deleted, and the sizes of the file in bytes."""

    texts: int
    before: int
    after: int


class _Found(NamedTuple):
    """Texts that no node refers to, and which nodes were looked at: those up to ``last`` that were not ``running``."""

    garbage: list[bytes]
    last: int
    running: list[int]
    deletions: int


def vacuum(store: SqliteStore) -> Vacuumed:
    """Delete what nobody refers to and shrink the file. Raises StoreError.

    A file of a version that could not shrink in steps is rewritten once, while which others wait and which needs as much room again.
    """
    before = store.path.stat().st_size
    texts = _collect(store)
    if store.read(lambda connection: connection.execute("SELECT stale FROM upkeep").fetchone()[0]):
        store.write(index.forget)
        store.index()
    if store.read(lambda connection: connection.execute("PRAGMA auto_vacuum").fetchone()[0]) == 0:
        store.read(_rewrite)
    # Not more than there was to give back at first: others may go on deleting.
    for _ in range(store.read(_free_pages) // _AT_ONCE + 1):
        store.write(_free)
    store.read(_checkpoint)
    return Vacuumed(texts, before, store.path.stat().st_size)


def _collect(store: SqliteStore) -> int:
    """Delete the garbage there is and say how much."""
    deleted = 0
    for _ in range(_ATTEMPTS):
        found = store.read(_look)
        for start in range(0, len(found.garbage), _AT_ONCE):
            some = found.garbage[start : start + _AT_ONCE]
            done = store.write(lambda connection, found=found, some=some: _delete(connection, found, some))
            if done is None:
                break
            deleted += done
        else:
            return deleted
    # Sessions are deleted all the time, so others wait this once.
    return deleted + store.write(_delete_all)


def _delete_all(connection: sqlite3.Connection) -> int:
    found = _look(connection)
    return _delete(connection, found, found.garbage) or 0


def _look(connection: sqlite3.Connection) -> _Found:
    with index.snapshot(connection):
        used: set[bytes] = set()
        for cell in _CELLS:
            used.update(key for (key,) in connection.execute(f"SELECT {cell} FROM nodes WHERE typeof({cell}) = 'blob'"))  # noqa: S608 - fixed names
        garbage = [key for (key,) in connection.execute("SELECT key FROM payloads") if key not in used]
        last = index.last_node(connection)
        running = [n for (n,) in connection.execute("SELECT n FROM nodes WHERE status = 'running'")]
        return _Found(garbage, last, running, _deletions(connection))


def _deletions(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT deletions FROM upkeep").fetchone()[0]


def _delete(connection: sqlite3.Connection, found: _Found, some: list[bytes]) -> int | None:
    """Delete what is still garbage and say how much; None when it must be looked for anew, since numbers of deleted nodes may have been given again."""
    if _deletions(connection) != found.deletions:
        return None
    cells = ", ".join(_CELLS)
    changed = [*connection.execute(f"SELECT {cells} FROM nodes WHERE n > ?", (found.last,))]  # noqa: S608 - fixed names
    for n in found.running:
        changed += connection.execute(f"SELECT {cells} FROM nodes WHERE n = ?", (n,))  # noqa: S608
    used = {cell for row in changed for cell in row if isinstance(cell, bytes)}
    keys = [(key,) for key in some if key not in used]
    connection.executemany("DELETE FROM payloads WHERE key = ?", keys)
    return len(keys)


def _free_pages(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA freelist_count").fetchone()[0]


def _free(connection: sqlite3.Connection) -> None:
    # The module `sqlite3` takes one step only of a statement without columns, and a step is a page.
    for _ in range(min(_AT_ONCE, _free_pages(connection))):
        connection.execute("PRAGMA incremental_vacuum(1)")


def _rewrite(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("VACUUM")


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Bring the file up to date with its journal, as far as nobody is in the way: a checkpoint that waits makes writers wait."""
    patience = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
