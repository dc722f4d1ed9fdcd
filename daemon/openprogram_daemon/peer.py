"""The other end of a connection, as handlers see it: a client's session or a worker.

A peer's writes are committed in the order in which it sent them, and `Peer.committed` waits for those made so far: what is sent to a peer goes behind it, so
that nobody hears of what could still be lost. When a peer is gone, what it was streaming is stopped and the calls it left open are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import msgspec
from openprogram_protocol import rpc
from openprogram_protocol.errors import ErrorCode, WireError
from openprogram_protocol.framing import MAX_BODY
from openprogram_protocol.methods import METHODS

T = TypeVar("T")


async def outcome(work: Future[T]) -> T:
    """Wait for what a thread does and take its result; no longer waiting does not stop the work."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def tell(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_wake, waiter)

    work.add_done_callback(tell)
    await waiter
    return work.result()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Peer:
    """What handlers know of whoever asks. ``workspace`` is used by requests that name none."""

    def __init__(self, *, workspace: str = "") -> None:
        self.workspace = workspace
        self.opened: set[str] = set()
        self.streams: dict[str, asyncio.Task[Any]] = {}
        self.last_write: Future[Any] | None = None

    @property
    def serving(self) -> str | None:
        """The run that it is busy with."""
        return None

    def wrote(self, write: Future[Any]) -> None:
        """A write was handed over; those before it are committed before it is."""
        self.last_write = write

    async def committed(self) -> None:
        """Wait until everything that was handed over is committed, or has failed."""
        write = self.last_write
        if write is not None and not write.done():
            with contextlib.suppress(Exception):  # whoever wrote is told
                await outcome(write)

    def notify(self, method: str, params: Any) -> None:
        """Send a notification that must arrive."""
        raise NotImplementedError

    async def room(self) -> None:
        """Wait while too much waits to be sent."""

    def stop_streams(self) -> None:
        """End what is being streamed."""
        for task in list(self.streams.values()):
            task.cancel()


class Worker(Protocol):
    """What the daemon needs of a worker to answer it. ``ended`` resolves once the process is gone and all that it had sent was taken."""

    workspace: str
    run_id: str | None
    ended: asyncio.Future[str]

    def notify(self, method: str, params: Any) -> None: ...


class WorkerPeer(Peer):
    """A worker, while it asks for models and the store."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(workspace=worker.workspace)
        self._worker = worker

    @property
    def serving(self) -> str | None:
        return self._worker.run_id

    def notify(self, method: str, params: Any) -> None:
        self._worker.notify(method, params)


_decoders: dict[str, msgspec.json.Decoder[Any]] = {}


def params_of(method: str, raw: bytes | msgspec.Raw) -> Any:
    """The params of a method of ours. Raises msgspec.ValidationError, which names the JSON path of what does not fit."""
    if method not in _decoders:
        _decoders[method] = msgspec.json.Decoder(METHODS[method].params)
    data = bytes(raw)
    return _decoders[method].decode(b"{}" if data in (b"", b"null") else data)


def response(request_id: rpc.Id, result: Any) -> bytes:
    """The body of a reply; an error where the result is larger than any message may be, which would end the connection."""
    body = rpc.encode(rpc.Response(id=request_id, result=result))
    if len(body) <= MAX_BODY:
        return body
    size = f"the answer has {len(body):,} bytes, over the limit of {MAX_BODY:,}; ask for less at a time"
    return rpc.encode(rpc.ErrorResponse(id=request_id, error=WireError(code=ErrorCode.USAGE, message=size)))


def notification(method: str, params: Any) -> bytes:
    """A notification's body."""
    return rpc.encode(rpc.Request(method=method, params=params))
