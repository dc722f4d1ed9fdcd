"""What a SQLite store does besides recording: it is searched, and its sessions are renamed, deleted, taken elsewhere and brought back."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from openprogram.context.call import Frame, LogEntry, SessionInfo
from openprogram.errors import UnknownSessionError
from openprogram.store import branching, index, owners, rows, search, transfer
from openprogram.store.base import Hit, in_use
from openprogram.store.writer import Work

T = TypeVar("T")

SESSION = "SELECT id, title, frame, next_seq, created, updated FROM sessions"
NODE = f"SELECT {', '.join(rows.Row._fields)} FROM nodes"  # noqa: S608 - fixed names
INSERT = f"INSERT INTO nodes ({', '.join(rows.Row._fields)}) VALUES ({', '.join('?' * len(rows.Row._fields))})"  # noqa: S608
_OF_SESSION = (
    "DELETE FROM log WHERE frame IN (SELECT id FROM frames WHERE session = ?)",
    "DELETE FROM frames WHERE session = ?",
    "DELETE FROM branches WHERE session = ?",
    "DELETE FROM nodes WHERE session = ?",
    "DELETE FROM runs WHERE session = ?",
    "DELETE FROM sessions WHERE id = ?",
)


def info_of(row: Any) -> SessionInfo:
    """The session of a row of `SESSION`."""
    return SessionInfo(id=row[0], title=rows.text_of(row[1]), frame=row[2], nodes=row[3] - 1, created_at=row[4], updated_at=row[5])


class Upkeep:
    """The part of a SQLite store that keeps the promises of `Archive`."""

    path: Path

    @abstractmethod
    def read(self, work: Work[T]) -> T:
        """Do ``work`` on a connection that only reads."""

    @abstractmethod
    def write(self, work: Work[T]) -> T:
        """Do ``work`` in one transaction; returns when it is committed."""

    def unknown(self, session_id: str) -> UnknownSessionError:
        """For a session that is not in this file."""
        return UnknownSessionError(f"no session {session_id!r} in {self.path}; `openprogram sessions` lists those there are")

    def _found(self, connection: sqlite3.Connection, session_id: str) -> SessionInfo:
        found = connection.execute(f"{SESSION} WHERE id = ?", (session_id,)).fetchone()
        if found is None:
            raise self.unknown(session_id)
        return info_of(found)

    def search(self, query: str, *, session: str | None = None, limit: int = 20, offset: int = 0) -> list[Hit]:
        """See `Archive.search`."""
        wanted = search.Query(query)

        def work(connection: sqlite3.Connection) -> list[Hit]:
            if session is not None:
                self._found(connection, session)
            return index.find(connection, wanted, session=session, limit=max(0, limit), offset=max(0, offset))

        return self.read(work)

    def index(self) -> None:
        """Bring the full-text index up to date with what is written by now; does nothing where SQLite has no FTS5."""
        last = self.read(index.last_node)
        while (work := index.prepare(self.read)) is not None:
            if not self.write(work):
                self.write(index.index_some)
            if self.read(lambda connection: index.is_settled(connection, last)):
                break

    def rename_session(self, session_id: str, title: str) -> SessionInfo:
        """See `Archive.rename_session`."""
        cell = rows.text_cell(title)

        def work(connection: sqlite3.Connection) -> SessionInfo:
            info = self._found(connection, session_id)
            connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (cell, session_id))
            return msgspec.structs.replace(info, title=title)

        return self.write(work)

    def delete_session(self, session_id: str, *, force: bool = False) -> SessionInfo:
        """See `Archive.delete_session`; runs of the session are deleted with it. Its long texts stay in the file until `openprogram.store.vacuum`."""

        def work(connection: sqlite3.Connection) -> SessionInfo:
            info = self._found(connection, session_id)
            if not force:
                _check_unused(connection, session_id)
            for statement in _OF_SESSION:
                connection.execute(statement, (session_id,))
            index.nodes_deleted(connection)
            return info

        return self.write(work)

    def export(self, session_id: str, write: Callable[[bytes], object]) -> SessionInfo:
        """See `Archive.export`."""

        def work(connection: sqlite3.Connection) -> SessionInfo:
            with index.snapshot(connection):
                info = self._found(connection, session_id)
                frames = _frames(connection, session_id)
                for line in transfer.head(info, frames, branching.branches_of(connection, info)[1:]):
                    write(line)
                count = 0
                for found in connection.execute(f"{NODE} WHERE session = ? ORDER BY seq", (session_id,)):
                    row = rows.Row._make(found)
                    write(transfer.node(row, index.payloads_of(connection, [row])))
                    count += 1
                for frame in frames:
                    entries = connection.execute("SELECT node, inner_length FROM log WHERE frame = ? ORDER BY pos", (frame.id,)).fetchall()
                    if entries:
                        write(transfer.log(frame.id, map(LogEntry._make, entries)))
                write(transfer.end(count))
                return info

        return self.read(work)

    def load(self, dump: transfer.Dump) -> SessionInfo:
        """See `Archive.load`."""
        info = msgspec.structs.replace(dump.info, nodes=len(dump.nodes))
        payloads = [(key, rows.squeezed(text)) for key, text in dump.payloads.items()]
        logs = [(frame, position, *entry) for frame, entries in dump.logs.items() for position, entry in enumerate(entries)]
        session = (info.id, rows.text_cell(info.title), info.frame, info.nodes + 1, info.created_at, info.updated_at)

        def work(connection: sqlite3.Connection) -> SessionInfo:
            try:
                connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", session)
                connection.executemany("INSERT INTO frames VALUES (?, ?, ?, ?, ?)", [(f.id, f.session, f.parent, f.base, f.owner) for f in dump.frames])
                connection.executemany("INSERT INTO branches VALUES (?, ?, ?, ?)", [(b.id, b.session, b.name, b.created_at) for b in dump.branches])
                connection.executemany(INSERT, dump.nodes)
            except sqlite3.IntegrityError as error:
                raise transfer.there_already(info.id) from error
            connection.executemany("INSERT OR IGNORE INTO payloads VALUES (?, ?)", payloads)
            connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", logs)
            return info

        return self.write(work)


def _check_unused(connection: sqlite3.Connection, session_id: str) -> None:
    query = "SELECT owner, count(*) FROM nodes WHERE session = ? AND status = 'running' GROUP BY owner"
    alive = [(owner, count) for owner, count in connection.execute(query, (session_id,)) if not owners.is_dead(owner)]
    if alive:
        pids = sorted({owner.split("/")[1] for owner, _ in alive if owner and owner.count("/") == 2})
        raise in_use(session_id, sum(count for _, count in alive), f"process {', '.join(pids)}" if pids else "an unknown process")


def _frames(connection: sqlite3.Connection, session_id: str) -> list[Frame]:
    found = connection.execute("SELECT id, session, parent, base, owner FROM frames WHERE session = ? ORDER BY rowid", (session_id,))
    return [Frame(id=row[0], session=row[1], parent=row[2], base=row[3], owner=row[4]) for row in found]
