"""The one background event loop that sync callers share.

`run` sends a coroutine there with the caller's context and waits. A caller that is itself on the loop (an async tool that uses the sync API) would wait for
itself; it gets a loop of its own. An interrupt of the waiting thread cancels the coroutine and waits until it has closed what it opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner: tuple[int, int] = (0, 0)
"""Process id (a forked child needs a loop of its own) and thread id of the background loop."""

_still = 0
"""How many sync calls keep the background loop from turning."""


def background_loop() -> asyncio.AbstractEventLoop:
    """The process's loop, started at first use."""
    global _loop, _owner
    with _lock:
        if _loop is None or _loop.is_closed() or _owner[0] != os.getpid():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(loop,), name="openprogram-loop", daemon=True)
            thread.start()
            _loop, _owner = loop, (os.getpid(), thread.ident or 0)
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of ``make()`` run on the background loop, in a copy of the caller's context."""
    loop = background_loop()
    if threading.get_ident() == _owner[1]:
        with _standing_still():
            return _run_beside(make)
    if _still:
        return _run_beside(make)
    return _run_on(loop, make)


def _run_on(loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    future: Future[T] = Future()
    context = contextvars.copy_context()
    tasks: list[asyncio.Task[None]] = []

    def give_up() -> None:
        for task in tasks:
            task.cancel()
        if not tasks:  # the interrupt came before the loop was told of the work
            future.cancel()

    try:
        # An interrupt may come as soon as the loop knows, so that this too stands inside.
        loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(_settle(make, future), context=context)))
        return future.result()
    except BaseException:
        if not future.done():
            loop.call_soon_threadsafe(give_up)
            _wait_quietly(future)
        raise


async def _settle(make: Callable[[], Coroutine[Any, Any, T]], future: Future[T]) -> None:
    try:
        result = await make()
    except BaseException as error:
        # The error belongs to the waiting thread; raising it here as well would make the loop report it.
        future.set_exception(error)
    else:
        future.set_result(result)


def _wait_quietly(future: Future[Any]) -> None:
    try:
        future.exception(timeout=5)
    except BaseException:  # a second interrupt, or a coroutine that will not end: the first one is what the caller must see
        return


@contextlib.contextmanager
def _standing_still() -> Generator[None]:
    """While a caller on the loop waits, everybody else has to run beside it too: what the caller waits for may depend on them."""
    global _still
    _still += 1
    try:
        yield
    finally:
        _still -= 1


def _run_beside(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def turn() -> None:
        done = asyncio.Event()
        ready.set_result((asyncio.get_running_loop(), done))
        await done.wait()

    threading.Thread(target=lambda: asyncio.run(turn()), name="openprogram-nested-loop", daemon=True).start()
    loop, done = ready.result()
    try:
        return _run_on(loop, make)
    finally:
        loop.call_soon_threadsafe(done.set)
