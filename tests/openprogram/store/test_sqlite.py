"""The SQLite store and its file: what is on disk, what goes wrong, who shares it."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import stat
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from openprogram.context.call import Call, Frame
from openprogram.errors import OpenProgramError, StoreClosedError, StoreError
from openprogram.store.memory import MemoryStore
from openprogram.store.registry import open_store
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.store.support import closed, raw


def test_a_store_is_read_again(path: Path) -> None:
    """What was written is there after closing and opening, and numbering goes on."""
    with contextlib.closing(SqliteStore(path)) as store:
        first = closed(store, input={"a": (1, "x" * 5000)})
    with contextlib.closing(SqliteStore(path)) as store:
        assert store.node(first.id) == first
        assert closed(store).seq == 2


def test_the_file_is_private(path: Path) -> None:
    """The file and what is beside it can be read by its user only, whatever the umask; the journal is a write-ahead log."""
    old = os.umask(0)
    try:
        store = SqliteStore(path)
        closed(store)
        assert {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()} == {
            path.name + suffix: "0o600" for suffix in ("", "-wal", "-shm", "-lock")
        }
        store.close()
    finally:
        os.umask(old)
    with raw(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_large_payload_is_stored_once(path: Path) -> None:
    """The same long value in many nodes, and in input and output, takes its room once."""
    text = "".join(str(number) for number in range(200_000))
    with contextlib.closing(SqliteStore(path)) as store:
        for _ in range(5):
            call = closed(store, input={"text": text})
            again = store.node(call.id)
            assert again is not None
            assert again.input == {"text": text}
        with raw(path) as connection:
            assert connection.execute("SELECT count(*) FROM payloads").fetchone() == (1,)
            assert connection.execute("SELECT DISTINCT typeof(input) FROM nodes").fetchall() == [("blob",)]
    assert path.stat().st_size < 1.5 * len(text)


@pytest.mark.parametrize("size", [1, 10_000])
def test_f22_stored_text_is_valid_json(path: Path, size: int) -> None:
    """f22: what SQLite finds in the file is valid JSON, also for NaN, and the reader gets the floats back."""
    with contextlib.closing(SqliteStore(path)) as store:
        call = closed(store, input={"score": float("nan"), "max": float("inf"), "pad": "x" * size}, metadata={"nan": float("nan")})
        assert call.input["score"] != call.input["score"]
        assert call.input["max"] == float("inf")
        with raw(path) as connection:
            cells = "SELECT input AS c FROM nodes UNION ALL SELECT metadata FROM nodes UNION ALL SELECT json FROM payloads"
            assert connection.execute(f"SELECT DISTINCT json_valid(c) FROM ({cells}) WHERE typeof(c) = 'text'").fetchall() == [(1,)]


def test_f03_without_wal_there_is_one_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """f03: where the file system refuses a write-ahead log (here a layer without shared memory) it uses the rollback journal, and says so in one line."""
    with caplog.at_level(logging.WARNING), contextlib.closing(SqliteStore(path, vfs="unix-dotfile")) as store:
        closed(store)
        with ThreadPoolExecutor(4) as pool:
            assert all(future.result() for future in [pool.submit(closed, store) for _ in range(20)])
        assert store.session("s").nodes == 21
    assert [(record.levelname, str(path) in record.getMessage()) for record in caplog.records] == [("WARNING", True)]
    with raw(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_f21_a_failed_write_is_told_and_the_next_ones_work(path: Path) -> None:
    """f21, f01: a lock held for longer than the timeout is a StoreError that names the file, for each caller; afterwards everything is written as before."""
    with contextlib.closing(SqliteStore(path, timeout_s=0.1)) as store, raw(path) as other:
        before = closed(store)
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(4) as pool:
            failures = [future.exception() for future in [pool.submit(closed, store) for _ in range(4)]]
        for failure in failures:
            assert isinstance(failure, StoreError)
            assert str(path) in str(failure)
            assert "locked" in str(failure)
        assert len({id(failure) for failure in failures}) == 4
        assert store.node(before.id) == before
        other.execute("ROLLBACK")
        assert [closed(store).seq for _ in range(5)] == [2, 3, 4, 5, 6]


def test_a_damaged_value_hides_nothing_else(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A cell that cannot be read is logged and shown as such in its node; the other cells and nodes are read."""
    with contextlib.closing(SqliteStore(path)) as store:
        calls = [closed(store, input={"n": number, "pad": "x" * size}) for number, size in enumerate([0, 0, 5000])]
        with raw(path) as connection:
            connection.execute("UPDATE nodes SET input = '{' WHERE id = ?", (calls[1].id,))
            connection.execute("DELETE FROM payloads")
        with caplog.at_level(logging.WARNING):
            read = store.page("s")
        assert [call.id for call in read] == [call.id for call in calls]
        assert read[0] == calls[0]
        for call, reason in zip(read[1:], ("truncated", "missing"), strict=True):
            assert call.input["$type"] == "unreadable"
            assert reason in call.input["value"]
            assert any(call.id in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("field", ["id", "caller", "frame", "started_at"])
def test_what_no_column_can_hold_is_a_store_error(path: Path, field: str) -> None:
    """An id that is no text, or a time that is no number in range, is refused as a StoreError, and the next write works."""
    with contextlib.closing(SqliteStore(path)) as store:
        info = store.create_session("s")
        values: dict[str, Any] = {"id": "code-1", "session": "s", "role": "code", "name": "f", "frame": info.frame}
        with pytest.raises(StoreError):
            values |= {field: 10**400 if field == "started_at" else "\ud800"}
            store.append(Call(**values))
        assert closed(store).seq == 1


def test_one_failure_in_a_batch_takes_no_other_with_it(path: Path) -> None:
    """Of many writes that are committed together, those that are refused fail alone."""
    with contextlib.closing(SqliteStore(path)) as store, raw(path) as other:
        info = store.create_session("s")
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(20) as pool:
            calls = [
                Call(id=f"code-{number}", session="s", role="code", name="f", frame="frame-none" if number % 4 == 0 else info.frame) for number in range(20)
            ]
            opens = [Frame(id=info.frame, session="s") if number % 4 == 1 else None for number in range(20)]
            futures = [pool.submit(store.append, call, opens=frame) for call, frame in zip(calls, opens, strict=True)]
            other.execute("ROLLBACK")
            failed = [future.exception() is not None for future in futures]
        assert failed == [number % 4 in {0, 1} for number in range(20)]
        assert [call.seq for call in store.page("s")] == list(range(1, 11))


def test_a_forgotten_store_ends_its_thread(path: Path) -> None:
    """A store that nobody closed is closed when it is no longer used; its writer thread ends."""
    others = set(threading.enumerate())
    store = SqliteStore(path)
    closed(store)
    gone = weakref.ref(store)
    mine = [thread for thread in threading.enumerate() if thread.name == "openprogram-store" and thread not in others]
    assert mine
    del store
    gc.collect()
    assert gone() is None
    for thread in mine:
        thread.join(10)
    assert not any(thread.is_alive() for thread in mine)


def test_closing_waits_for_what_is_being_written(path: Path) -> None:
    """Of writers that run while the store is closed each one is either done and stored, or gets StoreClosedError."""
    store = SqliteStore(path)
    closed(store)
    started = threading.Barrier(5)

    def work(_: int) -> list[str]:
        done: list[str] = []
        started.wait()
        with contextlib.suppress(StoreClosedError):
            while True:
                done.append(closed(store).id)
        return done

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work, number) for number in range(4)]
        started.wait()
        store.close()
        acknowledged = {node_id for future in futures for node_id in future.result()}
    with contextlib.closing(SqliteStore(path)) as again:
        assert {call.id for call in again.page("s") if call.status == "completed"} >= acknowledged


