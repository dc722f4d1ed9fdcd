"""Whether a store's file is whole: its pages, its values, and what its rows say of each other.

Nothing is written, and all of it is read at one moment, so that others may write meanwhile. What is found is told, never raised.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from openprogram.errors import StoreError
from openprogram.store import index, rows
from openprogram.store.sqlite import SqliteStore

_MOST_OF_A_KIND = 100
_CELLS = ("input", "output", "exchanges", "metadata", "closing")


class Finding(NamedTuple):
    """Something that is not as it should be. ``kind``: ``file``, ``value`` (cannot be read) or ``edge`` (names what is not there)."""

    kind: str
    where: str
    problem: str


# What a row names in another table, and what is told of the rows for which that is not there. Each query gives the name of the row, then the name it holds.
_EDGES = {
    "SELECT id, frame FROM sessions s WHERE frame NOT IN (SELECT id FROM frames)": "session {!r} has no main branch: there is no frame {}",
    "SELECT id, session FROM frames WHERE session NOT IN (SELECT id FROM sessions)": "frame {} is in session {!r}, which is not there",
    "SELECT id, parent FROM frames WHERE parent NOT IN (SELECT id FROM frames)": "frame {} has the parent {}, which is not there",
    "SELECT id, owner FROM frames WHERE owner NOT IN (SELECT id FROM nodes)": "frame {} belongs to node {}, which is not there",
    """SELECT f.id, f.base FROM frames f WHERE f.base > (SELECT count(*) FROM log WHERE frame = f.parent)
        AND f.parent IN (SELECT id FROM frames)""": "frame {} begins after entry {} of its parent, whose log holds fewer",
    "SELECT frame, session FROM branches WHERE frame NOT IN (SELECT id FROM frames)": "a branch of session {1!r} has no frame {0}",
    "SELECT id, session FROM nodes WHERE session NOT IN (SELECT id FROM sessions)": "node {} is in session {!r}, which is not there",
    "SELECT id, frame FROM nodes WHERE frame NOT IN (SELECT id FROM frames)": "node {} is in frame {}, which is not there",
    "SELECT id, caller FROM nodes WHERE caller NOT IN (SELECT id FROM nodes)": "node {} was called by {}, which is not there",
    "SELECT id, predecessor FROM nodes WHERE predecessor NOT IN (SELECT id FROM nodes)": "node {} follows {}, which is not there",
    "SELECT id, reads_frame FROM nodes WHERE reads_frame NOT IN (SELECT id FROM frames)": "node {} reads frame {}, which is not there",
    """SELECT n.id, n.reads_upto FROM nodes n WHERE n.reads_frame IN (SELECT id FROM frames)
        AND n.reads_upto > (SELECT coalesce(max(pos), -1) + 1 FROM log WHERE frame = n.reads_frame)""": "node {} reads {} entries of a log that holds fewer",
    "SELECT frame, node FROM log WHERE node NOT IN (SELECT id FROM nodes)": "the log of frame {} holds node {}, which is not there",
    "SELECT DISTINCT frame, frame FROM log WHERE frame NOT IN (SELECT id FROM frames)": "there is a log of frame {}, which is not there",
    "SELECT frame, max(pos) FROM log GROUP BY frame HAVING count(*) <> max(pos) + 1": "the log of frame {} ends with entry {} and has gaps",
    """SELECT s.id, s.next_seq - 1 FROM sessions s WHERE s.next_seq - 1 <> (SELECT count(*) FROM nodes WHERE session = s.id)
        """: "session {!r} has not the {} nodes that it was given",
    "SELECT id, node FROM runs WHERE node NOT IN (SELECT id FROM nodes)": "run {} began with node {}, which is not there",
}


def check(store: SqliteStore | str | Path) -> list[Finding]:
    """What is wrong with a store; an empty list when nothing is. At most a hundred findings of one kind are told one by one.

    A path is opened for reading; what keeps it from being opened is a finding.
    """
    if isinstance(store, SqliteStore):
        return list(_guarded(store))
    try:
        opened = SqliteStore(store, read_only=True)
    except StoreError as error:
        return [Finding("file", str(store), str(error))]
    try:
        return list(_guarded(opened))
    finally:
        opened.close()


def _guarded(store: SqliteStore) -> Iterator[Finding]:
    where = str(store.path)
    for look in (_pages, _values, _edges):
        try:
            yield from store.read(lambda connection, look=look: _all_of(connection, look, where))
        except StoreError as error:  # a page that is needed to look is damaged
            yield Finding("file", where, str(error))


def _all_of(connection: sqlite3.Connection, look: Any, where: str) -> list[Finding]:
    with index.snapshot(connection):
        return list(look(connection, where))


def _limited(found: Iterator[Finding], where: str) -> Iterator[Finding]:
    more = 0
    kind = ""
    for number, finding in enumerate(found):
        if number < _MOST_OF_A_KIND:
            yield finding
        else:
            more, kind = more + 1, finding.kind
    if more:
        yield Finding(kind, where, f"and {more} more like these")


def _pages(connection: sqlite3.Connection, where: str) -> Iterator[Finding]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST_OF_A_KIND})"):
        if line != "ok":
            yield Finding("file", where, str(line))


def _values(connection: sqlite3.Connection, where: str) -> Iterator[Finding]:
    yield from _limited(_payloads(connection), where)
    yield from _limited(_cells(connection), where)


def _payloads(connection: sqlite3.Connection) -> Iterator[Finding]:
    for key, payload in connection.execute("SELECT key, json FROM payloads"):
        name = f"payload {bytes(key).hex()}"
        try:
            text = rows.text_of_payload(payload)
            if rows.key_of(text) != key:
                yield Finding("value", name, "it is not what was stored: its hash is another")
        except ValueError as error:
            yield Finding("value", name, f"it cannot be read: {error}")


def _cells(connection: sqlite3.Connection) -> Iterator[Finding]:
    for cell in _CELLS:
        missing = f"SELECT id, {cell} FROM nodes WHERE typeof({cell}) = 'blob' AND {cell} NOT IN (SELECT key FROM payloads)"  # noqa: S608 - fixed names
        for node, key in connection.execute(missing):
            yield Finding("value", f"node {node}", f"its {cell} is payload {bytes(key).hex()}, which is missing")
        for node, text in connection.execute(f"SELECT id, {cell} FROM nodes WHERE typeof({cell}) = 'text'"):  # noqa: S608
            try:
                msgspec.json.decode(text)
            except ValueError as error:
                yield Finding("value", f"node {node}", f"its {cell} cannot be read: {error}")


def _edges(connection: sqlite3.Connection, where: str) -> Iterator[Finding]:
    for query, text in _EDGES.items():
        found = (Finding("edge", str(name), text.format(name, other)) for name, other in connection.execute(query))
        yield from _limited(found, where)
