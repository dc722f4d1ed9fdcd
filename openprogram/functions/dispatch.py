"""Run one tool for a model: beside the event loop when it blocks, bounded by its timeout, remembered where its author allows it.

A result that comes after the timeout, or after the call was cancelled, is thrown away. A thread cannot be killed: what a blocking tool does, it does to its
end.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from openprogram.functions.tool import Arguments, Tool
from openprogram.threads import in_thread

T = TypeVar("T")

GRACE_S = 1.0
MOST_CACHED = 256


class ToolTimeout(Exception):
    """A tool that was not done in time."""


async def run_tool(tool: Tool, arguments: Arguments, *, runtime: Any) -> tuple[Any, bool]:
    """The tool's result and whether it was remembered. Raises what the tool raised, ToolTimeout when its time is over."""
    if not tool.options.cache:
        return await _bounded(tool, arguments, runtime), False
    memory = _memory_of(tool)
    key = _key(tool, arguments)
    if key is not None and (found := memory.get(key)) is not None:
        return found.value, True
    value = await _bounded(tool, arguments, runtime)
    if key is not None:
        memory.put(key, _Kept(value, time.monotonic() + tool.options.cache_ttl, _owner(tool)))
    return value, False


async def _bounded(tool: Tool, arguments: Arguments, runtime: Any) -> Any:
    task = asyncio.ensure_future(settled(_result(tool, arguments, runtime)))
    try:
        done, _ = await asyncio.wait({task}, timeout=tool.options.timeout)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)  # what the tool does to clean up
        raise
    if not done:
        task.cancel()
        raise ToolTimeout(f"{tool.name} was not done after {tool.options.timeout:g} seconds; whether it took effect is not known")
    value, error = task.result()
    if error is not None:
        raise error
    return value


async def settled(work: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
    """The result or what was raised, as values: an interrupt that a task lets out would end the loop it runs on. Cancelling goes through."""
    try:
        return await work, None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return None, error
    except BaseException as error:
        return None, error


async def _result(tool: Tool, arguments: Arguments, runtime: Any) -> Any:
    if _is_async(tool.function):
        value = tool.call(arguments, runtime=runtime)
    else:
        value = await in_thread(lambda: _collected(tool.call(arguments, runtime=runtime)), name=f"openprogram-tool-{tool.wire_name}")
    if inspect.isawaitable(value):  # also what a plain wrapper around an async function returns
        value = await value
    if inspect.isasyncgen(value):
        return _joined([item async for item in value])
    return value


def _is_async(function: Any) -> bool:
    while hasattr(function, "func") and hasattr(function, "keywords"):  # a partial
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 - it is the method that is wanted
    return any(inspect.iscoroutinefunction(item) or inspect.isasyncgenfunction(item) for item in (function, call))


def _collected(value: Any) -> Any:
    return _joined(list(value)) if inspect.isgenerator(value) else value


def _joined(items: list[Any]) -> Any:
    """What a generator yielded: pieces of text as one text."""
    return "".join(items) if items and all(isinstance(item, str) for item in items) else items


class _Kept(NamedTuple):
    value: Any
    until: float
    owner: Any
    """The object whose method was called: while it is kept, no other can have its id."""


class _Memory:
    """Results by arguments, for a while, the oldest forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, _Kept] = OrderedDict()

    def get(self, key: Any) -> _Kept | None:
        with self._lock:
            found = self._kept.get(key)
            return found if found is not None and time.monotonic() < found.until else None

    def put(self, key: Any, kept: _Kept) -> None:
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_CACHED:
                self._kept.popitem(last=False)


_lock = threading.Lock()


def _memory_of(tool: Tool) -> _Memory:
    """The memory of a decorated function, one for all that it is bound to; of any other tool, its own."""
    root: Any = tool if tool.decorated is None else tool.decorated.root
    with _lock:
        return root.__dict__.setdefault("_memory", _Memory())


def _owner(tool: Tool) -> Any:
    return None if tool.decorated is None else tool.decorated.bound_to


def _key(tool: Tool, arguments: Arguments) -> Any:
    try:
        return tool.name, id(_owner(tool)), json.dumps(arguments.as_json, sort_keys=True)
    except (TypeError, ValueError):
        return None
