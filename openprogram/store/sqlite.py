"""Sessions in one SQLite file that any number of threads and processes of the user may write.

Every write is one transaction that begins with the write lock (``BEGIN IMMEDIATE``), so that what it reads (the next ``seq``, the length of a log) cannot
change under it. Nothing is cached: a reader always sees what any process has committed.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from openprogram.context.call import TERMINAL, Branch, Call, Close, Frame, LogEntry, Reads, SessionInfo, new_id
from openprogram.errors import StoreError
from openprogram.store import branching, files, forks, owners, rows
from openprogram.store.engine import Access, Options, mark_interrupted
from openprogram.store.ids import check_session_id
from openprogram.store.index import MOST_VARIABLES, payloads_of
from openprogram.store.upkeep import INSERT, NODE, SESSION, Upkeep, info_of
from openprogram.store.writer import Work

T = TypeVar("T")

# Where a node goes: its seq, the session and the parent of its frame, the end of that frame's log. One statement, since each costs as much as a row.
_PLACE = """SELECT s.next_seq, f.session, f.parent, l.pos, l.node FROM (SELECT 1) LEFT JOIN sessions s ON s.id = ? LEFT JOIN frames f ON f.id = ?
    LEFT JOIN log l ON l.frame = ? AND l.pos = (SELECT max(pos) FROM log WHERE frame = ?)"""
# A node at the end of its frame's log, with the length of its own.
_ENTER = """INSERT INTO log SELECT ?, coalesce((SELECT max(pos) FROM log WHERE frame = ?), -1) + 1, ?,
    coalesce((SELECT max(l.pos) FROM frames f JOIN log l ON l.frame = f.id WHERE f.owner = ?), -1) + 1"""


class SqliteStore(Upkeep):
    """A `Store` in the file ``path``, made if it is missing (its folder must exist).

    ``timeout_s`` is how long to wait for another process that writes. ``read_only`` never writes; a file without write permission is opened so by itself.
    ``vfs`` names another of SQLite's file layers, for file systems with broken locks (``unix-dotfile``); every process must then use the same.
    ``search_index=False`` leaves the full-text index to others. Raises StoreError, StoreCorruptError and StoreVersionError, each with the path; a file that is
    not a store is never written to.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, timeout_s: float = 30.0, vfs: str | None = None, search_index: bool = True) -> None:
        self.path = files.resolve(path)
        self.read_only = read_only or (self.path.exists() and not os.access(self.path, os.W_OK))
        if self.read_only and not os.access(self.path, os.R_OK):
            raise StoreError(f"the store {self.path} may not be read; check its permissions, or name another file")
        self._access = Access(Options(self.path, read_only=self.read_only, timeout_s=timeout_s, vfs=vfs, search_index=search_index))
        self._access.engine()
        forks.guard(self._access)
        self._finalizer = weakref.finalize(self, self._access.close)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._access.closed

    def create_session(self, session_id: str, *, title: str = "") -> SessionInfo:
        """See `Store.create_session`."""
        check_session_id(session_id)
        if (found := self._access.read(lambda connection: _session(connection, session_id))) and (found.title or not title):
            return found
        return self.write(self.creating_session(session_id, title))

    def creating_session(self, session_id: str, title: str) -> Work[SessionInfo]:
        """The work of `create_session`, for a transaction that writes more than that. Raises ValueError for an id that cannot be one."""
        check_session_id(session_id)
        cell = rows.text_cell(title)

        def work(connection: sqlite3.Connection) -> SessionInfo:
            found = _session(connection, session_id)
            if found is None:
                return _new_session(connection, session_id, title)
            if title and not found.title:
                connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (cell, session_id))
                return msgspec.structs.replace(found, title=title)
            return found

        return work

    def session(self, session_id: str) -> SessionInfo:
        """See `Store.session`."""
        info = self._access.read(lambda connection: _session(connection, session_id))
        if info is None:
            raise self.unknown(session_id)
        return info

    def sessions(self, *, limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """See `Store.sessions`."""
        query = f"{SESSION} ORDER BY updated DESC, rowid DESC LIMIT ? OFFSET ?"
        found = self._access.read(lambda connection: connection.execute(query, (max(0, limit), max(0, offset))).fetchall())
        return [info_of(row) for row in found]

    def append(self, call: Call, *, opens: Frame | None = None) -> Call:
        """See `Store.append`."""
        return self.write(self.appending(call, opens))

    def appending(self, call: Call, opens: Frame | None) -> Work[Call]:
        """The work of `append`, for a transaction that writes more than that."""
        packer = rows.Packer()
        packed = packer.row(call, owners.this_process())
        payloads = _squeezed(packer)

        def work(connection: sqlite3.Connection) -> Call:
            row = self._append(connection, packed, opens, payloads)
            reads = None if row.reads_frame is None else Reads(row.reads_frame, row.reads_upto or 0)
            return msgspec.structs.replace(call, seq=row.seq, predecessor=row.predecessor, reads=reads)

        return work

    def write(self, work: Work[T]) -> T:
        """Do ``work`` in one transaction; returns when it is committed."""
        return self._access.write(work)

    def submit(self, work: Work[T]) -> Future[T]:
        """Do ``work`` as `write` does, for whoever must not sleep: what is handed over first is committed first."""
        return self._access.submit(work)

    def read(self, work: Work[T]) -> T:
        """Do ``work`` on a connection that only reads."""
        return self._access.read(work)

    def _append(self, connection: sqlite3.Connection, row: rows.Row, opens: Frame | None, payloads: Mapping[bytes, rows.Payload]) -> rows.Row:
        seq, session, parent, end, last = connection.execute(_PLACE, (row.session, row.frame, row.frame, row.frame)).fetchone()
        if seq is None:
            raise self.unknown(row.session)
        if session != row.session:
            raise _no_frame(row.frame, row.session, f"node {row.id} cannot enter")
        length = 0 if end is None else end + 1
        if row.predecessor is not None or (last is None and parent is not None):
            last = branching.predecessor(connection, row, last)
        row = row._replace(seq=seq, predecessor=last)
        if row.role == "llm" and row.reads_frame is None:
            row = row._replace(reads_frame=row.frame, reads_upto=length)
        _keep(connection, payloads)
        _insert(connection, INSERT, row, f"a node {row.id} exists already; nothing that was written is overwritten")
        connection.execute("UPDATE sessions SET next_seq = next_seq + 1, updated = max(updated, ?) WHERE id = ?", (time.time(), row.session))
        if opens is not None:
            _open_frame(connection, opens, row.session)
        return row

    def finish(self, close: Close) -> Call:
        """See `Store.finish`."""
        return self.write(self.finishing(close))()

    def finishing(self, close: Close) -> Work[Callable[[], Call]]:
        """The work of `finish`, for a transaction that writes more than that. It returns what reads the finished node when somebody wants it."""
        packer = rows.Packer()
        ending = packer.ending(close)
        kept = _squeezed(packer)
        if close.status not in TERMINAL:
            raise StoreError(f"node {close.id} cannot be closed as {close.status!r}; a terminal state is one of {', '.join(sorted(TERMINAL))}")

        def work(connection: sqlite3.Connection) -> Callable[[], Call]:
            row, payloads = self._finish(connection, close, ending, kept)
            return lambda: rows.call_of(row, payloads, is_dead=owners.is_dead)

        return work

    def _finish(
        self, connection: sqlite3.Connection, close: Close, ending: rows.Ending, payloads: Mapping[bytes, rows.Payload]
    ) -> tuple[rows.Row, dict[bytes, rows.Payload]]:
        found = connection.execute(f"{NODE} WHERE id = ?", (close.id,)).fetchone()
        if found is None:
            raise StoreError(f"no node {close.id} in {self.path}; append it before it is finished")
        row = rows.Row._make(found)
        if row.status == "running":
            row = row._replace(**ending._asdict())
            _keep(connection, payloads)
            # Who wrote it matters while it is open only.
            update = "UPDATE nodes SET status = ?, ended = ?, output = ?, exchanges = ?, closing = ?, owner = NULL WHERE id = ?"
            connection.execute(update, (*ending, close.id))
            connection.execute("UPDATE sessions SET updated = max(updated, ?) WHERE id = ?", (time.time(), row.session))
            if close.enters:
                _enter(connection, row)
        return row, payloads_of(connection, [row])

    def node(self, node_id: str) -> Call | None:
        """See `Store.node`."""
        found = self.nodes([node_id])
        return found[0] if found else None

    def nodes(self, node_ids: Iterable[str]) -> list[Call]:
        """See `Store.nodes`."""
        wanted = list(node_ids)

        def work(connection: sqlite3.Connection) -> tuple[list[rows.Row], dict[bytes, rows.Payload]]:
            by_id: dict[str, rows.Row] = {}
            for start in range(0, len(wanted), MOST_VARIABLES):
                some = wanted[start : start + MOST_VARIABLES]
                query = f"{NODE} WHERE id IN ({', '.join('?' * len(some))})"
                by_id |= {row[0]: rows.Row._make(row) for row in connection.execute(query, some)}
            found = [by_id[node_id] for node_id in wanted if node_id in by_id]
            return found, payloads_of(connection, found)

        return self._calls(*self._access.read(work))

    def page(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Call]:
        """See `Store.page`."""

        def work(connection: sqlite3.Connection) -> tuple[list[rows.Row], dict[bytes, rows.Payload]]:
            query = f"{NODE} WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"
            found = [rows.Row._make(row) for row in connection.execute(query, (session_id, max(0, after), max(0, limit)))]
            if not found and _session(connection, session_id) is None:
                raise self.unknown(session_id)
            return found, payloads_of(connection, found)

        return self._calls(*self._access.read(work))

    def _calls(self, found: Sequence[rows.Row], payloads: Mapping[bytes, rows.Payload]) -> list[Call]:
        dead = {owner: owners.is_dead(owner) for owner in {row.owner for row in found if row.status == "running"}}
        if any(dead.values()):
            self._access.post(mark_interrupted)
        return [rows.call_of(row, payloads, is_dead=lambda owner: dead[owner]) for row in found]

    def frame(self, frame_id: str) -> Frame | None:
        """See `Store.frame`."""
        query = "SELECT id, session, parent, base, owner FROM frames WHERE id = ?"
        found = self._access.read(lambda connection: connection.execute(query, (frame_id,)).fetchone())
        return None if found is None else Frame(id=found[0], session=found[1], parent=found[2], base=found[3], owner=found[4])

    def log(self, frame_id: str, start: int = 0, stop: int | None = None) -> Sequence[LogEntry]:
        """See `Store.log`."""
        query = "SELECT node, inner_length FROM log WHERE frame = ? AND pos >= ? AND pos < ? ORDER BY pos"
        bounds = (frame_id, max(0, start), 2**62 if stop is None else max(0, stop))
        return self._access.read(lambda connection: [LogEntry._make(row) for row in connection.execute(query, bounds)])

    def open_branch(self, branch: Branch) -> Branch:
        """See `Branching.open_branch`."""
        return self.write(self.opening_branch(branch))

    def opening_branch(self, branch: Branch) -> Work[Branch]:
        """The work of `open_branch`, for a transaction that writes more than that. Raises UsageError for a name that cannot be one."""
        opening = branching.opening(branch)

        def work(connection: sqlite3.Connection) -> Branch:
            if _session(connection, branch.session) is None:
                raise self.unknown(branch.session)
            return opening(connection)

        return work

    def branches(self, session_id: str) -> list[Branch]:
        """See `Branching.branches`."""

        def work(connection: sqlite3.Connection) -> list[Branch]:
            info = _session(connection, session_id)
            if info is None:
                raise self.unknown(session_id)
            return branching.branches_of(connection, info)

        return self._access.read(work)

    def close(self) -> None:
        """Commit what is on its way, then close the file; may be called twice."""
        self._finalizer.detach()
        self._access.close()


def _session(connection: sqlite3.Connection, session_id: str) -> SessionInfo | None:
    found = connection.execute(f"{SESSION} WHERE id = ?", (session_id,)).fetchone()
    return None if found is None else info_of(found)


def _new_session(connection: sqlite3.Connection, session_id: str, title: str) -> SessionInfo:
    now = time.time()
    info = SessionInfo(id=session_id, title=title, frame=new_id("frame"), created_at=now, updated_at=now)
    connection.execute("INSERT INTO sessions VALUES (?, ?, ?, 1, ?, ?)", (session_id, rows.text_cell(title), info.frame, now, now))
    connection.execute("INSERT INTO frames VALUES (?, ?, NULL, 0, NULL)", (info.frame, session_id))
    return info


def _check_frame(connection: sqlite3.Connection, frame: str, session: str, what: str) -> None:
    found = connection.execute("SELECT session FROM frames WHERE id = ?", (frame,)).fetchone()
    if found is None or found[0] != session:
        raise _no_frame(frame, session, what)


def _no_frame(frame: str, session: str, what: str) -> StoreError:
    return StoreError(f"{what} frame {frame!r}: session {session!r} has no such frame")


def _end_of_log(connection: sqlite3.Connection, frame: str) -> tuple[int, str | None]:
    """The length of a frame's log and the node that entered last."""
    found = connection.execute("SELECT pos, node FROM log WHERE frame = ? ORDER BY pos DESC LIMIT 1", (frame,)).fetchone()
    return (0, None) if found is None else (found[0] + 1, found[1])


def _insert(connection: sqlite3.Connection, statement: str, values: Sequence[Any], what: str) -> None:
    try:
        connection.execute(statement, values)
    except sqlite3.IntegrityError as error:
        raise StoreError(what) from error


def _open_frame(connection: sqlite3.Connection, frame: Frame, session: str) -> None:
    base = 0
    if frame.parent is not None:
        _check_frame(connection, frame.parent, frame.session, f"frame {frame.id} cannot be opened in")
        base, _ = _end_of_log(connection, frame.parent)
    if frame.session != session:
        raise StoreError(f"frame {frame.id} belongs to session {frame.session!r}, the node that opens it to {session!r}")
    values = (frame.id, frame.session, frame.parent, base, frame.owner)
    _insert(connection, "INSERT INTO frames VALUES (?, ?, ?, ?, ?)", values, f"frame {frame.id} exists already, or its owner has one")


def _enter(connection: sqlite3.Connection, row: rows.Row) -> None:
    connection.execute(_ENTER, (row.frame, row.frame, row.id, row.id))


def _squeezed(packer: rows.Packer) -> dict[bytes, rows.Payload]:
    return {key: rows.squeezed(text) for key, text in packer.payloads.items()}


def _keep(connection: sqlite3.Connection, payloads: Mapping[bytes, rows.Payload]) -> None:
    if payloads:
        connection.executemany("INSERT OR IGNORE INTO payloads VALUES (?, ?)", payloads.items())
