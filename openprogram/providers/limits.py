"""How many requests go to a provider at once and in a minute, for the whole process.

A gate is shared by everything that asks the same provider with the same key, whatever its loop and thread: a limit that each Runtime kept for itself would be
none. Waiting costs nothing but time; a request that is cancelled while it waits gives its place back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable

import msgspec

_MINUTE = 60.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """``concurrency`` requests at once, ``requests_per_minute`` begun in any 60 seconds; None is no limit."""

    concurrency: int | None = None
    requests_per_minute: int | None = None


class Gate:
    """Lets requests through as its limits allow, first come first served. ``clock`` is in seconds."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._begun: deque[float] = deque()

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """``async with`` it around a request."""
        await self._enter()
        try:
            await asyncio.sleep(self._until_next())
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        with self._lock:
            if self.limits.concurrency is None or self._inside < self.limits.concurrency:
                self._inside += 1
                return
            loop = asyncio.get_running_loop()
            turn = loop.create_future()
            self._waiting.append((loop, turn))
        try:
            await turn
        except BaseException:
            self._give_up(loop, turn)
            raise

    def _give_up(self, loop: asyncio.AbstractEventLoop, turn: asyncio.Future[None]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove((loop, turn))
            return
        self._leave()  # the place was already ours

    def _leave(self) -> None:
        """Hand the place to the first who still waits."""
        with self._lock:
            while self._waiting:
                loop, turn = self._waiting.popleft()
                with contextlib.suppress(RuntimeError):  # that loop has ended, so nobody waits there
                    loop.call_soon_threadsafe(_wake, turn)
                    return
            self._inside -= 1

    def _until_next(self) -> float:
        """Seconds until a request may begin; its place among the begun ones is taken."""
        most = self.limits.requests_per_minute
        if most is None:
            return 0.0
        with self._lock:
            now = self._clock()
            start = now if len(self._begun) < most else max(now, self._begun[-most] + _MINUTE)
            self._begun.append(start)
            while len(self._begun) > most:
                self._begun.popleft()
            return start - now


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


_gates: dict[tuple[str, str, str | None], Gate] = {}
_gates_lock = threading.Lock()


def gate_of(name: str, url: str, key: str | None, limits: Limits) -> Gate | None:
    """The process's gate to that provider, None where nothing is limited. Other limits than before make a new one."""
    if limits == Limits():
        return None
    with _gates_lock:
        gate = _gates.get((name, url, key))
        if gate is None or gate.limits != limits:
            gate = _gates[name, url, key] = Gate(limits)
        return gate
