"""The one thread of a process that writes to a store: group commit without a timer.

A caller hands over its work and sleeps until the transaction that holds it is committed. Whatever else was handed over while the last transaction was being
committed goes into the next one together, each piece behind a savepoint of its own, so that one that fails takes no other with it. Interrupting a caller
never interrupts a commit.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar, cast

from openprogram.store.files import translated

logger = logging.getLogger("openprogram.store")

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_LARGEST_BATCH = 256


class EngineGone(Exception):
    """The connections were closed (by `close`, or for a fork) before this call reached them; nothing was done."""


class _Job:
    __slots__ = ("done", "error", "future", "result", "work")

    def __init__(self, work: Work[Any], *, waited_for: bool = False, future: Future[Any] | None = None) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.future = future
        self.done: threading.Lock | None = None
        if waited_for:
            self.done = threading.Lock()
            self.done.acquire()

    def end(self) -> None:
        if self.done is not None:
            self.done.release()
        elif self.future is not None and self.future.set_running_or_notify_cancel():
            if self.error is not None:
                self.future.set_exception(self.error)
            else:
                self.future.set_result(self.result)


class Writer:
    """Owns ``connection`` from now on."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def run(self, work: Work[T]) -> T:
        """Do ``work`` inside a transaction and return its result once that is committed. Raises what it raised, StoreError, or EngineGone."""
        job = _Job(work, waited_for=True)
        self._put(job)
        assert job.done is not None
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    def post(self, work: Work[Any]) -> None:
        """Do ``work`` at some time soon; a failure is logged, since nobody waits for it."""
        self._put(_Job(work))

    def submit(self, work: Work[T]) -> Future[T]:
        """Do ``work`` as `run` does, for whoever must not sleep; pieces are done in the order in which they were handed over. Cancelling only stops waiting."""
        future: Future[T] = Future()
        self._put(_Job(work, future=future))
        return future

    def _put(self, job: _Job) -> None:
        with self._door:
            if self._stopped:
                raise EngineGone
            self._queue.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="openprogram-store", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Commit what was handed over, then end the thread and close the connection."""
        with self._door:
            if self._stopped:
                return
            self._stopped = True
            self._queue.put(None)
            thread = self._thread
        if thread is None:
            self._connection.close()
        elif thread is not threading.current_thread():  # the garbage collector may come by in any thread
            thread.join()

    def _loop(self) -> None:
        while self._round():
            pass
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _round(self) -> bool:
        """One transaction; False when there will be no other. Nothing of it is kept: the work holds the caller's store and values."""
        job = self._queue.get()
        if job is None:
            return False
        batch = [job]
        goes_on = self._fill(batch)
        self._commit(batch)
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

    def _commit(self, batch: list[_Job]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._attempt(job)
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            for job in batch:
                job.error = job.error or self._seen(error)
        for job in batch:
            if job.done is None and job.future is None and job.error is not None:
                logger.warning("the store %s could not be tidied: %s", self._path, job.error)
            job.end()

    def _attempt(self, job: _Job) -> None:
        self._connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(self._connection)
        except BaseException as error:
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
