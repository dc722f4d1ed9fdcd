"""Branches, over every store that has them: what one sees, what its first node follows, and what is refused."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from openprogram.context.call import MAIN, Branch, Call, Close, Frame, LogEntry, SessionInfo
from openprogram.errors import StoreCorruptError, StoreError, UnknownSessionError, UsageError
from openprogram.store.base import Branching
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore

Both = MemoryStore | SqliteStore
KINDS: dict[str, Callable[[Path], Both]] = {"memory": lambda _: MemoryStore(), "sqlite": lambda folder: SqliteStore(folder / "store.sqlite3")}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    """An empty store."""
    with contextlib.closing(KINDS[request.param](tmp_path)) as opened:
        yield opened


def said(store: Both, info: SessionInfo, text: str, *, frame: str = "", **fields: Any) -> Call:
    """Something a person said, at the end of a branch."""
    call = Call(id=text, session=info.id, role="user", name="user", frame=frame or info.frame, input=text, **fields)
    written = store.append(call)
    store.finish(Close(id=text, status="completed", enters=True))
    return written


def test_branches_are_listed_as_they_were_made(store: Both) -> None:
    """The main one first; a name that is left out is made up; those of other sessions are not there."""
    assert isinstance(store, Branching)
    info, other = store.create_session("s"), store.create_session("other")
    said(store, info, "one")
    first = store.open_branch(Branch(id="a", session="s", parent=info.frame, base=1))
    second = store.open_branch(Branch(id="b", session="s", name="näher", parent="a"))
    store.open_branch(Branch(id="c", session="other", parent=other.frame))
    assert (first.name, second.name) == ("branch-2", "näher")
    assert first.created_at > 0
    found = store.branches("s")
    assert [(branch.name, branch.parent, branch.base) for branch in found] == [(MAIN, None, 0), ("branch-2", info.frame, 1), ("näher", "a", 0)]
    assert found[1:] == [first, second]
    assert store.frame("a") == Frame(id="a", session="s", parent=info.frame, base=1)
    with pytest.raises(UnknownSessionError):
        store.branches("nobody")


def test_the_first_node_of_a_branch_follows_what_it_was_made_after(store: Both) -> None:
    """Also through branches that are empty themselves; the next follows the first. A branch with no parent begins a conversation."""
    info = store.create_session("s")
    for text in ("one", "two", "three"):
        said(store, info, text)
    store.open_branch(Branch(id="a", session="s", parent=info.frame, base=2))
    store.open_branch(Branch(id="b", session="s", parent="a", base=0))
    store.open_branch(Branch(id="clean", session="s"))
    store.open_branch(Branch(id="start", session="s", parent=info.frame, base=0))
    assert said(store, info, "instead", frame="b").predecessor == "two"
    assert said(store, info, "then", frame="b").predecessor == "instead"
    assert said(store, info, "elsewhere", frame="clean").predecessor is None
    assert said(store, info, "again", frame="start").predecessor is None
    assert list(store.log("b")) == [LogEntry("instead", 0), LogEntry("then", 0)]
    assert list(store.log("a")) == []


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "the name is taken": ({"name": "used"}, StoreError, "'used'"),
    "the name of the main branch": ({"name": MAIN}, StoreError, "main"),
    "the id is taken": ({"id": "a"}, StoreError, "exists already"),
    "more entries than there are": ({"base": 2}, StoreError, "entry 2 of .*holds 1"),
    "fewer than none": ({"base": -1}, StoreError, "entry -1"),
    "no such parent": ({"parent": "nowhere"}, StoreError, "nowhere"),
    "a parent of another session": ({"parent": "foreign"}, StoreError, "foreign"),
    "a function's frame": ({"parent": "inner", "base": 0}, StoreError, "inner"),
    "entries of nothing": ({"parent": None}, StoreError, "begins with nothing"),
    "a name that is a path": ({"name": "../x"}, UsageError, "branch name"),
    "no such session": ({"session": "nobody"}, UnknownSessionError, "nobody"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_branch_is_refused(store: Both, case: str) -> None:
    """With an error that says what, and nothing is written."""
    changes, error, message = REFUSED[case]
    info = store.create_session("s")
    said(store, info, "one")
    store.open_branch(Branch(id="a", session="s", name="used", parent=info.frame))
    store.create_session("other")
    store.open_branch(Branch(id="foreign", session="other", name="there"))
    function = Call(id="code", session="s", role="code", name="f", frame=info.frame)
    store.append(function, opens=Frame(id="inner", session="s", parent=info.frame, owner="code"))
    fields: dict[str, Any] = {"id": "new", "session": "s", "parent": info.frame, "base": 1, **changes}
    with pytest.raises(error, match=message):
        store.open_branch(Branch(**fields))
    assert [branch.name for branch in store.branches("s")] == [MAIN, "used"]


def test_a_node_that_follows_nothing_known_is_refused(store: Both) -> None:
    """The write invariant: a predecessor of another session, or of none, is an error that names both nodes, and nothing is written."""
    info, other = store.create_session("s"), store.create_session("other")
    said(store, other, "theirs")
    for stranger in ("theirs", "nobody"):
        with pytest.raises(StoreError, match=f"mine cannot follow {stranger}"):
            said(store, info, "mine", predecessor=stranger)
    assert store.page("s") == []


def test_a_node_on_a_damaged_branch_is_refused(tmp_path: Path) -> None:
    """The write invariant: a node that would begin a conversation which has begun already is an error that names it."""
    path = tmp_path / "store.sqlite3"
    with contextlib.closing(SqliteStore(path)) as store:
        info = store.create_session("s")
        said(store, info, "one")
        store.open_branch(Branch(id="a", session="s", parent=info.frame, base=1))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM log")
    with contextlib.closing(SqliteStore(path)) as store:
        with pytest.raises(StoreCorruptError, match="node lost has no predecessor"):
            said(store, info, "lost", frame="a")
        assert [call.id for call in store.page("s")] == ["one"]


def test_at_once_each_branch_gets_a_name_of_its_own(tmp_path: Path) -> None:
    """Names that are made up do not collide between threads."""
    with contextlib.closing(SqliteStore(tmp_path / "store.sqlite3")) as store, ThreadPoolExecutor(8) as pool:
        info = store.create_session("s")
        made = pool.map(store.open_branch, [Branch(id=f"b{n}", session="s", parent=info.frame) for n in range(16)])
        names = {branch.name for branch in made}
        assert len(names) == 16
        assert {branch.name for branch in store.branches("s")} == {MAIN, *names}
