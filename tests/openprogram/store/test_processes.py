"""The SQLite store when several processes use one file, and when they die."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openprogram.context.call import Call, Close, LogEntry
from openprogram.errors import StoreError
from openprogram.store import owners
from openprogram.store.files import OpenersLock
from openprogram.store.migrations import MIGRATIONS, upgrade
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.store.support import opened

# Forking with threads is what is tested; newer Pythons warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

CHILD = Path(__file__).with_name("child.py")


class Child:
    """A process that runs a command of `child`."""

    def __init__(self, *command: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.line() == "ready", self.errors()

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def kill(self) -> list[str]:
        """Kill it and return the whole lines that it had said and nobody read. (`communicate` would skip what was read ahead.)"""
        assert self.process.stdout is not None
        self.process.kill()
        with self.process:
            return [line.strip() for line in self.process.stdout if line.endswith("\n")]

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """Wait for the end; what it said last and on stderr."""
        out, error = self.process.communicate(timeout=100)
        return out.strip() + error


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    """Starts children, which are ready to go; none outlives the test."""
    started: list[Child] = []

    def start(*command: object) -> Child:
        started.append(Child(*command))
        return started[-1]

    yield start
    for one in started:
        if one.process.stdout is not None and not one.process.stdout.closed:
            one.kill()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, ten seconds at most."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def everything(store: SqliteStore, session: str) -> list[Call]:
    """All nodes of a session, through pages."""
    calls: list[Call] = []
    while page := store.page(session, after=calls[-1].seq if calls else 0, limit=100):
        calls += page
    return calls


@pytest.mark.parametrize("session", ["one", "own-{pid}-{}"])
def test_f01_many_writers_lose_nothing(path: Path, child: Callable[..., Child], session: str) -> None:
    """f01: 4 processes of 4 threads write 50 nodes each into one file, beside a reader that holds its transaction open: all are there, numbered without gap."""
    with contextlib.closing(SqliteStore(path)) as store, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        store.create_session("before")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM nodes").fetchone() == (0,)
        children = [child("write", path, session, 4, 50) for _ in range(4)]
        for one in children:
            one.go()
        assert [one.end() for one in children] == ["done"] * 4
        assert reader.execute("SELECT count(*) FROM nodes").fetchone() == (0,)
        infos = [info for info in store.sessions() if info.id != "before"]
        assert len(infos) == (1 if session == "one" else 16)
        for info in infos:
            calls = everything(store, info.id)
            assert [call.seq for call in calls] == list(range(1, 800 // len(infos) + 1))
            assert {call.status for call in calls} == {"completed"}
            assert {entry.node for entry in store.log(info.frame)} == {call.id for call in calls}


def test_f04_twenty_processes_make_one_new_store(path: Path, child: Callable[..., Child]) -> None:
    """f04, f05: 20 processes that open the same new file at once all get it, and write to it."""
    children = [child("write", path, "s", 1, 1) for _ in range(20)]
    for one in children:
        one.go()
    assert [one.end() for one in children] == ["done"] * 20
    with contextlib.closing(SqliteStore(path)) as store:
        assert store.session("s").nodes == 20


def test_f04_opening_waits_for_a_write_lock(path: Path) -> None:
    """f04: opening a file that is not yet in WAL mode while somebody writes to it waits for the end of that."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        stores: list[SqliteStore] = []
        opener = threading.Thread(target=lambda: stores.append(SqliteStore(path)))
        opener.start()
        opener.join(0.2)
        assert opener.is_alive()
        other.execute("ROLLBACK")
        opener.join(20)
    with contextlib.closing(stores[0]) as store:
        assert opened(store).seq == 1


