"""Blocking work beside an event loop.

Each piece of work has a thread to itself, a daemon: in a pool of a size, functions that wait for each other could starve, and one that was given up (by a
timeout, say) would keep the program from ending. A thread that is done waits a while for more work, since starting one costs more than most work does.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

IDLE_S = 5.0


async def in_thread(work: Callable[[], Any], *, name: str = "openprogram-call") -> Any:
    """The result of ``work()``, run in a thread with this context. Cancelling gives it up: the thread goes on, and nobody hears of its result."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def serve() -> None:
        result, error = None, None
        try:
            result = context.run(work)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended, so nobody waits
            loop.call_soon_threadsafe(_settle, future, result, error)

    _give(serve, name)
    return await future


class _Thread(threading.Thread):
    """A thread that does one piece of work after another, never two at a time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                serve = self.work.get(timeout=IDLE_S)
            except queue.Empty:
                with contextlib.suppress(ValueError):
                    _idle.remove(self)
                    return
                serve = self.work.get()  # somebody has just taken this thread
            serve()
            del serve  # what it holds must not outlive it here
            _idle.append(self)


_idle: list[_Thread] = []
"""Threads without work. Taking one out and putting one in are single steps, so that two never get the same."""


def _give(serve: Callable[[], None], name: str) -> None:
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _Thread()
        thread.start()
    thread.name = name
    thread.work.put(serve)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child has none of its parent's threads


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a future cannot hold one
        future.set_exception(RuntimeError(f"StopIteration was raised: {error}"))
    else:
        future.set_exception(error)
