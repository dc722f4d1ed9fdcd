"""What all connections share, and the two ways to the store: writes in the order in which they were handed over, reads beside them.

Nothing here waits on the loop: the store writes in a thread of its own, in the order in which it was asked, and reads in others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from openprogram_protocol import admin, dag
from openprogram_protocol.functions import FunctionInfo

from openprogram import wire
from openprogram.context.call import Call, Close
from openprogram.store.sqlite import SqliteStore
from openprogram.store.writer import Work
from openprogram_daemon.events import Events, Key
from openprogram_daemon.models import Models
from openprogram_daemon.outbox import Limits
from openprogram_daemon.peer import Peer, outcome
from openprogram_daemon.runs import Runs
from openprogram_daemon.views import Views
from openprogram_daemon.workspaces import Workspaces

if TYPE_CHECKING:
    from openprogram_daemon.session import Session

T = TypeVar("T")
logger = logging.getLogger("openprogram.daemon")

# A node larger than this is announced without what is large in it; whoever wants it asks for it.
MOST_EVENT_BYTES = 64 * 1024
_READERS = 8


class Core:
    """One life of the daemon."""

    def __init__(self, store: SqliteStore, *, limits: Limits | None = None, fingerprint: str = "") -> None:
        self.store = store
        self.limits = limits or Limits()
        self.fingerprint = fingerprint
        self.epoch = os.urandom(8).hex()
        self.started_at = time.time()
        self.socket = ""
        self.events = Events(self.epoch)
        self.models = Models()
        self.views = Views(store)
        self.workspaces = Workspaces()
        self.runs = Runs(self)
        self.sessions: set[Session] = set()
        self.stopping = asyncio.Event()
        self.on_idle_change: Callable[[], None] = lambda: None
        self.drain: admin.StopParams | None = None
        self._later: set[asyncio.Task[Any]] = set()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="openprogram-reads")

    async def write(self, work: Work[T], peer: Peer | None = None) -> T:
        """Do ``work`` in a transaction, behind all that was handed over before. It is done even when nobody waits any more."""
        write = self.store.submit(work)
        if peer is not None:
            peer.wrote(write)
        return await outcome(write)

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.ensure_future(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def read(self, work: Callable[[], T], peer: Peer | None = None) -> T:
        """Do ``work`` in a thread; with a peer, behind what that peer wrote."""
        write = None if peer is None else peer.last_write
        return await outcome(self._readers.submit(work) if write is None else _behind(write, self._readers, work))

    async def abandoned(self, peer: Peer) -> None:
        """Close the calls that a peer left open when it went away."""
        opened, peer.opened = peer.opened, set()

        def work(connection: sqlite3.Connection) -> list[Callable[[], Call]]:
            now = time.time()
            return [self.store.finishing(Close(id=node, status="interrupted", ended_at=now))(connection) for node in opened]

        for node in await self.write(work) if opened else ():
            self.node_changed(node)

    def node_changed(self, node: Callable[[], Call]) -> None:
        """Tell whoever listens that a node was opened or closed; it is committed. ``node`` reads it when somebody does listen."""
        if self.events.wanted("dag"):
            shown = _shown(wire.node_of(node()))
            self.events.publish(Key("dag", shown.session), lambda seq: admin.DagEvent(seq=seq, session=shown.session, node=shown))

    def functions_changed(self, workspace: str, event: admin.FunctionsEvent) -> None:
        """Tell whoever listens what a file of a workspace holds now."""
        functions: list[FunctionInfo] = event.functions
        if self.events.wanted("functions"):
            self.events.publish(
                Key("functions", workspace),
                lambda seq: admin.FunctionsEvent(seq=seq, workspace=workspace, file=event.file, functions=functions, error=event.error),
            )

    def status_changed(self, kind: str, message: str = "") -> None:
        """Tell whoever listens that health is worth another look."""
        self.events.publish(Key("status", ""), lambda seq: admin.StatusEvent(seq=seq, kind=kind, message=message))

    def stop(self, params: admin.StopParams) -> None:
        """Begin to stop; the first call counts."""
        if not self.stopping.is_set():
            self.drain = params
            self.stopping.set()
            self.status_changed("stopping", "runs that are active may end" if params.drain else "runs that are active are interrupted")

    async def aclose(self) -> None:
        """Close what was opened; the store last."""
        if self._later:
            await asyncio.wait(self._later)
        await self.models.aclose()
        self._readers.shutdown(wait=False)
        await asyncio.to_thread(self.store.close)


def _behind(write: Future[Any], readers: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
    """``work`` handed to the readers by the thread that ends ``write``: it waits in no thread, and the loop need not wake in between."""
    result: Future[T] = Future()

    def read() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    def begin(_: Future[Any]) -> None:
        try:
            readers.submit(read)
        except RuntimeError as error:  # the daemon is ending
            result.set_exception(error)

    write.add_done_callback(begin)
    return result


def _shown(node: dag.Node) -> dag.Node:
    large = {name: None for name in ("input", "output", "exchanges") if len(bytes(getattr(node, name))) > MOST_EVENT_BYTES}
    return msgspec.structs.replace(node, **large) if large else node
