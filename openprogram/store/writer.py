"""Writes of one process to a store, one transaction at a time: group commit without a timer.

A write that meets nobody else is done at once, in the caller's thread. Otherwise it is handed to the one writer thread, and the caller sleeps until the
transaction that holds it is committed; whatever else was handed over meanwhile goes into the same transaction, each piece behind a savepoint of its own, so
that one that fails takes no other with it. What one thread hands over is committed in that order. Interrupting a caller never loses its write: one that was
interrupted halfway is undone and handed to the writer thread.

When nothing was written for a moment the thread does what may wait (``idle``), in small pieces.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar, cast

from openprogram.errors import StoreError
from openprogram.store.files import BUSY, code_of, translated

logger = logging.getLogger("openprogram.store")

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_LARGEST_BATCH = 256
_IDLE_S = 0.5
# Between two pieces of idle work, so that it never takes more than a part of a core.
_PAUSE_S = 0.02


class EngineGone(Exception):
    """The connections were closed (by `close`, or for a fork) before this call reached them; nothing was done."""


class _Job:
    __slots__ = ("done", "error", "future", "result", "work")

    def __init__(self, work: Work[Any], *, future: Future[Any] | None = None) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.future = future
        self.done: threading.Lock | None = None

    def end(self) -> None:
        if self.done is not None:
            self.done.release()
        elif self.future is not None and self.future.set_running_or_notify_cancel():
            if self.error is not None:
                self.future.set_exception(self.error)
            else:
                self.future.set_result(self.result)


class Writer:
    """Owns ``connection`` from now on. ``timeout_s`` is how long to wait for the write lock of another process, 0 where the connection itself waits; only
    with a positive one are writes done at once, since a caller that waits inside SQLite could not be interrupted."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, timeout_s: float, idle: Callable[[], Work[Any] | None]) -> None:
        self._connection = connection
        self._path = path
        self._timeout_s = timeout_s
        self._idle = idle
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._turn = threading.Lock()
        self._user = 0
        self._pending = 0
        self._last = 0.0
        # How long the thread waits for a write before it does idle work; None when there is none to do.
        self._wait: float | None = None
        self._stopped = False
        self._thread: threading.Thread | None = None

    def run(self, work: Work[T]) -> T:
        """Do ``work`` inside a transaction and return its result once that is committed. Raises what it raised, StoreError, or EngineGone."""
        job = _Job(work)
        me = threading.get_ident()
        if self._user == me and self._turn.locked():
            raise StoreError(f"the store {self._path} was written to from inside one of its own writes (by a signal handler or a finalizer); do it later")
        if self._thread is not None and self._thread.ident == me:  # in the callback of a future
            self._commit([job])
        elif not self._at_once(job, me):
            job.done = threading.Lock()
            job.done.acquire()
            self._put(job)
            job.done.acquire()
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    def post(self, work: Work[Any]) -> None:
        """Do ``work`` at some time soon; a failure is logged, since nobody waits for it."""
        self._put(_Job(work))

    def submit(self, work: Work[T]) -> Future[T]:
        """Do ``work`` as `run` does, for whoever must not sleep; pieces are done in the order in which they were handed over.

        Cancelling the future only stops waiting. Its callbacks run in the writer thread, which must not wait there.
        """
        future: Future[T] = Future()
        self._put(_Job(work, future=future))
        return future

    def _put(self, job: _Job) -> None:
        with self._door:
            if self._stopped:
                raise EngineGone
            self._pending += 1
            self._queue.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="openprogram-store", daemon=True)
                self._thread.start()

    def _at_once(self, job: _Job, me: int) -> bool:
        """Do a job in the caller's thread; False, and nothing is done, when somebody else writes or waits for it."""
        if not self._timeout_s or self._pending or self._turn.locked():
            return False
        with self._turn:
            if self._stopped:
                raise EngineGone
            self._user = me
            return self._alone(job)

    def _alone(self, job: _Job) -> bool:
        connection = self._connection
        committing = False
        try:
            if connection.in_transaction:  # left by one who was interrupted twice
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            job.result = job.work(connection)
            committing = True
            connection.execute("COMMIT")
        except Exception as error:
            if isinstance(error, sqlite3.Error) and code_of(error) in BUSY and not connection.in_transaction:
                return False
            self._roll_back()
            job.error = self._seen(error)
        except BaseException:  # no work raises these: somebody interrupts this thread
            committed = committing and not connection.in_transaction
            self._roll_back()
            if not committed:
                self._put(_Job(job.work))
            raise
        self._last = time.monotonic()
        if self._wait is None:  # the thread sleeps until it is told
            with contextlib.suppress(EngineGone):
                self._put(_Job(_nothing))
        return True

    def stop(self) -> None:
        """Commit what was handed over, then end the thread and close the connection."""
        with self._door:
            if self._stopped:
                return
            self._stopped = True
            self._queue.put(None)
            thread = self._thread
        if thread is None:
            self._close()
        elif thread is not threading.current_thread():  # the garbage collector may come by in any thread
            thread.join()

    def _close(self) -> None:
        with self._turn, contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _loop(self) -> None:
        while self._round():
            pass
        self._close()

    def _round(self) -> bool:
        """One transaction; False when there will be no other. Nothing of it is kept: the work holds the caller's store and values."""
        try:
            job = self._queue.get(timeout=self._wait)
        except queue.Empty:
            self._tidy()
            return True
        if job is None:
            return False
        batch = [job]
        goes_on = self._fill(batch)
        self._commit(batch, handed_over=len(batch))
        self._wait = _IDLE_S
        return goes_on

    def _fill(self, batch: list[_Job]) -> bool:
        """Add what is waiting to the batch; False when the end is."""
        while len(batch) < _LARGEST_BATCH:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return False
            batch.append(job)
        return True

    def _tidy(self) -> None:
        """A piece of what may wait, if nothing was written for a moment."""
        if time.monotonic() - self._last < _IDLE_S:
            self._wait = _IDLE_S
            return
        # Set first: whoever writes from now on wakes this thread again.
        self._wait = None
        try:
            work = self._idle()
        except EngineGone:
            return
        except Exception as error:
            logger.warning("the store %s could not be tidied: %s", self._path, error)
            return
        if work is not None:
            job = _Job(work)
            self._commit([job])
            self._wait = None if job.error else _PAUSE_S

    def _commit(self, batch: list[_Job], *, handed_over: int = 0) -> None:
        with self._turn:
            self._user = threading.get_ident()
            self._transact(batch)
        with self._door:
            self._pending -= handed_over
        for job in batch:
            if job.done is None and job.future is None and job.error is not None:
                logger.warning("the store %s could not be tidied: %s", self._path, job.error)
            job.end()

    def _transact(self, batch: list[_Job]) -> None:
        try:
            self._begin()
            for job in batch:
                self._attempt(job)
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            for job in batch:
                job.error = job.error or self._seen(error)

    def _begin(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        pause = 0.0005
        if self._connection.in_transaction:  # left by one who was interrupted twice
            self._connection.execute("ROLLBACK")
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if code_of(error) not in BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _attempt(self, job: _Job) -> None:
        self._connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(self._connection)
        except BaseException as error:
            if not self._connection.in_transaction:  # SQLite undid all of it, as it does when the disk is full
                raise
            job.error = self._seen(error)
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _seen(self, error: BaseException) -> BaseException:
        seen = translated(error, self._path)
        if seen is not error:
            seen.__cause__ = error
        return seen

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _nothing(_: sqlite3.Connection) -> None:
    """The work of a call that only wakes the thread."""
