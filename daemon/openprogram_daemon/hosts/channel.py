"""The daemon's end of a worker's control socket: JSON-RPC both ways on the event loop.

What the worker asks is answered by ``dispatch``, each message in a task of its own, started in the order of arrival. A worker that has many of them open is
not read until some are done. When the connection ends, every request that waits for the worker fails.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
from openprogram_protocol.errors import ErrorCode, WireError
from openprogram_protocol.framing import FrameReader, FramingError, frame
from openprogram_protocol.methods import METHODS
from openprogram_protocol.rpc import ErrorResponse, Id, Request, encode

from openprogram.errors import OpenProgramError
from openprogram_daemon.errors import RefusedError, to_wire
from openprogram_daemon.peer import response

logger = logging.getLogger("openprogram.daemon.hosts")

MOST_OPEN = 256


class _Incoming(msgspec.Struct, frozen=True):
    """Any message, its payload not yet decoded."""

    id: Id | msgspec.UnsetType = msgspec.UNSET
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: WireError | None = None


_incoming = msgspec.json.Decoder(_Incoming)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


class LostError(ConnectionError):
    """The worker's connection ended while it owed an answer."""


class Channel(asyncio.Protocol):
    """``dispatch(method, params)`` answers requests, ``on_notify(method, params)`` takes notifications, ``on_end()`` is told once that nothing more comes."""

    def __init__(self, dispatch: Callable[[str, Any], Awaitable[Any]], on_notify: Callable[[str, Any], None], on_end: Callable[[], None]) -> None:
        self._dispatch = dispatch
        self._on_notify = on_notify
        self._on_end = on_end
        self._reader = FrameReader()
        self._ids = itertools.count(1)
        self._waiting: dict[Id, tuple[asyncio.Future[Any], Any]] = {}
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._transport: asyncio.Transport | None = None
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(LostError("the worker is gone"))
        self._waiting.clear()
        self._on_end()

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._reader.feed(data):
                self._take(_incoming.decode(body))
        except (FramingError, msgspec.DecodeError) as error:
            logger.error("a worker sent what is no message: %s", error)
            self.close()

    def request(self, method: str, params: Any) -> asyncio.Future[Any]:
        """Ask the worker. The future fails with LostError or RefusedError."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.ended:
            future.set_exception(LostError("the worker is gone"))
            return future
        number = next(self._ids)
        self._waiting[number] = (future, METHODS[method].result)
        self._send(Request(id=number, method=method, params=params))
        return future

    def notify(self, method: str, params: Any) -> None:
        """Tell the worker; one that is gone hears nothing."""
        if not self.ended:
            self._send(Request(method=method, params=params))

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    async def settle(self) -> None:
        """Wait until all that the worker had written so far is committed. A model's stream is not waited for."""
        writing = [task for task, method in self._tasks.items() if not method.startswith("openprogram/model/")]
        if writing:
            await asyncio.wait(writing)

    def abandon(self) -> None:
        """Cancel what is still being answered."""
        for task in self._tasks:
            task.cancel()

    def _send(self, message: Any) -> None:
        self._write(encode(message))

    def _write(self, body: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(body))

    def _take(self, message: _Incoming) -> None:
        if message.method is None:
            self._replied(message)
        elif message.method.startswith("openprogram/worker/"):
            self._notified(message.method, message.params)
        else:
            if isinstance(message.id, msgspec.UnsetType):
                work = self._attend(message.method, message.params)
            else:
                work = self._answer(message.id, message.method, message.params)
            task = asyncio.get_running_loop().create_task(work)
            self._tasks[task] = message.method
            task.add_done_callback(self._answered)
            if len(self._tasks) >= MOST_OPEN and self._transport is not None:
                self._transport.pause_reading()

    def _answered(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if len(self._tasks) == MOST_OPEN - 1 and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def _answer(self, id: Id, method: str, params: msgspec.Raw) -> None:
        try:
            row = METHODS.get(method)
            if row is None:
                raise RefusedError(ErrorCode.METHOD_NOT_FOUND, f"there is no method {method!r}")
            result = await self._dispatch(method, _decoder(row.params).decode(params or b"{}"))
            self._write(response(id, result))
        except asyncio.CancelledError as error:
            self._send(ErrorResponse(id=id, error=to_wire(error)))
            raise
        except Exception as error:
            self._send(ErrorResponse(id=id, error=to_wire(error)))

    async def _attend(self, method: str, params: msgspec.Raw) -> None:
        """A notification: nobody hears of a failure."""
        try:
            await self._dispatch(method, _decoder(METHODS[method].params).decode(params or b"{}"))
        except Exception as error:
            logger.warning("a worker's notification %s failed: %s", method, error if isinstance(error, OpenProgramError) else type(error).__name__)

    def _notified(self, method: str, params: msgspec.Raw) -> None:
        row = METHODS.get(method)
        try:
            self._on_notify(method, _decoder(Any if row is None else row.params).decode(params or b"{}"))
        except Exception:
            # What one worker says wrongly must not end the loop that serves all.
            logger.exception("a worker's notification %s could not be handled", method)

    def _replied(self, message: _Incoming) -> None:
        future, kind = self._waiting.pop(message.id, (None, None)) if not isinstance(message.id, msgspec.UnsetType) else (None, None)
        if future is None or future.done():
            return
        if message.error is not None:
            future.set_exception(RefusedError(_code(message.error.code), message.error.message))
            return
        try:
            future.set_result(_decoder(kind).decode(message.result or b"null"))
        except msgspec.DecodeError as error:
            future.set_exception(error)


def _code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.INTERNAL
