"""Runs in the store file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from openprogram.context.call import Call, Close, Frame
from openprogram.store import owners
from openprogram.store.files import OpenersLock
from openprogram.store.migrations import FIRST, upgrade
from openprogram.store.runs import RunRow, RunTable, new_run
from openprogram.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with contextlib.closing(SqliteStore(tmp_path / "s.sqlite3")) as opened:
        yield opened


def begin(store: SqliteStore, run_id: str = "r1", *, digest: bytes = b"d") -> tuple[RunRow, Call | None]:
    run = new_run(run_id, digest=digest, function="f.py:f", workspace="w", session="s", node=f"n-{run_id}", started=1.0)
    entry = Call(id=run.node, session="", role="code", name="f", frame="", input={"x": 1})
    return store.write(RunTable(store).begin(run, entry, Frame(id=f"frame-{run_id}", session="", owner=run.node), title="f"))


def test_a_run_and_its_entry_node_are_written_together(store: SqliteStore) -> None:
    """The session, the node, its frame and the row exist after one call, and the frame is inside the session's main branch."""
    run, entry = begin(store)
    assert entry is not None
    assert entry.seq == 1
    assert RunTable(store).find("r1") == run
    frame = store.frame("frame-r1")
    assert frame is not None
    assert frame.parent == store.session("s").frame == entry.frame


def test_the_same_id_again_writes_nothing(store: SqliteStore) -> None:
    """A repeated id gives the run as it was first written, whoever asks and with whatever."""
    first, _ = begin(store)
    again, entry = begin(store, digest=b"other")
    assert (again, entry) == (first, None)
    assert len(store.page("s")) == 1


def test_the_first_end_wins_for_run_and_node(store: SqliteStore) -> None:
    """The end of a run closes its entry node in the same commit; a second end changes neither."""
    run, _ = begin(store)
    table = RunTable(store)
    store.write(table.end("r1", "completed", {"pid": 5}, Close(id=run.node, status="completed", output=42, ended_at=2.0, enters=True)))
    store.write(table.end("r1", "error", {}, Close(id=run.node, status="error", ended_at=3.0)))
    ended = table.find("r1")
    assert ended is not None
    assert (ended.state, ended.ended, ended.facts) == ("completed", 2.0, {"pid": 5})
    node = store.node(run.node)
    assert node is not None
    assert (node.status, node.output) == ("completed", 42)
    assert [row.state for row in table.newest(limit=5)] == ["completed"]


def test_what_a_failed_run_left_open_is_interrupted(store: SqliteStore) -> None:
    """Calls below the entry of a run that did not complete are closed with it, however deep; others are not touched."""
    run, _ = begin(store)
    other, _ = begin(store, "r2")
    for node, caller in (("inner", run.node), ("innermost", "inner"), ("elsewhere", other.node)):
        store.append(Call(id=node, session="s", role="code", name=node, frame="frame-r1", caller=caller))
    store.write(RunTable(store).end("r1", "error", {}, Close(id=run.node, status="error", ended_at=3.0)))
    assert {node.id: node.status for node in store.page("s")} == {
        run.node: "error",
        other.node: "running",
        "inner": "interrupted",
        "innermost": "interrupted",
        "elsewhere": "running",
    }


def test_runs_of_a_dead_owner_are_interrupted(store: SqliteStore) -> None:
    """A run whose owner is gone reads interrupted, is not active, and is marked so once."""
    begin(store)
    gone = owners.this_process().rpartition("/")[0].rpartition("/")[0] + "/999999999/1"
    store.write(lambda connection: connection.execute("UPDATE runs SET owner = ?", (gone,)).rowcount)
    table = RunTable(store)
    assert [row.state for row in table.newest(limit=5)] == ["interrupted"]
    assert table.newest(limit=5, active=True) == []
    assert [store.write(table.mark_interrupted()) for _ in range(2)] == [1, 0]


def test_a_store_of_the_first_version_gains_runs(tmp_path: Path) -> None:
    """A file written before there were runs is migrated, with what is in it, and a copy stays beside it."""
    path = tmp_path / "old.sqlite3"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        lock = OpenersLock(path)
        lock.share(1)
        upgrade(connection, path, lock, timeout_s=1, migrations=(FIRST,))
        connection.execute("INSERT INTO sessions VALUES ('old', '', 'f', 1, 0, 0)")
        lock.release()
    with contextlib.closing(SqliteStore(path)) as store:
        assert store.session("old").frame == "f"
        assert RunTable(store).newest(limit=1) == []
    assert path.with_name(path.name + ".v1.bak").exists()
