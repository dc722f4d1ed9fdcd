"""Accepts connections of our own user, each with a session of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

from openprogram_clients.places import peer_uid

from openprogram_daemon.core import Core
from openprogram_daemon.session import Handler, Session

logger = logging.getLogger("openprogram.daemon")

_BACKLOG = 128


def bound(path: Path) -> socket.socket:
    """A socket that listens at ``path``; whatever was there is replaced, so the daemon's lock must be held."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(os.fspath(path))
        path.chmod(0o600)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


class Listener:
    """Serves until `close`. ``on_change`` is called whenever a session begins or ends."""

    def __init__(self, core: Core, handlers: dict[str, Handler], on_change: Callable[[], None]) -> None:
        self._core = core
        self._handlers = handlers
        self._on_change = on_change
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self, sock: socket.socket) -> None:
        """Begin to accept."""
        self._server = await asyncio.start_unix_server(self._connected, sock=sock)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = _uid(writer)
        if uid != os.getuid():
            logger.warning("a connection of user %s was refused", uid)
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(Session(self._core, self._handlers, reader, writer)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, session: Session) -> None:
        self._core.sessions.add(session)
        self._on_change()
        try:
            await session.run()
        except Exception:
            logger.exception("session %d failed", session.number)
        finally:
            self._core.sessions.discard(session)
            if session.is_open:
                self._core.status_changed("clients")
            self._on_change()

    async def close(self, *, timeout_s: float) -> None:
        """Accept no more; let each session send what waits."""
        if self._server is not None:
            self._server.close()
        for session in list(self._core.sessions):
            session.finish()
        if self._serving:
            _, late = await asyncio.wait(self._serving, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


def _uid(writer: asyncio.StreamWriter) -> int | None:
    with contextlib.suppress(OSError):
        connected: socket.socket = writer.get_extra_info("socket")
        # asyncio hands out a wrapper without getsockopt's bytes form on some versions; the descriptor is the same.
        with socket.socket(fileno=os.dup(connected.fileno())) as duplicate:
            return peer_uid(duplicate)
    return None
