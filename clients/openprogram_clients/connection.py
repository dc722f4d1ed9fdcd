"""JSON-RPC over one socket, both ways, for threads: requests become futures, notifications go to handlers in the order in which they were sent.

One thread reads. What arrives is decoded to the types of `METHODS`. Whatever ends the connection fails every request that waits, at once, with
`ConnectionLost`: nothing waits for ever. Any thread may send; a message is written whole, so that messages never mix.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
from openprogram_protocol import rpc
from openprogram_protocol.errors import ErrorCode, WireError
from openprogram_protocol.framing import MAX_BODY, FrameReader, FramingError, frame
from openprogram_protocol.methods import METHODS

from openprogram_clients.errors import ConnectionLost, RemoteError

__all__ = ["Connection", "ConnectionLost", "RemoteError"]

CHUNK = 256 * 1024
CLOSED = "this connection was closed"
FORKED = "a connection cannot be used in a forked process; connect again in it"

_log = logging.getLogger("openprogram.clients")


class _Incoming(msgspec.Struct):
    """Any message, its payload not yet decoded."""

    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: WireError | None = None


_incoming = msgspec.json.Decoder(_Incoming)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


class Connection:
    """A connected socket that it owns from now on.

    ``on_request(method, params)`` answers the other side's requests, each in a thread of its own: what it returns is the result, a `RemoteError` that it
    raises the error. ``on_notify(method, params)`` receives notifications in the reading thread and must not wait; handlers added with `on` go before it.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_request: Callable[[str, Any], Any] | None = None,
        on_notify: Callable[[str, Any], None] | None = None,
        max_body: int = MAX_BODY,
    ) -> None:
        self._socket = sock
        self._on_request = on_request
        self._on_notify = on_notify
        self._handlers: dict[str, list[Callable[[Any], None]]] = {}
        self._at_end: list[Callable[[ConnectionLost], None]] = []
        self._ids = itertools.count(1)
        self._pending: dict[int | str, tuple[Future[Any], Any]] = {}
        self._state = threading.Lock()
        self._sending = threading.Lock()
        self._handing = threading.Lock()
        self._unsent: deque[memoryview] = deque()
        self._lost: ConnectionLost | None = None
        self._max_body = max_body
        self._pid = os.getpid()
        sock.settimeout(None)
        self._reader = threading.Thread(target=self._read, name="openprogram-connection", daemon=True)
        self._reader.start()

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent: not after the end of the connection, nor in a forked process, which has no thread that reads."""
        return self._lost is None and self.is_ours

    @property
    def is_ours(self) -> bool:
        """Whether this process made it: a forked one has no thread that reads."""
        return self._pid == os.getpid()

    def on(self, method: str, handler: Callable[[Any], None]) -> Callable[[], None]:
        """Call ``handler(params)`` in the reading thread for each such notification; it must not wait. What is returned undoes this."""
        with self._state:
            self._handlers[method] = [*self._handlers.get(method, ()), handler]

        def undo() -> None:
            with self._state:
                self._handlers[method] = [kept for kept in self._handlers[method] if kept != handler]

        return undo

    def at_end(self, callback: Callable[[ConnectionLost], None]) -> Callable[[], None]:
        """Call ``callback(why)`` once when the connection ends, at once if it has. What is returned undoes this."""
        with self._state:
            lost = self._lost
            if lost is None:
                self._at_end.append(callback)
        if lost is not None:
            callback(lost)

        def undo() -> None:
            with self._state, contextlib.suppress(ValueError):
                self._at_end.remove(callback)

        return undo

    def request(self, method: str, params: Any, *, wait: bool = True) -> Future[Any]:
        """Send a request; its future holds the result as `METHODS` types it, a RemoteError or a ConnectionLost. Raises TypeError for what JSON cannot hold."""
        return self.pipeline([(method, params)], wait=wait)[0]

    def pipeline(self, requests: Iterable[tuple[str, Any]], *, wait: bool = True) -> list[Future[Any]]:
        """Send several requests in one write, so that they cost one round trip. They are carried out in order.

        ``wait`` False, for whoever must not sleep: what the other side does not take at once is sent by a thread, in the order in which it was handed over.
        """
        prepared = [(next(self._ids), method, params) for method, params in requests]
        data = b"".join(frame(rpc.encode(rpc.Request(id=id, method=method, params=params))) for id, method, params in prepared)
        futures: list[Future[Any]] = [Future() for _ in prepared]
        lost = None if self.is_ours else ConnectionLost(FORKED)
        if lost is None:
            with self._state:
                lost = self._lost
                if lost is None:
                    self._pending |= {id: (future, _result_type(method)) for (id, method, _), future in zip(prepared, futures, strict=True)}
        if lost is not None:
            for future in futures:
                future.set_exception(ConnectionLost(*lost.args))
            return futures
        with contextlib.suppress(ConnectionLost):  # the futures have it
            (self._send if wait else self._post)(data)
        return futures

    def call(self, method: str, params: Any, timeout_s: float | None = None) -> Any:
        """Send a request and wait. Raises TimeoutError after ``timeout_s`` and tells the other side that nobody waits any more."""
        future = self.request(method, params)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                return future.result()
            self.abandon(future)
            raise TimeoutError(f"no answer to {method} within {timeout_s:g} s") from None

    def abandon(self, future: Future[Any]) -> None:
        """Stop waiting for a request: its future is cancelled, the other side told."""
        with self._state:
            ids = [id for id, (pending, _) in self._pending.items() if pending is future]
            for id in ids:
                del self._pending[id]
        future.cancel()
        with contextlib.suppress(ConnectionLost):
            for id in ids:
                self._post(frame(rpc.encode(rpc.Request(method="$/cancelRequest", params={"id": id}))))

    def notify(self, method: str, params: Any, fds: Sequence[int] = ()) -> None:
        """Send a notification, with it duplicates of open file descriptors. Raises ConnectionLost."""
        self._send(frame(rpc.encode(rpc.Request(method=method, params=params))), fds)

    def close(self) -> None:
        """End the connection; what still waits gets ConnectionLost. In a forked process it ends there only."""
        if not self.is_ours:
            self._socket.close()
            return
        self._end(CLOSED)
        if threading.current_thread() is not self._reader:
            self._reader.join(5)

    def _send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        if not self.is_ours:
            raise ConnectionLost(FORKED)
        with self._sending:
            if self._lost is not None:
                raise ConnectionLost(*self._lost.args)
            try:
                if fds:
                    data = data[socket.send_fds(self._socket, [data], list(fds)) :]
                self._socket.sendall(data)
            except OSError as error:
                raise self._end(f"the daemon closed the connection ({error.strerror or error})") from error
            except BaseException:
                self._end("a message was interrupted while it was sent")  # half a message: whatever came behind it would be misread
                raise

    def _post(self, data: bytes) -> None:
        if not self.is_ours:
            raise ConnectionLost(FORKED)
        with self._handing:
            is_first = not self._unsent
            has_turn = is_first and self._sending.acquire(blocking=False)
            left = self._left_of(data) if has_turn else memoryview(data)
            if not left:
                self._sending.release()
                return
            self._unsent.append(left)
        if is_first:
            threading.Thread(target=self._send_unsent, args=(has_turn,), name="openprogram-sending", daemon=True).start()

    def _left_of(self, data: bytes) -> memoryview:
        """Send what the socket takes at once. An error is met again by whoever sends the rest."""
        left = memoryview(data)
        with contextlib.suppress(OSError):
            while left:
                left = left[self._socket.send(left, socket.MSG_DONTWAIT) :]
        return left

    def _send_unsent(self, has_turn: bool) -> None:
        if not has_turn:
            self._sending.acquire()
        try:
            while self._unsent:
                self._socket.sendall(self._unsent[0])
                with self._handing:
                    self._unsent.popleft()
        except OSError as error:
            self._unsent.clear()
            self._end(f"the daemon closed the connection ({error.strerror or error})")
        finally:
            self._sending.release()

    def _read(self) -> None:
        frames = FrameReader(max_body=self._max_body)
        reason = "the daemon ended or closed the connection"
        try:
            while data := self._socket.recv(CHUNK):
                for body in frames.feed(data):
                    self._received(_incoming.decode(body))
        except OSError as error:
            reason = f"{reason} ({error.strerror or error})"
        except (FramingError, msgspec.MsgspecError) as error:
            reason = f"the other side does not speak this protocol: {error}"
        finally:
            self._end(reason)
            with self._sending:  # nobody may write to a descriptor that has become another's
                self._socket.close()

    def _received(self, message: _Incoming) -> None:
        if message.method is None:
            self._replied(message)
            return
        row = METHODS.get(message.method)
        try:
            params: Any = _decoder(Any if row is None else row.params).decode(message.params or b"{}")
        except msgspec.MsgspecError as error:
            self._refused(message, ErrorCode.INVALID_PARAMS, str(error))
            return
        if message.id is None:
            self._notified(message.method, params)
        elif self._on_request is None:
            self._refused(message, ErrorCode.METHOD_NOT_FOUND, f"nobody here answers {message.method}")
        else:
            threading.Thread(target=self._answer, args=(message, params), name=f"answer {message.method}", daemon=True).start()

    def _replied(self, message: _Incoming) -> None:
        with self._state:
            future, kind = self._pending.pop(message.id, (None, None)) if message.id is not None else (None, None)
        if message.id is None and message.error is not None:
            _log.warning("the other side could not read a message: %s", message.error.message)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if message.error is not None:
            future.set_exception(RemoteError(message.error.code, message.error.message, message.error.data))
            return
        try:
            future.set_result(_decoder(kind).decode(message.result or b"null"))
        except msgspec.MsgspecError as error:
            future.set_exception(RemoteError(ErrorCode.INTERNAL, f"a reply that does not fit: {error}"))

    def _notified(self, method: str, params: Any) -> None:
        handlers: list[Callable[[], None]] = [functools.partial(handler, params) for handler in self._handlers.get(method, ())]
        if self._on_notify is not None:
            handlers.append(functools.partial(self._on_notify, method, params))
        for handler in handlers:
            try:
                handler()
            except Exception:
                # One handler's mistake must not take the connection from everybody else.
                _log.exception("a handler of %s failed", method)

    def _answer(self, message: _Incoming, params: Any) -> None:
        assert self._on_request is not None and message.method is not None
        try:
            reply = frame(rpc.encode(rpc.Response(id=message.id, result=self._on_request(message.method, params))))
        except RemoteError as error:
            self._refused(message, error.code, error.message, error.data)
        except Exception as error:
            _log.exception("answering %s failed", message.method)
            self._refused(message, ErrorCode.INTERNAL, f"{type(error).__name__}: {error}", {"type": type(error).__name__})
        else:
            with contextlib.suppress(ConnectionLost):
                self._send(reply)

    def _refused(self, message: _Incoming, code: int, text: str, data: dict[str, Any] | None = None) -> None:
        if message.id is None:
            _log.warning("a notification %s was ignored: %s", message.method, text)
            return
        with contextlib.suppress(ConnectionLost):
            self._send(frame(rpc.encode(rpc.ErrorResponse(id=message.id, error=WireError(code=code, message=text, data=data or {})))))

    def _end(self, reason: str) -> ConnectionLost:
        with self._state:
            if self._lost is not None:
                return ConnectionLost(*self._lost.args)
            self._lost = lost = ConnectionLost(f"{reason}; what was acknowledged is kept: ask again, a new daemon is started when it is needed")
            waiting, self._pending = self._pending, {}
            callbacks, self._at_end = self._at_end, []
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for future, _ in waiting.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(ConnectionLost(*lost.args))
        for callback in callbacks:
            callback(lost)
        return lost


def _result_type(method: str) -> Any:
    row = METHODS.get(method)
    return Any if row is None else row.result