def test_f05_one_of_ten_processes_migrates(path: Path, child: Callable[..., Child]) -> None:
    """f05: ten processes that find an old file at once migrate it once, and a copy of the old one is beside it."""
    SqliteStore(path).close()
    children = [child("migrate", path) for _ in range(10)]
    for one in children:
        one.go()
    assert [one.end() for one in children] == ["done"] * 10
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
        assert connection.execute("SELECT colour FROM sessions").fetchall() == []
    backup = path.with_name(path.name + f".v{len(MIGRATIONS)}.bak")
    with contextlib.closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert backup.stat().st_mode & 0o777 == 0o600


def test_f05_a_killed_migration_rolls_back(path: Path, child: Callable[..., Child]) -> None:
    """f05: a process killed in the middle of a migration leaves the old version, usable, and the next one migrates it."""
    SqliteStore(path).close()
    killed = child("migrate", path, "fatal")
    killed.go()
    killed.end()
    assert killed.process.returncode == -9
    with contextlib.closing(SqliteStore(path)) as store:
        store.finish(Close(id=opened(store).id, status="completed"))
    after = child("migrate", path)
    after.go()
    assert after.end() == "done"


def test_a_migration_names_who_has_the_store_open(path: Path, child: Callable[..., Child]) -> None:
    """A migration does not run under a process that uses the old version: the error names that process."""
    holder = child("hold", path, "s")
    holder.go()
    assert holder.line().startswith("code-")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        lock = OpenersLock(path)
        lock.share(1)
        with pytest.raises(StoreError, match=rf"\b{holder.pid}\b.*stop it"):
            upgrade(connection, path, lock, timeout_s=0.05, migrations=(*MIGRATIONS, ("CREATE TABLE more (id TEXT)",)))
        lock.release()


def test_f06_a_killed_process_leaves_interrupted_nodes(path: Path, child: Callable[..., Child]) -> None:
    """f06: the open node of a killed process reads ``interrupted``, is in no log, cannot be closed any more, and the session goes on."""
    killed = child("entry", path, "s")
    killed.go()
    node_id = killed.line()
    killed.end()
    with contextlib.closing(SqliteStore(path)) as store:
        read = store.node(node_id)
        assert read is not None
        assert (read.status, read.ended_at, read.output) == ("interrupted", None, None)
        assert [call.status for call in store.page("s")] == ["interrupted"]
        assert stored_statuses(path) == ["interrupted"]
        assert list(store.log(store.session("s").frame)) == []
        assert store.finish(Close(id=node_id, status="completed", enters=True)).status == "interrupted"
        call = opened(store)
        assert (call.seq, call.predecessor) == (2, None)
        store.finish(Close(id=call.id, status="completed", enters=True))
        assert list(store.log(store.session("s").frame)) == [LogEntry(call.id, 0)]


def stored_statuses(path: Path) -> list[str]:
    """What the file itself says."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [status for (status,) in connection.execute("SELECT status FROM nodes ORDER BY seq")]


def test_f06_an_open_store_notices_a_death(path: Path, child: Callable[..., Child]) -> None:
    """f06: a live process's node is running for everybody; once it is killed, even before it is reaped, the next look says interrupted and makes it last."""
    with contextlib.closing(SqliteStore(path)) as store:
        mine = opened(store)
        holder = child("hold", path, "s")
        holder.go()
        node_id = holder.line()
        assert [call.status for call in store.nodes([mine.id, node_id])] == ["running", "running"]
        with contextlib.closing(SqliteStore(path)) as another:
            assert [call.status for call in another.page("s")] == ["running", "running"]
        holder.process.kill()
        until(lambda: [call.status for call in store.page("s")] == ["running", "interrupted"])
        until(lambda: stored_statuses(path) == ["running", "interrupted"])
        assert store.finish(Close(id=mine.id, status="completed")).status == "completed"


