"""The connections of one process to one store file.

No connection, lock or thread lives through a fork: SQLite's bookkeeping in the child would claim locks that the child does not hold, and its journal could
be deleted under it. So everything is closed before the fork, and opened again on either side when it is next used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from openprogram.errors import StoreClosedError, StoreError
from openprogram.store import files, index, migrations, owners
from openprogram.store.writer import EngineGone, Work, Writer

logger = logging.getLogger("openprogram.store")

T = TypeVar("T")

_KEPT_READERS = 8


class Options:
    """How a store is opened."""

    def __init__(self, path: Path, *, read_only: bool, timeout_s: float, vfs: str | None, search_index: bool) -> None:
        self.path = path
        self.search_index = search_index
        self.read_only = read_only
        self.timeout_s = timeout_s
        self.vfs = vfs

    def connect(self) -> sqlite3.Connection:
        """A connection that any one thread at a time may use."""
        if not self.read_only:
            return self._connect("mode=rw")
        try:
            return self._connect("mode=ro")
        except sqlite3.Error as error:
            # A file with a journal cannot be read without it, and in a folder that may not be written none can be made; a file without one is whole.
            if files.code_of(error) in files.BUSY or self.path.with_name(self.path.name + "-wal").exists():
                raise
            return self._connect("mode=ro&immutable=1")

    def _connect(self, mode: str) -> sqlite3.Connection:
        vfs = f"&vfs={quote(self.vfs)}" if self.vfs else ""
        uri = f"file:{quote(os.fsencode(self.path))}?{mode}{vfs}"
        connection = sqlite3.connect(uri, uri=True, timeout=self.timeout_s, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA user_version").fetchone()
            connection.execute(f"PRAGMA query_only = {int(self.read_only)}")
        except BaseException:
            connection.close()
            raise
        return connection


class Engine:
    """Open connections: one that writes, in its thread, and as many that read as threads read at once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._changed = threading.Condition()
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._gone = False
        self._wal = False
        self._lock = files.OpenersLock(options.path)
        self._writer = None if options.read_only else self._open_for_writing()
        if options.read_only:
            with files.errors(options.path):
                self._check_readable()

    def _check_readable(self) -> None:
        with contextlib.closing(self._options.connect()) as connection:
            if migrations.version_of(connection, self._options.path) != len(migrations.MIGRATIONS):
                raise StoreError(f"the store {self._options.path} is empty or of an older version and may only be read; open it once where it may be written")

    def _open_for_writing(self) -> Writer:
        options = self._options
        files.create(options.path)
        try:
            with files.errors(options.path):
                connection = self._patiently(self._prepared)
        except BaseException:
            self._lock.release()
            raise
        return Writer(connection, options.path, timeout_s=options.timeout_s if self._wal else 0, idle=self._next_piece)

    def _next_piece(self) -> Work[bool] | None:
        """Of the full-text index."""
        return index.prepare(self.read) if self._options.search_index else None

    def _prepared(self) -> sqlite3.Connection:
        options = self._options
        connection = options.connect()
        try:
            # First a look, so that nothing is written to a file that is not ours or is newer.
            migrations.version_of(connection, options.path)
            self._lock.release()
            self._lock.share(options.timeout_s)
            # What is deleted is overwritten, also where SQLite does not do so by itself.
            connection.execute("PRAGMA secure_delete = ON")
            # Kept by a new file only: what is deleted can then be given back in small steps.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._use_journal(connection)
            migrations.upgrade(connection, options.path, self._lock, timeout_s=options.timeout_s)
            mark_interrupted(connection)
            if self._wal:  # only the beginning of a transaction has to wait, and the writer does that
                connection.execute("PRAGMA busy_timeout = 0")
        except BaseException:
            connection.close()
            raise
        return connection

    def _patiently(self, step: Callable[[], T]) -> T:
        """Some locks of SQLite (the switch to WAL, recovery) do not wait for the busy timeout."""
        deadline = time.monotonic() + self._options.timeout_s
        while True:
            try:
                return step()
            except sqlite3.OperationalError as error:
                if files.code_of(error) not in files.BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _use_journal(self, connection: sqlite3.Connection) -> None:
        mode = ""
        try:
            mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
            if mode != "wal":
                mode = str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if files.code_of(error) in files.BUSY:
                raise
            mode = str(error)
        self._wal = mode == "wal"
        if self._wal:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA journal_size_limit = 16777216")
            return
        # Without WAL only FULL keeps the file whole when the power fails.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = FULL")
        logger.warning(
            "the file system of %s does not allow a write-ahead log (%s): the store is slower there; OPENPROGRAM_HOME can name a local folder",
            self._options.path,
            mode,
        )

    def write(self, work: Work[T]) -> T:
        """See `Writer.run`; raises StoreError where the file may only be read."""
        return self._writing().run(work)

    def submit(self, work: Work[T]) -> Future[T]:
        """See `Writer.submit`; raises StoreError where the file may only be read."""
        return self._writing().submit(work)

    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"the store {self._options.path} may only be read; check the permissions of the file and its folder")
        return self._writer

    def post(self, work: Work[object]) -> None:
        """See `Writer.post`; nothing happens where the file may only be read."""
        if self._writer is not None:
            self._writer.post(work)

    def read(self, work: Work[T]) -> T:
        """Do ``work`` on a connection of its own. Raises EngineGone."""
        connection = self._borrow()
        try:
            with files.errors(self._options.path):
                if connection is None:
                    connection = self._options.connect()
                return work(connection)
        finally:
            self._give_back(connection)

    def _borrow(self) -> sqlite3.Connection | None:
        with self._changed:
            if self._gone:
                raise EngineGone
            self._lent += 1
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: sqlite3.Connection | None) -> None:
        with self._changed:
            self._lent -= 1
            if connection is not None:
                if self._gone or len(self._idle) >= _KEPT_READERS:
                    connection.close()
                else:
                    self._idle.append(connection)
            self._changed.notify_all()

    def shut(self) -> None:
        """Commit what was handed over, let readers finish, close everything."""
        if self._writer is not None:
            self._writer.stop()
        with self._changed:
            self._gone = True
            # A thread that was interrupted between borrowing and reading never gives back.
            self._changed.wait_for(lambda: self._lent == 0, timeout=self._options.timeout_s)
            while self._idle:
                self._idle.pop().close()
        self._lock.release()


