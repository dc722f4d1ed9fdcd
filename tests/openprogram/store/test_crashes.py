"""A store after the worst: no room on the disk, a journal cut off, a process killed at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openprogram.context.call import Close
from openprogram.errors import StoreError
from openprogram.store.check import check
from openprogram.store.sqlite import SqliteStore
from openprogram.store.vacuum import vacuum
from tests.openprogram.store.support import closed, opened
from tests.openprogram.store.test_processes import Child, everything

KILOBYTE = 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.geteuid() != 0 or mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root of a Linux that allows it can make a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Take all the room that is left."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4 * KILOBYTE))


def test_a_full_disk_loses_nothing_old(small_disk: Path) -> None:
    """On a full disk a write is a StoreError that says so, for each that was handed over; old data is read, and with room again everything is written."""
    path, ballast = small_disk / "store.sqlite3", small_disk / "ballast"
    with contextlib.closing(SqliteStore(path)) as store:
        before = [closed(store, input=os.urandom(2000).hex()) for _ in range(20)]
        running = opened(store)
        fill(ballast)
        with pytest.raises(StoreError, match="full") as caught:
            for _ in range(200):
                before.append(closed(store, input=os.urandom(20_000).hex()))
        assert str(path) in str(caught.value)
        futures = [store.submit(store.appending(before[0], None)) for _ in range(3)]
        assert all(isinstance(future.exception(30), StoreError) for future in futures)
        assert store.nodes([call.id for call in before]) == before
        ballast.unlink()
        assert store.finish(Close(id=running.id, status="completed")).status == "completed"
        after = closed(store, input=os.urandom(20_000).hex())
        assert store.node(after.id) == after
    assert check(path) == []


def test_a_full_disk_when_a_store_is_opened(small_disk: Path) -> None:
    """Opening a store on a full disk either works for reading or is a StoreError, and changes nothing; with room again it is as it was."""
    path, ballast = small_disk / "store.sqlite3", small_disk / "ballast"
    with contextlib.closing(SqliteStore(path)) as store:
        before = [closed(store, input=os.urandom(2000).hex()) for _ in range(20)]
    fill(ballast)
    for read_only in (False, True):
        with contextlib.suppress(StoreError), contextlib.closing(SqliteStore(path, read_only=read_only)) as store:
            assert store.nodes([call.id for call in before]) == before
    ballast.unlink()
    with contextlib.closing(SqliteStore(path)) as store:
        assert store.nodes([call.id for call in before]) == before
        closed(store)
        assert check(store) == []


def test_a_full_disk_breaks_no_vacuum(small_disk: Path) -> None:
    """A vacuum that finds no room is an error or done; the store is whole either way, and a vacuum with room is done."""
    path, ballast = small_disk / "store.sqlite3", small_disk / "ballast"
    with contextlib.closing(SqliteStore(path)) as store:
        for session in ("kept", "gone"):
            for _ in range(60):
                closed(store, session, input=os.urandom(1500).hex())
        store.delete_session("gone")
        fill(ballast)
        with contextlib.suppress(StoreError):
            vacuum(store)
        ballast.unlink()
        vacuum(store)
        assert len(store.page("kept")) == 60
        assert check(store) == []


LIMITED = """
import resource, signal, sys
from pathlib import Path
from openprogram.context.call import Close
from openprogram.errors import StoreError
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.store.support import closed, opened
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SqliteStore(sys.argv[1])
done = [closed(store, input="%d " % number * 2000) for number in range(20)]
running = opened(store)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
failed = 0
for number in range(400):
    try:
        done.append(closed(store, input="%x" % hash(str(number)) * 60))
    except StoreError:
        failed += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert failed
