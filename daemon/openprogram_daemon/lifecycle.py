"""From the lock to the last commit: one daemon of a home, for as long as it is needed.

The lock is held for the daemon's whole life and ends with its process, so a socket or a status file that is there without it is stale and replaced. Without
clients and runs the daemon ends after a while (`IDLE_S`, or ``OPENPROGRAM_IDLE_S``; 0: never). SIGTERM gives active runs a moment to end, a second one none.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import math
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
from openprogram_clients import places
from openprogram_clients.errors import DaemonError
from openprogram_clients.fingerprint import fingerprint
from openprogram_protocol import paths
from openprogram_protocol.admin import StopParams
from openprogram_protocol.rpc import PROTOCOL

from openprogram.store.sqlite import SqliteStore
from openprogram_daemon import setup
from openprogram_daemon.core import Core
from openprogram_daemon.hosts.pool import Hosts
from openprogram_daemon.listener import Listener, bound
from openprogram_daemon.versions import version

logger = logging.getLogger("openprogram.daemon")

IDLE_S = 600.0
DRAIN_S = 10.0
LOCK_S = 5.0
_WARM_AFTER_S = 1.0
_SEND_S = 2.0


def idle_seconds() -> float:
    """How long a daemon without work stays; 0 for ever. Raises DaemonError for a setting that is no number."""
    text = os.environ.get("OPENPROGRAM_IDLE_S") or str(IDLE_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise DaemonError(f"OPENPROGRAM_IDLE_S={text!r} is no number of seconds; write one, or 0 for a daemon that never ends by itself")
    return seconds


def serve() -> None:
    """Be the daemon of this home until it is no longer needed. Raises DaemonError when there is one already."""
    idle_s = idle_seconds()
    places.make_home()
    with places.locked(places.daemon_lock(), timeout_s=LOCK_S), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_live(idle_s))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop, which takes a fifth off every run and every exec, where it can be installed; else asyncio's own loop."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


async def _live(idle_s: float) -> None:
    core = Core(await asyncio.to_thread(SqliteStore, paths.store_file()), fingerprint=fingerprint())
    life = Life(core, idle_s)
    try:
        await life.begin()
        await core.stopping.wait()
    finally:
        await life.end()


class Life:
    """The daemon from its first accept to its end."""

    def __init__(self, core: Core, idle_s: float) -> None:
        self._core = core
        self._idle_s = idle_s
        self._idle: asyncio.TimerHandle | None = None
        self._path: Path | None = None
        self._warmed = False
        self._loop = asyncio.get_running_loop()
        self._listener = Listener(core, setup.HANDLERS, self._changed)
        core.on_idle_change = self._changed

    async def begin(self) -> None:
        """Listen, and say where."""
        core = self._core
        await core.runs.mark_interrupted()
        core.runs.hosts = Hosts(socket_dispatch=setup.Workers(core).dispatch, on_output=core.runs.on_output, on_functions=core.functions_changed)
        self._path = places.socket_path()
        core.socket = str(self._path)
        await self._listener.open(bound(self._path))
        places.write_status(self._status())
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._told_to_stop)
        logger.info("listening at %s, pid %d, protocol %d, version %s, epoch %s", self._path, os.getpid(), PROTOCOL, version(), core.epoch)
        self._changed()

    def _status(self) -> places.DaemonStatus:
        pid = os.getpid()
        return places.DaemonStatus(
            pid=pid,
            start_time=places.process_start(pid),
            protocol=PROTOCOL,
            version=version(),
            fingerprint=self._core.fingerprint,
            socket=self._core.socket,
            epoch=self._core.epoch,
        )

    def _told_to_stop(self) -> None:
        if self._core.stopping.is_set():
            os._exit(1)
        self._core.stop(StopParams(drain=True, timeout_s=DRAIN_S))

    def _changed(self) -> None:
        """A session or a run began or ended."""
        core = self._core
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if core.sessions and not self._warmed:
            self._warmed = True
            self._loop.call_later(_WARM_AFTER_S, _in_background, _warm)
        if self._idle_s > 0 and not core.sessions and not core.runs.active():
            self._idle = self._loop.call_later(self._idle_s, self._idle_for_long)

    def _idle_for_long(self) -> None:
        logger.info("nothing to do for %g s", self._idle_s)
        self._core.stop(StopParams())

    async def end(self) -> None:
        """Let runs end if that was asked for, end those that are left, and close everything."""
        core = self._core
        params = core.drain or StopParams()
        logger.info("stopping")
        with contextlib.suppress(OSError):  # the home may be gone
            places.write_status(msgspec.structs.replace(self._status(), stopping=True))
        if params.drain:
            await core.runs.drain(params.timeout_s)
        if core.runs.hosts is not None:
            await core.runs.hosts.close()
        await core.runs.settle()
        await self._listener.close(timeout_s=_SEND_S)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            places.remove_status(core.epoch)
        await core.aclose()
        logger.info("stopped")


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="openprogram-warm", daemon=True).start()


def _warm() -> None:
    """Import what may be needed later, so that nobody waits for it then."""
    from openprogram_daemon import lsp

    importlib.import_module("openprogram.providers.openai_chat")
    lsp.warm()