def mark_interrupted(connection: sqlite3.Connection) -> None:
    """Close the running nodes of processes that are dead."""
    running = connection.execute("SELECT DISTINCT owner FROM nodes WHERE status = 'running' AND owner IS NOT NULL").fetchall()
    for (owner,) in running:
        if owners.is_dead(owner):
            connection.execute("UPDATE nodes SET status = 'interrupted' WHERE owner = ? AND status = 'running'", (owner,))


class Access:
    """The way to an engine: opens one when it is needed, closes it for good or for a fork."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self.closed = False

    def engine(self) -> Engine:
        """The open engine. Raises StoreClosedError after `close`, StoreError when the file cannot be opened."""
        engine = self._engine
        if engine is not None:
            return engine
        with self._lock:
            if self.closed:
                raise StoreClosedError(f"the store {self._options.path} was closed; open it again")
            if self._engine is None:
                self._engine = Engine(self._options)
            return self._engine

    def write(self, work: Work[T]) -> T:
        """Do ``work`` in a transaction; returns when it is committed."""
        while True:
            try:
                return self.engine().write(work)
            except EngineGone:  # closed for a fork before this call reached it
                continue

    def submit(self, work: Work[T]) -> Future[T]:
        """Do ``work`` in a transaction; the future is done when it is committed, or has the error."""
        while True:
            try:
                return self.engine().submit(work)
            except EngineGone:
                continue

    def read(self, work: Work[T]) -> T:
        """Do ``work`` on a reading connection."""
        while True:
            try:
                return self.engine().read(work)
            except EngineGone:
                continue

    def post(self, work: Work[object]) -> None:
        """Do ``work`` soon, if the store is still open then."""
        with contextlib.suppress(EngineGone, StoreClosedError):
            self.engine().post(work)

    def close(self) -> None:
        """Close for good; may be called twice."""
        with self._lock:
            self.closed = True
            self._shut()

    def _shut(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shut()

    def before_fork(self) -> None:
        """Close everything and keep it closed until `after_fork`."""
        self._lock.acquire()
        self._shut()

    def after_fork(self) -> None:
        """Allow opening again."""
        self._lock.release()
