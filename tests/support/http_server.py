"""A real HTTP/1.1 server that answers as told, and misbehaves as told, for tests of clients.

It runs in a thread with its own event loop, so that clients of any loop and thread can be tested. Each request takes the next `Answer`; the last one repeats.
What was asked is kept in ``requests``, and ``connections`` counts the sockets that are open now.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

Ending = Literal["close", "keep", "stale", "reset", "hang", "cut"]


@dataclass(frozen=True)
class Answer:
    """``chunks`` are written one by one, ``pause_s`` seconds apart. ``ending``: close the socket, keep it for the next request, keep it but close it without a
    word when the next request comes (stale), reset it, leave it open and silent (hang), or close it in the middle of the body (cut). With ``status`` 0 there is
    no answer at all, only the ending."""

    chunks: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    ending: Ending = "close"
    pause_s: float = 0.0


@dataclass(frozen=True)
class Request:
    """One request as it came in; ``peer`` tells connections apart."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    peer: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def sse(*events: Any, done: bool = True) -> list[bytes]:
    """Objects as server-sent events, each a chunk of its own; text is sent as it is."""
    texts = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
    return [f"data: {text}\n\n".encode() for text in [*texts, *(["[DONE]"] if done else [])]]


def delta(content: str | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A Chat Completions chunk."""
    content_field = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": {**content_field, **fields}, "finish_reason": finish}]}


def stream(*events: Any, done: bool = True, ending: Ending = "close") -> Answer:
    """A streamed answer of these events."""
    return Answer(chunks=sse(*events, done=done), headers={"Content-Type": "text/event-stream"}, ending=ending)


def raw_stream(*chunks: bytes, ending: Ending = "close") -> Answer:
    """A streamed answer of exactly these bytes."""
    return Answer(chunks=chunks, headers={"Content-Type": "text/event-stream"}, ending=ending)


def whole(payload: Any, status: int = 200, **headers: str) -> Answer:
    """A JSON document."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(chunks=[json.dumps(payload).encode()], status=status, headers={"Content-Type": "application/json", **named})


class Server:
    """``with Server(answer, …) as server``; ``server.url`` is where it listens."""

    def __init__(self, *answers: Answer | Callable[[Request], Answer]) -> None:
        self._answers = answers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._stale: set[int] = set()
        self.requests: list[Request] = []
        self.connections = 0
        self.accepted = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(5)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        self.connections += 1
        peer = self.accepted
        try:
            while await self._exchange(reader, writer, peer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            writer.close()
            self._tasks.discard(task)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: int) -> bool:
        request = await _read(reader, peer)
        if peer in self._stale:
            return False
        self.requests.append(request)
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        answer = answer if isinstance(answer, Answer) else answer(request)
        lines = [f"HTTP/1.1 {answer.status} Told", "Transfer-Encoding: chunked", *(f"{name}: {value}" for name, value in answer.headers.items())]
        if answer.ending == "close":
            lines.append("Connection: close")
        if answer.status == 0:
            return await self._end(reader, writer, answer.ending)
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for chunk in answer.chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
            if answer.pause_s:
                await asyncio.sleep(answer.pause_s)
        if answer.ending == "stale":
            self._stale.add(peer)
        return await self._end(reader, writer, answer.ending)

    async def _end(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ending: Ending) -> bool:
        if ending == "hang":
            await reader.read()  # until the client closes
            return False
        if ending == "reset":
            raw: socket.socket = writer.get_extra_info("socket")
            await asyncio.sleep(0.05)  # a reset throws away what the client has not read yet
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        if ending == "cut":
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return ending in ("keep", "stale")


async def _read(reader: asyncio.StreamReader, peer: int) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method=method, target=target, headers=headers, body=body, peer=peer)
