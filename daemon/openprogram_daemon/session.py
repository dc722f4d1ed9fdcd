"""One connection: what it sends is read, answered in its turn, and nothing that it does reaches another one.

Every request gets exactly one reply, whatever happens to it. Requests of ours are decoded by `METHODS` and handled as tasks that start in the order in which
they came; everything else is LSP and goes to this connection's own language server. The end of a connection ends its session and nothing else: runs go on.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from openprogram_protocol import rpc
from openprogram_protocol.errors import ErrorCode, WireError
from openprogram_protocol.framing import FrameReader, FramingError
from openprogram_protocol.methods import METHODS

from openprogram.errors import OpenProgramError
from openprogram_daemon.core import Core
from openprogram_daemon.errors import RefusedError, to_wire
from openprogram_daemon.lsp import LanguageSide, introduced
from openprogram_daemon.outbox import Gap, Outbox, StuckError, Text
from openprogram_daemon.peer import Peer, notification, params_of, response

logger = logging.getLogger("openprogram.daemon")

Handler = Callable[[Core, Peer, Any], Awaitable[Any]]

_CHUNK = 256 * 1024
# Decoding more than this would be felt by the other connections.
_LARGE = 1024 * 1024
# One-way messages that are being carried out before no more are read, and requests whose answers are being made, which may be large.
_MOST_UNTOLD = 256
_MOST_QUERIES = 32
# Those that wait for something hold nothing meanwhile.
_WAITING = frozenset({"openprogram/run", "openprogram/result", "openprogram/cancel", "openprogram/arguments", "openprogram/model/stream"})
_GATE = frozenset({"openprogram/connect", "initialize"})
# How long the last messages may take to be taken.
_LAST_S = 1.0
_ids = itertools.count(1)


class Message(msgspec.Struct, frozen=True):
    """Any message; what belongs to its method is decoded later."""

    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw()


class CancelParams(msgspec.Struct):
    """Of ``$/cancelRequest``."""

    id: int | str


_decode = msgspec.json.Decoder(Message).decode
_decode_id = msgspec.json.Decoder(rpc.Id, strict=True).decode
_decode_cancel = msgspec.json.Decoder(CancelParams).decode


class Session(Peer):
    """A client's connection; `run` serves it until its end."""

    def __init__(self, core: Core, handlers: dict[str, Handler], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self.number = next(_ids)
        self.about: dict[str, Any] = {"session": self.number}
        self.core = core
        self.is_open = False
        self._handlers = handlers
        self._reader = reader
        self._writer = writer
        self._out = Outbox(writer, core.limits)
        self._tasks: dict[rpc.Id, asyncio.Task[None]] = {}
        self._untold: set[asyncio.Task[None]] = set()
        self._queries: set[asyncio.Task[None]] = set()
        self._replying = asyncio.Lock()
        self._lsp: LanguageSide | None = None
        self._ended = False

    # What handlers and events use.

    def notify(self, method: str, params: Any) -> None:
        if not self._ended:
            self._out.put(notification(method, params))

    async def room(self) -> None:
        await self._out.room()

    def event(self, body: bytes, gap: Gap) -> None:
        """Send an event."""
        if not self._ended:
            self._out.put_event(body, gap)

    def text(self, text: Text, gap: Gap) -> None:
        """Send a piece of a run's text."""
        if not self._ended:
            self._out.put_text(text, gap)

    def finish(self) -> None:
        """Send what waits, then end."""
        self._out.finish()

    def passed_gate(self) -> None:
        """The other side has introduced itself."""
        if not self.is_open:
            self.is_open = True
            self.core.status_changed("clients")

    # The connection.

    async def run(self) -> None:
        """Serve the connection until either side ends it."""
        sending = asyncio.ensure_future(self._out.run())
        reading = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not sending.done():
                self._out.finish()
                await asyncio.wait({sending}, timeout=_LAST_S)
            elif _is_gone(sending.exception()):
                # The client is gone and takes no reply; what it had sent by then is read to its end.
                self._ended = True
                self._out.drop()
                await asyncio.wait({reading}, timeout=self.core.limits.stuck_s)
        finally:
            self._ended = True
            for task in (sending, reading):
                _note(task, self.number)
                task.cancel()
            await self._leave()

    async def _leave(self) -> None:
        self.core.events.leave(self)
        self.stop_streams()
        for task in self._tasks.values():
            task.cancel()
        # What was sent one-way is carried out: nobody could ask again.
        if tasks := [*self._tasks.values(), *self._untold]:
            await asyncio.wait(tasks)
        if self._lsp is not None:
            self._lsp.close()
        _close(self._writer)
        await self.core.abandoned(self)

    async def _read(self) -> None:
        frames = FrameReader()
        while data := await self._reader.read(_CHUNK):
            try:
                for body in frames.feed(data):
                    if not await self._take(body):
                        return
                    for open_ones, most in ((self._untold, _MOST_UNTOLD), (self._queries, _MOST_QUERIES)):
                        while len(open_ones) >= most:
                            await asyncio.wait(open_ones, return_when=asyncio.FIRST_COMPLETED)
                    await self._out.room()
            except FramingError as error:
                if not error.silent:
                    self._refuse(None, WireError(code=ErrorCode.INVALID_REQUEST, message=str(error)))
                return

    async def _take(self, body: bytes) -> bool:
        """One message; False when it was the last."""
        try:
            message = _decode(body) if len(body) < _LARGE else await asyncio.to_thread(_decode, body)
            request_id = msgspec.UNSET if isinstance(message.id, msgspec.UnsetType) else _decode_id(message.id)
        except msgspec.ValidationError as error:
            self._refuse(None, _invalid(body, error))
            return True
        except (msgspec.DecodeError, RecursionError) as error:
            self._refuse(None, WireError(code=ErrorCode.PARSE, message=f"this is no JSON that can be read: {error}"))
            return True
        if isinstance(message.method, msgspec.UnsetType):
            self._answered(request_id, body)
        elif message.method == "exit":
            return False
        elif isinstance(request_id, msgspec.UnsetType):
            self._notified(message.method, message.params, body, await _early(message.method, message.params))
        else:
            self._requested(request_id, message.method, message.params, body, await _early(message.method, message.params))
        return True

    def _requested(self, request_id: rpc.Id, method: str, params: msgspec.Raw, body: bytes, early: Any) -> None:
        problem = self._problem(request_id, method, params)
        if problem is not None:
            self._refuse(request_id, to_wire(problem))
        elif method.startswith("openprogram/"):
            task = asyncio.ensure_future(self._handle(request_id, method, bytes(params) if early is None else early))
            self._tasks[request_id] = task
            task.add_done_callback(lambda done: self._requested_ended(request_id, done))
            if method not in _WAITING:
                self._queries.add(task)
                task.add_done_callback(self._queries.discard)
        else:
            self.passed_gate()
            self._language().request(request_id, method, body)

    def _requested_ended(self, request_id: rpc.Id, task: asyncio.Future[None]) -> None:
        self._tasks.pop(request_id, None)
        if task.cancelled():  # perhaps before its first step, so that nothing in it can answer
            self._refuse(request_id, to_wire(asyncio.CancelledError()))

    def _problem(self, request_id: rpc.Id, method: str, params: msgspec.Raw) -> RefusedError | None:
        if request_id is None:
            return RefusedError(ErrorCode.INVALID_REQUEST, "a request's id must not be null")
        if request_id in self._tasks or (self._lsp is not None and self._lsp.waits(request_id)):
            return RefusedError(ErrorCode.INVALID_REQUEST, f"the id {request_id!r} belongs to a request that has not been answered yet")
        if not self.is_open and method not in _GATE:
            return RefusedError(ErrorCode.NOT_CONNECTED, f"{method} came before openprogram/connect or initialize")
        if method == "initialize":
            try:
                self.about |= introduced(bytes(params), self.core)
            except RefusedError as error:
                return error
        row = METHODS.get(method)
        if method.startswith("openprogram/") and (row is None or row.direction != "C→D" or method not in self._handlers):
            return RefusedError(ErrorCode.METHOD_NOT_FOUND, f"there is no method {method}")
        return None

    def _notified(self, method: str, params: msgspec.Raw, body: bytes, early: Any) -> None:
        if method == "$/cancelRequest":
            self._cancel(params, body)
        elif not self.is_open:
            return
        elif method in self._handlers:
            task = asyncio.ensure_future(self._attend(method, bytes(params) if early is None else early))
            self._untold.add(task)
            task.add_done_callback(self._untold.discard)
        elif not method.startswith("openprogram/") and self._lsp is not None:
            self._lsp.notify(method, body)

    def _cancel(self, params: msgspec.Raw, body: bytes) -> None:
        try:
            request_id = _decode_cancel(params).id
        except msgspec.DecodeError:
            return
        if (task := self._tasks.get(request_id)) is not None:
            task.cancel()
        elif self._lsp is not None and self._lsp.waits(request_id):
            self._lsp.notify("$/cancelRequest", body)

    def _answered(self, request_id: rpc.Id | msgspec.UnsetType, body: bytes) -> None:
        """A reply to a request of ours: only the language server makes some. One with an unknown id is dropped."""
        if isinstance(request_id, msgspec.UnsetType):
            self._refuse(None, WireError(code=ErrorCode.INVALID_REQUEST, message="a message needs a method, or an id and a result"))
        elif self._lsp is not None:
            self._lsp.answered(request_id, body)

    # Requests of ours.

    async def _handle(self, request_id: rpc.Id, method: str, params: Any) -> None:
        try:
            result = await self._call(method, params)
            await self.committed()
            if self._out.has_room:
                self._reply(request_id, result)
            else:
                async with self._replying:
                    await self._out.room()
                    self._reply(request_id, result)
        except Exception as error:
            reply = to_wire(error)
            if reply.code == ErrorCode.INTERNAL:
                logger.exception("%s failed", method)
            await self.committed()
            self._refuse(request_id, reply)

    async def _attend(self, method: str, params: Any) -> None:
        """A notification: nobody hears of a failure."""
        try:
            await self._call(method, params)
        except Exception as error:
            logger.warning("the notification %s failed: %s", method, error if isinstance(error, OpenProgramError) else type(error).__name__)

    async def _call(self, method: str, params: Any) -> Any:
        if isinstance(params, Exception):
            raise params
        if isinstance(params, bytes):
            params = params_of(method, params)
        return await self._handlers[method](self.core, self, params)

    def _reply(self, request_id: rpc.Id, result: Any) -> None:
        if not self._ended:
            self._out.put(response(request_id, result))

    def _refuse(self, request_id: rpc.Id, error: WireError) -> None:
        if not self._ended:
            self._out.put(rpc.encode(rpc.ErrorResponse(id=request_id, error=error)))

    def _language(self) -> LanguageSide:
        if self._lsp is None:
            self._lsp = LanguageSide(self._out.put, self._refuse, self.core)
        return self._lsp


async def _early(method: str, raw: msgspec.Raw) -> Any:
    """Large params decoded in a thread (or why they do not fit), None for small ones. The reading waits for it: what comes behind is taken behind."""
    if len(bytes(raw)) < _LARGE or method not in METHODS:
        return None
    try:
        return await asyncio.to_thread(params_of, method, raw)
    except msgspec.DecodeError as error:
        return error


def _invalid(body: bytes, error: msgspec.ValidationError) -> WireError:
    if body.lstrip().startswith(b"["):
        return WireError(code=ErrorCode.INVALID_REQUEST, message="batches are not supported; send each message by itself")
    return WireError(code=ErrorCode.INVALID_REQUEST, message=f"this is no message of JSON-RPC: {error}")


def _is_gone(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and not isinstance(error, StuckError)


def _note(task: asyncio.Future[None], number: int) -> None:
    """Why a connection ended, where that is worth a line."""
    if not task.done() or task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, OSError):
        logger.info("session %d ended: %s", number, error)
    else:
        logger.error("session %d failed", number, exc_info=error)


def _close(writer: asyncio.StreamWriter) -> None:
    """What was written goes out first, if the other side takes it soon."""
    writer.close()
    asyncio.get_running_loop().call_later(_LAST_S, writer.transport.abort)