LOCALE = r"""
import sys
from openprogram.store.registry import open_store
from openprogram.context.call import Call
store = open_store(sys.argv[1])
text = "\u4f60\u597d\U0001f600"
info = store.create_session("na\u00efve", title=text)
store.append(Call(id="code-1", session=info.id, role="code", name=text, frame=info.frame, input=text * 1000))
store.close()
"""


def test_f18_the_locale_does_not_matter(path: Path) -> None:
    """f18: what a process in the C locale writes is UTF-8, and no file is opened in the locale's encoding."""
    environment = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", LOCALE, str(path)]
    subprocess.run(command, env=environment, check=True, timeout=60)
    with contextlib.closing(SqliteStore(path)) as store:
        assert store.session("naïve").title == "你好😀"
        (call,) = store.page("naïve")
        assert (call.name, call.input, call.status) == ("你好😀", "你好😀" * 1000, "interrupted")


def test_one_name_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of this home is made with its folder, private; everybody gets the same object, by any name of the file, until it is closed."""
    home = tmp_path / "deep" / "home"
    monkeypatch.setenv("OPENPROGRAM_HOME", str(home))
    store = open_store()
    assert isinstance(store, SqliteStore)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    link = tmp_path / "link.sqlite3"
    link.symlink_to(store.path)
    assert open_store(store.path) is store
    assert open_store(str(link)) is store
    assert open_store(home / ".." / "home" / store.path.name) is open_store()
    store.close()
    again = open_store()
    assert again is not store
    assert again.sessions() == []
    again.close()


def test_memory_stores_are_separate() -> None:
    """Each store named ``memory`` is a new one."""
    one, two = open_store("memory"), open_store("memory")
    assert isinstance(one, MemoryStore)
    one.create_session("s")
    assert two.sessions() == []


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home under a file is an error that names the variable to set."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(OpenProgramError, match="OPENPROGRAM_HOME"):
        open_store()


def test_the_package_loads_nothing() -> None:
    """Importing the store package loads neither SQLite nor a backend."""
    code = "import sys, openprogram.store; sys.exit(any(name in sys.modules for name in ('sqlite3', 'openprogram.store.values')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
