"""How one process writes: at once, handed over, in order, and each piece for itself."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from openprogram.context.call import Call, new_id
from openprogram.errors import StoreClosedError, StoreError
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.store.support import closed, opened, raw

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """A SQLite store with the session ``s``."""
    with contextlib.closing(SqliteStore(path)) as made:
        made.create_session("s")
        yield made


def node(store: SqliteStore, **fields: Any) -> Call:
    """A node of the main branch, not written yet."""
    values: dict[str, Any] = {"role": "code", "name": "f", "frame": store.session("s").frame, **fields}
    return Call(id=new_id("code"), session="s", **values)


def submitted(store: SqliteStore, call: Call) -> Future[Call]:
    """A node handed over."""
    return store.submit(store.appending(call, None))


def writers() -> list[threading.Thread]:
    """The writer threads of this process."""
    return [thread for thread in threading.enumerate() if thread.name == "openprogram-store"]


def test_what_is_handed_over_is_written_in_that_order(store: SqliteStore) -> None:
    """Thousands of pieces handed over at once by one thread are committed in that order, in far fewer transactions, and each future has its own result."""
    calls = [node(store) for _ in range(3000)]
    futures = [submitted(store, call) for call in calls]
    assert [future.result(60).seq for future in futures] == list(range(1, 3001))
    assert [call.id for call in store.page("s", limit=5000)] == [call.id for call in calls]


def test_a_write_comes_behind_what_was_handed_over(store: SqliteStore) -> None:
    """A write that is waited for comes behind what the same thread handed over before it, whatever state that is in."""
    for count in (1, 2, 50):
        futures = [submitted(store, node(store)) for _ in range(count)]
        last = store.append(node(store))
        assert all(future.done() for future in futures)
        assert [future.result().seq for future in futures] == list(range(last.seq - count, last.seq))


def test_many_threads_hand_over_at_once(store: SqliteStore) -> None:
    """Of many threads that hand over and write, each keeps its own order, and no number is given twice."""

    def work(_: int) -> list[int]:
        numbers: list[int] = []
        for _ in range(40):
            futures = [submitted(store, node(store)) for _ in range(3)]
            last = store.append(node(store)).seq
            numbers += [*(future.result(60).seq for future in futures), last]
        return numbers

    with ThreadPoolExecutor(8) as pool:
        lists = list(pool.map(work, range(8)))
    assert all(numbers == sorted(numbers) for numbers in lists)
    assert sorted(number for numbers in lists for number in numbers) == list(range(1, 8 * 160 + 1))


def test_a_failure_takes_no_other_with_it(store: SqliteStore, path: Path) -> None:
    """Of pieces that are committed together, one that raises is undone alone and its future has the error; what the others wrote stays."""

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE sessions SET title = 'half'")
        raise LookupError("mine")

    with raw(path) as other:
        other.execute("BEGIN IMMEDIATE")
        futures: list[Future[Any]] = [store.submit(fails) if number % 3 == 1 else submitted(store, node(store)) for number in range(30)]
        other.execute("ROLLBACK")
        wait(futures, 60)
    assert [type(future.exception()) for future in futures] == [LookupError if number % 3 == 1 else type(None) for number in range(30)]
    assert store.session("s").nodes == 20
    assert store.session("s").title == ""
    with pytest.raises(LookupError, match="mine"):
        store.write(fails)
    assert store.session("s").title == ""


def test_a_closed_store_takes_nothing(store: SqliteStore) -> None:
    """Closing commits what was handed over; afterwards handing over is a StoreClosedError, and so it is where the file may only be read a StoreError."""
    futures = [submitted(store, node(store)) for _ in range(500)]
    work = store.appending(node(store), None)
    store.close()
    assert [future.result(0).seq for future in futures] == list(range(1, 501))
    with pytest.raises(StoreClosedError):
        store.submit(work)
    with contextlib.closing(SqliteStore(store.path, read_only=True)) as reader, pytest.raises(StoreError, match="may only be read"):
        reader.submit(work)


def test_what_was_handed_over_is_committed_before_a_fork(store: SqliteStore) -> None:
    """A fork leaves nothing behind in a thread that the child does not have: both sides see it written, once, and hand over more."""
    futures = [submitted(store, node(store)) for _ in range(200)]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert [future.result(0).seq for future in futures] == list(range(1, 201))
            assert submitted(store, node(store)).result(30).seq > 200
            code = 0
        finally:
            os._exit(code)
    assert [future.result(0).seq for future in futures] == list(range(1, 201))
    assert submitted(store, node(store)).result(30).seq > 200
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.session("s").nodes == 202


def test_a_callback_may_write(store: SqliteStore) -> None:
    """What is called when a piece is committed, in the writer's own thread, may write and need not wait for itself."""
    written: Future[int] = Future()
    future = submitted(store, node(store))
    future.add_done_callback(lambda _: written.set_result(store.append(node(store)).seq))
    if not written.done():
        wait([written], 30)
    assert {future.result(0).seq, written.result(0)} == {1, 2}


