"""What a run prints: read from its pipe at a bounded rate, told every 50 ms, its head and tail kept.

A pipe's end is not waited for: whatever a run leaves behind may hold it for ever. What was written before the run's end was announced is in the pipe then, and
is read.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections import deque
from collections.abc import Callable

INTERVAL_S = 0.05
RATE = 8 * 1024 * 1024
"""Bytes that are read in one interval; beyond it the function that prints waits."""
CHUNK = 256 * 1024
TOLD = 64 * 1024
HEAD = 64 * 1024
TAIL = 64 * 1024
LAST = 2 * 1024 * 1024
"""Bytes read after the end at most: more than a pipe holds."""


class Kept:
    """The head and the tail of a text that may be long."""

    def __init__(self, head: int, tail: int) -> None:
        self._head = head
        self._tail = tail
        self._first: list[str] = []
        self._last: deque[str] = deque()
        self._held = 0
        self._dropped = 0

    def add(self, text: str) -> None:
        """Append."""
        if self._head > 0:
            first, text = text[: self._head], text[self._head :]
            self._first.append(first)
            self._head -= len(first)
        if not text:
            return
        if len(text) > self._tail:
            self._dropped += len(text) - self._tail
            text = text[-self._tail :]
        self._last.append(text)
        self._held += len(text)
        while self._held - len(self._last[0]) >= self._tail:
            self._held -= len(self._last[0])
            self._dropped += len(self._last.popleft())

    def text(self) -> str:
        """What is kept, with a line that says how much is not."""
        gap = f"\n… {self._dropped} characters left out …\n" if self._dropped else ""
        return "".join((*self._first, gap, *self._last))


class Output:
    """Reads ``descriptor``, which it owns, until `finish`; ``on_text`` gets what arrived in an interval, shortened when that is much."""

    def __init__(self, descriptor: int, on_text: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._on_text = on_text
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._kept = Kept(HEAD, TAIL)
        self._new = Kept(TOLD // 2, TOLD // 2)
        self._budget = RATE
        self._tick: asyncio.TimerHandle | None = None
        self._finished = False
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    @property
    def text(self) -> str:
        """All that was printed so far, or its head and tail."""
        return self._kept.text()

    def finish(self) -> None:
        """Read what is there, tell it, and close the pipe."""
        if self._finished:
            return
        self._finished = True
        if self._tick is not None:
            self._tick.cancel()
        self._loop.remove_reader(self._descriptor)
        left = LAST
        while left > 0 and (data := self._next()):
            left -= len(data)
            self._take(self._decode(data))
        self._take(self._decode(b"", True))
        self._tell()
        os.close(self._descriptor)

    def _read(self) -> None:
        data = self._next()
        if data is None:
            return
        if data == b"":
            self._loop.remove_reader(self._descriptor)  # the function closed its output
        self._take(self._decode(data))
        self._budget -= len(data)
        if self._budget <= 0:
            self._loop.remove_reader(self._descriptor)
        if self._tick is None:
            self._tick = self._loop.call_later(INTERVAL_S, self._next_interval)

    def _next(self) -> bytes | None:
        try:
            return os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return None

    def _take(self, text: str) -> None:
        self._kept.add(text)
        self._new.add(text)

    def _next_interval(self) -> None:
        self._tick = None
        paused, self._budget = self._budget <= 0, RATE
        self._tell()
        if paused:
            self._loop.add_reader(self._descriptor, self._read)

    def _tell(self) -> None:
        text, self._new = self._new.text(), Kept(TOLD // 2, TOLD // 2)
        if text:
            self._on_text(text)
