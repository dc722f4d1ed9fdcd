"""Runs in the store file: who asked for what, and how it ended.

A run and the entry node of its function are written in one commit, before anybody is told that the run exists; so are its end and the end of that node. The
first end wins. A run whose owner (a daemon) is dead reads ``interrupted``. What the function returned is the node's output and is kept there only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from openprogram.context.call import Call, Close, Frame
from openprogram.store import owners, values
from openprogram.store.sqlite import SqliteStore
from openprogram.store.writer import Work

_MOST_ANCESTORS = 10_000


class RunRow(NamedTuple):
    """The columns of the table, in order. ``digest`` is of the parameters; ``details`` a JSON object whose keys are the owner's affair."""

    id: str
    digest: bytes
    function: str
    workspace: str
    session: str
    node: str
    state: str
    owner: str
    started: float
    ended: float | None = None
    details: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """``details``, read."""
        return {} if self.details is None else values.decode(self.details)


_SELECT = f"SELECT {', '.join(RunRow._fields)} FROM runs"  # noqa: S608 - fixed names
_INSERT = f"INSERT INTO runs VALUES ({', '.join('?' * len(RunRow._fields))})"  # noqa: S608


def new_run(run_id: str, *, digest: bytes, function: str, workspace: str, session: str, node: str, started: float) -> RunRow:
    """The row of a run that this process owns."""
    return RunRow(run_id, digest, function, workspace, session, node, "queued", owners.this_process(), started)


class RunTable:
    """The runs of a store file."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def begin(self, run: RunRow, entry: Call, opens: Frame, *, title: str = "") -> Work[tuple[RunRow, Call | None]]:
        """What writes a run with its entry node, which goes into the main branch of its session; the session is made if need be.

        A run of that id that exists already is returned as it is, with None, and nothing is written.
        """
        create = self._store.creating_session(run.session, title)

        def work(connection: sqlite3.Connection) -> tuple[RunRow, Call | None]:
            if (found := _find(connection, run.id)) is not None:
                return found, None
            branch = create(connection).frame
            node = msgspec.structs.replace(entry, session=run.session, frame=branch)
            frame = msgspec.structs.replace(opens, session=run.session, parent=branch)
            written = self._store.appending(node, frame)(connection)
            connection.execute(_INSERT, run)
            return run, written

        return work

    def end(self, run_id: str, state: str, facts: dict[str, Any], close: Close) -> Work[Callable[[], Call]]:
        """What ends a run and its entry node. Where it did not complete, calls that its function left open become ``interrupted``."""

        def work(connection: sqlite3.Connection) -> Callable[[], Call]:
            node = self._store.finishing(close)(connection)
            change = "UPDATE runs SET state = ?, ended = ?, details = ? WHERE id = ? AND ended IS NULL"
            connection.execute(change, (state, close.ended_at, values.encode(facts), run_id))
            if state != "completed":
                _abandon(connection, close.id)
            return node

        return work

    def find(self, run_id: str) -> RunRow | None:
        """One run."""
        return self._store.read(lambda connection: _find(connection, run_id))

    def newest(self, *, limit: int, active: bool = False) -> list[RunRow]:
        """Runs, newest first; with ``active`` only those that have not ended."""
        where = " WHERE ended IS NULL" if active else ""
        query = f"{_SELECT}{where} ORDER BY started DESC, rowid DESC LIMIT ?"
        found = self._store.read(lambda connection: [_seen(row) for row in connection.execute(query, (max(0, limit),))])
        return [row for row in found if row.ended is None] if active else found

    def mark_interrupted(self) -> Work[int]:
        """What ends the runs of processes that are dead; it returns how many."""

        def work(connection: sqlite3.Connection) -> int:
            open_rows = [RunRow._make(row) for row in connection.execute(f"{_SELECT} WHERE ended IS NULL")]
            dead = [(row.started, row.id) for row in open_rows if owners.is_dead(row.owner)]
            connection.executemany("UPDATE runs SET state = 'interrupted', ended = ? WHERE id = ?", dead)
            return len(dead)

        return work


def _find(connection: sqlite3.Connection, run_id: str) -> RunRow | None:
    found = connection.execute(f"{_SELECT} WHERE id = ?", (run_id,)).fetchone()
    return None if found is None else _seen(found)


def _seen(row: Any) -> RunRow:
    run = RunRow._make(row)
    return run._replace(state="interrupted", ended=run.started) if run.ended is None and owners.is_dead(run.owner) else run


def _abandon(connection: sqlite3.Connection, entry: str) -> None:
    """Close what is still open below a node. Few nodes of one owner are open at a time, so each is followed upward."""
    running = connection.execute("SELECT id, caller FROM nodes WHERE status = 'running' AND owner = ?", (owners.this_process(),)).fetchall()
    below = [(node,) for node, caller in running if _is_below(connection, caller, entry)]
    connection.executemany("UPDATE nodes SET status = 'interrupted' WHERE id = ?", below)


def _is_below(connection: sqlite3.Connection, node: str | None, entry: str) -> bool:
    for _ in range(_MOST_ANCESTORS):
        if node is None or node == entry:
            break
        found = connection.execute("SELECT caller FROM nodes WHERE id = ?", (node,)).fetchone()
        node = None if found is None else found[0]
    return node == entry
