"""The full-text index of a SQLite store: behind the writes, never in them.

Nodes are indexed once they are closed, in the order in which they were written, by whichever process has nothing else to do; ``upkeep.indexed`` says up to
which, and ``unindexed`` holds those among them that were still open. A search reads the nodes that are not indexed yet, so it never misses one. What the index
holds of nodes that are gone is harmless, since every node that is found is read before it is shown; `rebuild` drops it.

Where SQLite has no FTS5 there is no index, and a search reads every node.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from openprogram.store import rows, search
from openprogram.store.base import Hit

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Read = Callable[[Work[Any]], Any]

_COLUMNS = ", ".join(rows.Row._fields)
# The words come from `search.grams`: letters, digits and underscores, in any script. Neither texts nor lengths are kept.
_TABLE = """CREATE VIRTUAL TABLE IF NOT EXISTS words
    USING fts5(grams, content = '', columnsize = 0, detail = 'none', tokenize = "ascii tokenchars '_'")"""
# What is prepared at once: so much is written in a few milliseconds.
_MOST_NODES = 32
_MOST_CHARACTERS = 200_000


class _State(NamedTuple):
    indexed: int
    deletions: int


class _Piece(NamedTuple):
    """A part of the index to be: words by node, nodes that are still open, nodes that no longer wait, and up to where this goes."""

    state: _State
    words: list[tuple[int, str]]
    opened: list[tuple[int]]
    settled: list[tuple[int]]
    upto: int


def is_possible(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite has FTS5."""
    return connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def _exists(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone() is not None


def _state(connection: sqlite3.Connection) -> _State:
    return _State._make(connection.execute("SELECT indexed, deletions FROM upkeep").fetchone())


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection) -> Generator[None]:
    """Everything that is read here is of one moment, as it is inside a transaction anyhow."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def prepare(read: Read) -> Work[bool] | None:
    """The next piece of the index, made without holding any lock; None when there is nothing to index. It is False, and changes nothing, if others
    came first."""
    piece: _Piece | None = read(_piece)
    return None if piece is None else lambda connection: _write(connection, piece)


def _piece(connection: sqlite3.Connection) -> _Piece | None:
    if not is_possible(connection):
        return None
    with snapshot(connection):
        state = _state(connection)
        cells = ", ".join(f"nodes.{name}" for name in rows.Row._fields)
        waiting = connection.execute(
            f"SELECT unindexed.n, {cells} FROM unindexed LEFT JOIN nodes USING (n) WHERE status IS NOT 'running' ORDER BY 1 LIMIT ?",  # noqa: S608
            (_MOST_NODES,),
        ).fetchall()
        following = connection.execute(f"SELECT n, {_COLUMNS} FROM nodes WHERE n > ? ORDER BY n", (state.indexed,))  # noqa: S608
        return _gathered(connection, state, waiting, following)


def _gathered(connection: sqlite3.Connection, state: _State, waiting: list[Any], following: Iterable[Any]) -> _Piece | None:
    words: list[tuple[int, str]] = []
    opened: list[tuple[int]] = []
    settled: list[tuple[int]] = []
    upto = state.indexed
    characters = 0
    for n, *cells in itertools.islice(itertools.chain(waiting, following), _MOST_NODES):
        row = rows.Row._make(cells)
        if row.status == "running":
            opened.append((n,))
        elif row.status:
            text = search.folded(search.texts_of(row, payloads_of(connection, [row])))
            words.append((n, " ".join(search.grams(text))))
            characters += len(text)
        if n > upto:
            upto = n
        else:
            settled.append((n,))
        if characters > _MOST_CHARACTERS:
            break
    return _Piece(state, words, opened, settled, upto) if words or opened or settled else None


def index_some(connection: sqlite3.Connection) -> bool:
    """A piece of the index made while others wait, for whom they always come first."""
    piece = _piece(connection)
    return piece is not None and _write(connection, piece)


def _write(connection: sqlite3.Connection, piece: _Piece) -> bool:
    if _state(connection) != piece.state:
        return False
    connection.execute(_TABLE)
    connection.executemany("INSERT INTO words (rowid, grams) VALUES (?, ?)", piece.words)
    connection.executemany("INSERT OR IGNORE INTO unindexed VALUES (?)", piece.opened)
    connection.executemany("DELETE FROM unindexed WHERE n = ?", piece.settled)
    connection.execute("UPDATE upkeep SET indexed = ?", (piece.upto,))
    return True


def forget(connection: sqlite3.Connection) -> None:
    """Begin the index anew; call it inside a transaction. Where there is no FTS5 the index of others stays as it is, which is harmless."""
    if _exists(connection) and is_possible(connection):
        connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        connection.execute("DELETE FROM unindexed")
        connection.execute("UPDATE upkeep SET indexed = 0, deletions = deletions + 1, stale = 0")


def nodes_deleted(connection: sqlite3.Connection) -> None:
    """To be called in each transaction that deletes nodes: numbers that become free are given again, to nodes that must be indexed then."""
    connection.execute("DELETE FROM unindexed WHERE n NOT IN (SELECT n FROM nodes)")
    connection.execute("UPDATE upkeep SET deletions = deletions + 1, stale = stale + 1, indexed = min(indexed, (SELECT coalesce(max(n), 0) FROM nodes))")


def is_settled(connection: sqlite3.Connection, upto: int) -> bool:
    """Whether the index has come so far, and holds all before that which are closed."""
    upto = min(upto, last_node(connection))  # it may have been deleted
    waiting = "SELECT 1 FROM unindexed JOIN nodes USING (n) WHERE status <> 'running' AND n <= ?"
    return _state(connection).indexed >= upto and connection.execute(waiting, (upto,)).fetchone() is None


def last_node(connection: sqlite3.Connection) -> int:
    """The highest number of a node, 0 when there is none."""
    return connection.execute("SELECT coalesce(max(n), 0) FROM nodes").fetchone()[0]


def find(connection: sqlite3.Connection, query: search.Query, *, session: str | None, limit: int, offset: int) -> list[Hit]:
    """The newest nodes that match, without the first ``offset`` of them."""
    with snapshot(connection):
        hits = _hits(connection, query, session)
        return list(itertools.islice(hits, offset, offset + limit))


def _hits(connection: sqlite3.Connection, query: search.Query, session: str | None) -> Iterator[Hit]:
    one_session = f"SELECT {_COLUMNS} FROM nodes WHERE n = ?{'' if session is None else ' AND session = ?'}"  # noqa: S608 - fixed names
    last = 0
    for n in _candidates(connection, query, session):
        if n == last:
            continue
        last = n
        found = connection.execute(one_session, (n,) if session is None else (n, session)).fetchone()
        if found is None:
            continue
        row = rows.Row._make(found)
        if hit := query.hit(row, payloads_of(connection, [row])):
            yield hit


def _candidates(connection: sqlite3.Connection, query: search.Query, session: str | None) -> Iterator[int]:
    """Numbers of nodes that may match, the newest first; some may come twice."""
    expression = query.expression()
    if not expression or not is_possible(connection) or not _exists(connection):
        everything = "SELECT n FROM nodes ORDER BY n DESC" if session is None else "SELECT n FROM nodes WHERE session = ? ORDER BY n DESC"
        yield from _numbers(connection, everything, () if session is None else (session,))
        return
    indexed = _state(connection).indexed
    yield from _numbers(connection, "SELECT n FROM nodes WHERE n > ? ORDER BY n DESC", (indexed,))
    opened = _numbers(connection, "SELECT n FROM unindexed WHERE n <= ? ORDER BY n DESC", (indexed,))
    known = _numbers(connection, "SELECT rowid FROM words WHERE words MATCH ? AND rowid <= ? ORDER BY rowid DESC", (expression, indexed))
    yield from heapq.merge(opened, known, reverse=True)


def _numbers(connection: sqlite3.Connection, query: str, values: tuple[Any, ...]) -> Iterator[int]:
    for (n,) in connection.execute(query, values):
        yield n


MOST_VARIABLES = 500


def payloads_of(connection: sqlite3.Connection, found: Iterable[rows.Row]) -> dict[bytes, rows.Payload]:
    """The payloads that rows refer to, by key; those that are missing are left out."""
    keys = list({key for row in found for key in rows.references(row)})
    payloads: dict[bytes, rows.Payload] = {}
    for start in range(0, len(keys), MOST_VARIABLES):
        some = keys[start : start + MOST_VARIABLES]
        payloads |= dict(connection.execute(f"SELECT key, json FROM payloads WHERE key IN ({', '.join('?' * len(some))})", some))  # noqa: S608
    return payloads
