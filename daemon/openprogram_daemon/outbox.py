"""What a connection still has to send, in order and bounded by bytes.

Replies are never lost: while more than `Limits.replies` bytes of them wait, the session stops reading requests. Events are: consecutive pieces of one run's
text are joined, and when more than `Limits.events` bytes wait all of them give way to one that says ``gap``, after which a client reads again what it shows.
A peer that takes nothing for `Limits.stuck_s` seconds is given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from openprogram_protocol import rpc
from openprogram_protocol.framing import frame

PIECE = 256 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes and seconds that a peer gets."""

    replies: int = 8 * 1024 * 1024
    events: int = 4 * 1024 * 1024
    joined: int = 64 * 1024
    stuck_s: float = 30.0


class StuckError(ConnectionError):
    """The peer takes nothing."""


class Gap(NamedTuple):
    """What stands for dropped events: one message for each thing that they were about."""

    about: tuple[str, str]
    make: Callable[[], bytes]


class Text(msgspec.Struct):
    """A piece of a run's text that waits to be sent; ``make`` turns the joined text into the notification."""

    key: tuple[str, str]
    text: str
    make: Callable[[str], Any]


class _Item(msgspec.Struct):
    """``gap`` marks an event: what stands for it when it is dropped, and what it is about."""

    size: int
    body: bytes = b""
    text: Text | None = None
    gap: Gap | None = None


class Outbox:
    """Fill it from the loop; `run` sends."""

    def __init__(self, writer: asyncio.StreamWriter, limits: Limits) -> None:
        self._writer = writer
        self._limits = limits
        self._items: deque[_Item] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        self.replies = 0
        self.events = 0
        writer.transport.set_write_buffer_limits(high=PIECE)

    def put(self, body: bytes) -> None:
        """A message that must arrive."""
        self._add(_Item(len(body), body))

    def put_event(self, body: bytes, gap: Gap) -> None:
        """An event."""
        self._add_event(_Item(len(body), body, gap=gap))

    def put_text(self, text: Text, gap: Gap) -> None:
        """A piece of text, joined to the one before it if that is of the same run and still waits."""
        size = len(text.text.encode("utf-8", "surrogatepass"))
        last = self._items[-1] if self._items else None
        if last and last.text and last.text.key == text.key and last.size + size <= self._limits.joined:
            last.text = Text(text.key, last.text.text + text.text, text.make)
            last.size += size
            self.events += size
        else:
            self._add_event(_Item(size, text=text, gap=gap))

    def _add_event(self, item: _Item) -> None:
        if self.events + item.size <= self._limits.events:
            self._add(item)
            return
        assert item.gap is not None
        gaps = {one.gap.about: one.gap for one in (*self._items, item) if one.gap is not None}
        self._items = deque(one for one in self._items if one.gap is None)
        self.events = 0
        for gap in gaps.values():
            body = gap.make()
            self._add(_Item(len(body), body, gap=gap))

    def _add(self, item: _Item) -> None:
        self._items.append(item)
        if item.gap is not None:
            self.events += item.size
        else:
            self.replies += item.size
            if self.replies > self._limits.replies:
                self._room.clear()
        self._changed.set()

    @property
    def has_room(self) -> bool:
        """Whether `room` returns at once."""
        return self._room.is_set()

    async def room(self) -> None:
        """Wait until few enough replies wait."""
        await self._room.wait()

    def drop(self) -> None:
        """Forget what waits: nobody takes it."""
        self._items.clear()
        self.replies = self.events = 0
        self._room.set()

    def finish(self) -> None:
        """Send what waits, then end `run`."""
        self._closing = True
        self._changed.set()

    async def run(self) -> None:
        """Send until `finish`. Raises StuckError, or OSError when the peer is gone."""
        while True:
            while self._items:
                await self._send(self._items.popleft())
            if self._closing:
                return
            self._changed.clear()
            await self._changed.wait()

    async def _send(self, item: _Item) -> None:
        body = rpc.encode(item.text.make(item.text.text)) if item.text else item.body
        if item.gap is not None:
            self.events -= item.size
        data = frame(body)
        for start in range(0, len(data), PIECE):
            self._writer.write(data[start : start + PIECE])
            try:
                async with asyncio.timeout(self._limits.stuck_s):
                    await self._writer.drain()
            except TimeoutError:
                raise StuckError(f"the client took nothing for {self._limits.stuck_s:g} s") from None
        if item.gap is None:
            self.replies -= item.size
            if self.replies <= self._limits.replies:
                self._room.set()