assert store.finish(Close(id=running.id, status="completed")).status == "completed"
done.append(closed(store))
assert store.nodes([call.id for call in done]) == done
store.close()
print(len(done))
"""


@pytest.mark.parametrize("kilobytes", [120, 150, 333])
def test_a_file_that_may_not_grow(path: Path, kilobytes: int) -> None:
    """Where the system refuses to let the files grow, writes fail as errors, nothing acknowledged is lost, and once it allows it they work again."""
    command = [sys.executable, "-c", LIMITED, str(path), str(kilobytes * KILOBYTE)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[3]).stdout
    with contextlib.closing(SqliteStore(path)) as store:
        assert sum(call.status == "completed" for call in everything(store, "s")) == int(said) + 1  # the one that ran all the time
        assert check(store) == []


def killed_in_the_middle(path: Path, acknowledged: int) -> list[str]:
    """Let a process write nodes that are acknowledged, kill it, and say which they were."""
    writer = Child("acknowledge", path, "s")
    try:
        writer.go()
        said = [writer.line() for _ in range(acknowledged)]
    finally:
        rest = writer.kill()
    return said + rest


@pytest.mark.parametrize("part", [0.0, 0.1, 0.37, 0.5, 0.81, 0.99])
def test_f11_a_journal_that_is_cut_off(path: Path, part: float) -> None:
    """f11: after a power cut that leaves a part of the journal, what the file and that part hold is read without gap, and more is written."""
    with contextlib.closing(SqliteStore(path)) as store:
        first = [closed(store).id for _ in range(5)]
    ids = killed_in_the_middle(path, 40)
    journal = path.with_name(path.name + "-wal")
    whole = journal.stat().st_size
    assert whole
    os.truncate(journal, int(whole * part))
    with contextlib.closing(SqliteStore(path)) as store:
        calls = everything(store, "s")
        assert [call.id for call in calls[:5]] == first
        assert [call.seq for call in calls] == list(range(1, len(calls) + 1))
        completed = [call.id for call in calls if call.status == "completed"]
        assert completed[5:] == ids[: len(completed) - 5]
        assert {call.status for call in calls} <= {"completed", "interrupted"}
        assert closed(store).seq == len(calls) + 1
        assert check(store) == []


@pytest.mark.parametrize("place", [40, 5000, 20_000])
def test_f11_a_journal_that_is_damaged(path: Path, place: int) -> None:
    """f11: where bytes of the journal are wrong, what comes before them is read, nothing after them is believed, and more is written."""
    with contextlib.closing(SqliteStore(path)) as store:
        closed(store)
    killed_in_the_middle(path, 40)
    with path.with_name(path.name + "-wal").open("r+b") as journal:
        journal.seek(place)
        journal.write(b"\xff" * 64)
    with contextlib.closing(SqliteStore(path)) as store:
        count = store.session("s").nodes
        assert [call.seq for call in everything(store, "s")] == list(range(1, count + 1))
        assert closed(store).seq == count + 1
        assert check(store) == []


def kills(path: Path, times: int) -> None:
    """Kill writers at random moments; nothing that was acknowledged may be lost, and the store must be whole each time."""
    seed = int(os.environ.get("SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    print(f"SOAK_SEED={seed}")
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    for number in range(times):
        writers = [Child("acknowledge", path, "s") for _ in range(chance.choice((1, 1, 2, 3)))]
        try:
            for writer in writers:
                writer.go()
            for writer in writers:
                acknowledged.add(writer.line() or pytest.fail(writer.errors()))
            time.sleep(chance.random() * chance.choice((0.005, 0.05, 0.8)))  # the moment is what is tried, nothing is waited for
        finally:
            for writer in writers:
                acknowledged.update(writer.kill())
        if number % 10 == 9 or number == times - 1:
            with contextlib.closing(SqliteStore(path)) as store:
                calls = everything(store, "s")
                assert {call.id for call in calls if call.status == "completed"} >= acknowledged
                assert {call.status for call in calls} <= {"completed", "interrupted"}
                assert [call.seq for call in calls] == list(range(1, len(calls) + 1))
                assert check(store) == []


def test_kills_at_random_moments(path: Path) -> None:
    """Ten times up to three writers at once are killed at a random moment: no acknowledged node is lost and the store is whole."""
    kills(path, 10)


@pytest.mark.soak
def test_two_hundred_kills(path: Path) -> None:
    """The same two hundred times over one file."""
    kills(path, 200)
