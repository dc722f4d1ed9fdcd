"""Branches in a store: what may be one, and what the first node on one follows.

A branch whose parent has fewer entries than it goes on from would show less than it says, so it is never made, and a node on one that is damaged so is refused.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Container

import msgspec

from openprogram.context.call import MAIN, Branch, Frame, SessionInfo
from openprogram.errors import StoreCorruptError, StoreError
from openprogram.store import rows
from openprogram.store.ids import check_branch_name

_FRAME = "SELECT id, session, parent, base, owner FROM frames WHERE id = ?"


def main_branch(info: SessionInfo) -> Branch:
    """The branch that a session begins with."""
    return Branch(id=info.frame, session=info.id, name=MAIN, created_at=info.created_at)


def made_up_name(taken: Container[str]) -> str:
    """``branch-2`` and so on: the first that is free (the main branch is the first)."""
    number = 2
    while f"branch-{number}" in taken:
        number += 1
    return f"branch-{number}"


def broken(node: str, frame: Frame) -> StoreCorruptError:
    """For a node that would begin a conversation that has begun already."""
    return StoreCorruptError(
        f"node {node} has no predecessor: branch {frame.id} goes on from entry {frame.base} of {frame.parent}, whose log holds fewer; nothing was written"
    )


def unknown_predecessor(node: str, predecessor: str, session: str) -> StoreError:
    """For a node that names a predecessor which is not there."""
    return StoreError(
        f"node {node} cannot follow {predecessor}: session {session!r} holds no such node; leave predecessor out to follow the head of the branch"
    )


def check(branch: Branch, parent: Frame | None, length: int, *, taken: bool, exists: bool) -> None:
    """Raise StoreError for a branch that cannot be made; ``length`` is that of the parent's log."""
    if exists:
        raise StoreError(f"a branch or frame {branch.id} exists already")
    if taken:
        raise StoreError(f"session {branch.session!r} has a branch called {branch.name!r} already; choose another name")
    if branch.parent is None:
        if branch.base:
            raise StoreError(f"branch {branch.id} has no parent, so it begins with nothing, not with {branch.base} entries")
    elif parent is None or parent.owner is not None or parent.session != branch.session:
        raise StoreError(f"branch {branch.id} cannot be made from {branch.parent!r}: session {branch.session!r} has no such branch")
    elif not 0 <= branch.base <= length:
        raise StoreError(f"branch {branch.id} cannot go on from entry {branch.base} of {branch.parent}: its log holds {length}")


def opening(branch: Branch) -> Callable[[sqlite3.Connection], Branch]:
    """The work of `Branching.open_branch` in a session that exists. Raises UsageError for a name that cannot be one."""
    if branch.name:
        check_branch_name(branch.name)

    def work(connection: sqlite3.Connection) -> Branch:
        query = "SELECT name FROM branches WHERE session = ?"
        names = {MAIN, *(row[0] for row in connection.execute(query, (branch.session,)))}
        parent = _frame(connection, branch.parent) if branch.parent is not None else None
        length = connection.execute("SELECT count(*) FROM log WHERE frame = ?", (branch.parent,)).fetchone()[0]
        check(branch, parent, length, taken=branch.name in names, exists=_frame(connection, branch.id) is not None)
        made = msgspec.structs.replace(branch, name=branch.name or made_up_name(names), created_at=branch.created_at or time.time())
        connection.execute("INSERT INTO frames VALUES (?, ?, ?, ?, NULL)", (made.id, made.session, made.parent, made.base))
        connection.execute("INSERT INTO branches VALUES (?, ?, ?, ?)", (made.id, made.session, made.name, made.created_at))
        return made

    return work


def branches_of(connection: sqlite3.Connection, info: SessionInfo) -> list[Branch]:
    """The branches of a session that exists, the main one first."""
    query = (
        "SELECT b.frame, b.name, f.parent, f.base, b.created FROM branches b JOIN frames f ON f.id = b.frame WHERE b.session = ? ORDER BY b.created, b.rowid"
    )
    found = connection.execute(query, (info.id,)).fetchall()
    made = [Branch(id=row[0], session=info.id, name=row[1], parent=row[2], base=row[3], created_at=row[4]) for row in found]
    return [main_branch(info), *made]


def predecessor(connection: sqlite3.Connection, row: rows.Row, last: str | None) -> str | None:
    """What a node that is about to be written follows; ``last`` is the end of its frame's log. Raises StoreError, see `Store.append`."""
    if row.predecessor is not None:
        found = connection.execute("SELECT 1 FROM nodes WHERE id = ? AND session = ?", (row.predecessor, row.session)).fetchone()
        if found is None:
            raise unknown_predecessor(row.id, row.predecessor, row.session)
        return row.predecessor
    if last is not None:
        return last
    frame = _frame(connection, row.frame)
    while frame is not None and frame.owner is None and frame.parent is not None:
        if frame.base:
            found = connection.execute("SELECT node FROM log WHERE frame = ? AND pos = ?", (frame.parent, frame.base - 1)).fetchone()
            if found is None:
                raise broken(row.id, frame)
            return found[0]
        frame = _frame(connection, frame.parent)
    return None


def _frame(connection: sqlite3.Connection, frame_id: str) -> Frame | None:
    found = connection.execute(_FRAME, (frame_id,)).fetchone()
    return None if found is None else Frame(id=found[0], session=found[1], parent=found[2], base=found[3], owner=found[4])
