"""Blocking work beside an event loop.

Each piece of work has a thread of its own, a daemon: in a pool, functions that wait for each other could starve, and one that was given up (by a timeout, say)
would keep the program from ending.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


async def in_thread(work: Callable[[], Any], *, name: str = "openprogram-call") -> Any:
    """The result of ``work()``, run in a thread with this context. Cancelling gives it up: the thread goes on, and nobody hears of its result."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def serve() -> None:
        result, error = None, None
        try:
            result = context.run(work)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended, so nobody waits
            loop.call_soon_threadsafe(_settle, future, result, error)

    context = contextvars.copy_context()
    threading.Thread(target=serve, name=name, daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a future cannot hold one
        future.set_exception(RuntimeError(f"StopIteration was raised: {error}"))
    else:
        future.set_exception(error)
