"""What functions cost: decorating one, its schema when it is first asked for, and a tool call in the loop."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import Figure
from openprogram import Runtime, agentic_function, function
from openprogram.functions import isolated
from openprogram.providers.base import Finish, ToolCall
from openprogram.providers.scripted import ScriptedProvider

DECORATED = 2000
SCHEMAS = 200
CALLS = 200


def figures() -> Iterator[Figure]:
    """Medians, in a registry of its own."""
    with isolated():
        bare = _decorating(agentic_function)
        full = _decorating(agentic_function(expose="full", input={"name": {"description": "who"}}, toolset=("a",), timeout=3.0))
        yield Figure("functions.decorate", bare * 1e6, "us", bar=100)
        yield Figure("functions.decorate_with_options", full * 1e6, "us", bar=100)
        yield Figure("functions.decorate_tool", _decorating(function) * 1e6, "us", bar=100)
    with isolated():
        yield Figure("functions.first_schema", _schemas() * 1e6, "us")
    with isolated():
        yield Figure("functions.tool_call", _tool_calls() * 1e6, "us")


def _fresh(count: int) -> list[Callable[..., Any]]:
    """Functions that nobody has seen yet, each of its own source as in a module."""
    source = 'def f{n}(name: str, count: int = 1, tags: list[str] | None = None, runtime=None) -> str:\n    """Say something."""\n    return name\n'
    scope: dict[str, Any] = {"__name__": "made"}
    exec("from __future__ import annotations\n" + "\n".join(source.format(n=n) for n in range(count)), scope)
    return [scope[f"f{n}"] for n in range(count)]


def _decorating(decorate: Callable[[Callable[..., Any]], Any]) -> float:
    taken: list[float] = []
    functions = _fresh(DECORATED)
    gc.disable()
    try:
        for fn in functions:
            started = time.perf_counter()
            decorate(fn)
            taken.append(time.perf_counter() - started)
    finally:
        gc.enable()
    return statistics.median(taken)


def _schemas() -> float:
    decorated = [agentic_function(fn) for fn in _fresh(SCHEMAS)]
    taken: list[float] = []
    for fn in decorated:
        started = time.perf_counter()
        _ = fn.spec
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _tool_calls() -> float:
    """One round of the loop, a call of a plain function, over an exec without tools."""

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    def seconds(runtime: Runtime, tools: list[Any]) -> float:
        started = time.perf_counter()
        runtime.exec("?", tools=tools)
        return time.perf_counter() - started

    called = [ToolCall("1", "add", '{"a": 1, "b": 2}'), Finish(reason="tool_calls")]
    with_tool = Runtime(provider=ScriptedProvider([called, "three"], repeat=True, keep=False))
    without = Runtime(provider=ScriptedProvider(["three"], repeat=True, keep=False))
    pairs = [(seconds(with_tool, [add]), seconds(without, [])) for _ in range(CALLS)]
    return statistics.median(one - other for one, other in pairs)