def test_f06_a_read_only_store_shows_a_death_and_writes_nothing(path: Path, child: Callable[..., Child]) -> None:
    """f06: opened for reading only, the dead process's node reads interrupted while the file stays as it was, and a write is refused by name."""
    killed = child("entry", path, "s")
    killed.go()
    node_id = killed.line()
    killed.end()
    store = SqliteStore(path, read_only=True)
    with contextlib.closing(store):
        assert [call.status for call in store.nodes([node_id])] == ["interrupted"]
        with pytest.raises(StoreError, match="may only be read"):
            opened(store)
    assert stored_statuses(path) == ["running"]


def test_ten_kills_lose_nothing_acknowledged(path: Path, child: Callable[..., Child]) -> None:
    """A process killed with -9 while it writes loses no node it was told is stored, ten times over; the file stays whole."""
    acknowledged: list[str] = []
    for number in range(10):
        writer = child("acknowledge", path, "s")
        writer.go()
        acknowledged += [writer.line() for _ in range(3 + 7 * number)]
        acknowledged += writer.kill()
    with contextlib.closing(SqliteStore(path)) as store:
        calls = everything(store, "s")
        assert [call.seq for call in calls] == list(range(1, len(calls) + 1))
        assert {call.id for call in calls if call.status == "completed"} >= set(acknowledged)
        assert {call.status for call in calls} <= {"completed", "interrupted"}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def in_fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child; its exit code is 0 if it did not raise."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_both_sides_of_a_fork_write(path: Path) -> None:
    """A store works on in the child of a fork and in the parent, also when threads of the parent were writing at that moment and the parent closes first."""
    with contextlib.closing(SqliteStore(path)) as store:
        stop = threading.Event()

        def busy() -> None:
            while not stop.is_set():
                store.finish(Close(id=opened(store, "busy").id, status="completed"))
                store.page("busy", limit=1)

        threads = [threading.Thread(target=busy) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(5):
                assert in_fork(lambda: [store.finish(Close(id=opened(store, "child").id, status="completed", enters=True)) for _ in range(5)]) == 0
                assert store.session("child").nodes == 5 * (number + 1)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert in_fork(store.close) == 0
        assert opened(store, "parent").seq == 1
        assert [call.seq for call in everything(store, "busy")] == list(range(1, store.session("busy").nodes + 1))


def test_a_fork_has_its_own_owner(path: Path) -> None:
    """A node that a forked child opened is interrupted when the child ends, the parent's is not."""
    with contextlib.closing(SqliteStore(path)) as store:
        mine = opened(store)
        assert in_fork(lambda: opened(store, "child")) == 0
        assert [call.status for call in store.page("child")] == ["interrupted"]
        assert [call.status for call in store.nodes([mine.id])] == ["running"]


def test_a_child_outlives_its_parents_store(path: Path) -> None:
    """A child that goes on writing after the parent closed the store writes into the same file, not into a deleted journal."""
    store = SqliteStore(path)
    opened(store)
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            opened(store)
            os.read(told, 1)
            opened(store)
            code = 0
        finally:
            os._exit(code)
    until(lambda: store.session("s").nodes == 2)
    store.close()
    os.write(tell, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with contextlib.closing(SqliteStore(path)) as again:
        assert again.session("s").nodes == 3


OWNERS = {
    "itself": ("{boot}/{pid}/{start}", False),
    "recycled pid": ("{boot}/{pid}/1{start}", True),
    "before the boot": ("other:1/{pid}/{start}", True),
    "another namespace": ("{boot}9/999999999/{start}", False),
    "no such process": ("{boot}/999999999/{start}", True),
    "garbage": ("garbage", False),
    "nobody": ("", False),
}


@pytest.mark.parametrize(("owner", "dead"), OWNERS.values(), ids=OWNERS)
@pytest.mark.skipif(sys.platform != "linux", reason="process start times are read from /proc")
def test_only_a_certain_death_counts(owner: str, dead: bool) -> None:
    """An owner is dead only if boot, process id and start time say so for certain."""
    boot, pid, start = owners.this_process().rsplit("/", 2)
    assert owners.is_dead(owner.format(boot=boot, pid=pid, start=start)) is dead