def test_cancelling_only_stops_waiting(store: SqliteStore, path: Path) -> None:
    """A future that was cancelled is cancelled, and what it stood for is written all the same."""
    with raw(path) as other:
        other.execute("BEGIN IMMEDIATE")
        future = submitted(store, node(store))
        assert future.cancel()
        other.execute("ROLLBACK")
    assert store.append(node(store)).seq == 2


def test_a_write_inside_a_write_is_refused(store: SqliteStore) -> None:
    """Work that itself waits for a write would wait for ever; it is told so, and the store goes on."""
    with pytest.raises(StoreError, match="inside one of its own writes"):
        store.write(lambda _: opened(store))
    assert opened(store).seq == 1


def test_one_writer_needs_no_hand_over(store: SqliteStore) -> None:
    """A write that meets nobody is done in the thread that asks for it."""
    waiting = submitted(store, node(store))
    waiting.result(30)
    threads: set[int] = set()

    def work(_: sqlite3.Connection) -> None:
        threads.add(threading.get_ident())

    deadline = time.monotonic() + 30
    while threads != {threading.get_ident()}:  # the writer may still be busy with the piece before
        assert time.monotonic() < deadline
        threads.clear()
        store.write(work)


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_an_interrupted_write_is_not_lost(store: SqliteStore, moment: str) -> None:
    """Ctrl-C while a thread writes, at whatever moment, leaves the write done once and whole, and the next ones work."""
    call = node(store)
    append = store.appending(call, None)

    def work(connection: sqlite3.Connection) -> None:
        if moment == "before":
            _interrupt_once()
        append(connection)
        if moment == "during":
            _interrupt_once()

    interrupted: list[int] = []

    def _interrupt_once() -> None:
        if not interrupted:
            interrupted.append(1)
            signal.raise_signal(signal.SIGINT)

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.write(work)
            _interrupt_once()
    finally:
        signal.signal(signal.SIGINT, old)
    assert store.append(node(store)).seq == 2
    assert store.page("s")[0].id == call.id
    assert store.session("s").nodes == 2


def test_a_storm_of_interrupts(store: SqliteStore) -> None:
    """Interrupts at random moments of many writes lose none that was begun, write none twice and leave nothing locked."""
    calls = [node(store) for _ in range(300)]
    main = threading.get_ident()
    stop = threading.Event()

    def storm() -> None:
        while not stop.wait(0.0007):
            signal.pthread_kill(main, signal.SIGUSR1)

    def interrupt(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_name != "append":
            frame = frame.f_back
        if frame is not None:  # only what the test catches
            raise KeyboardInterrupt

    old = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=storm)
    interrupts = 0
    try:
        thread.start()
        for call in calls:
            try:
                store.append(call)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, old)
    store.append(node(store))
    stored = [found.id for found in store.page("s")]
    assert len(stored) == len(set(stored)) == store.session("s").nodes
    assert interrupts > 0
    # One that was interrupted before its write began is not there.
    assert len(set(stored) & {call.id for call in calls}) >= len(calls) - interrupts


def test_threads_end_with_their_stores(path: Path) -> None:
    """The thread of a store that was used both ways ends when the store is closed."""
    before = set(writers())
    with contextlib.closing(SqliteStore(path)) as store:
        closed(store)
        submitted(store, node(store)).result(30)
        assert set(writers()) - before
    assert not set(writers()) - before
