"""What asking a model costs over the model itself: per exec, per streamed token, and with many requests at once."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import Figure

if TYPE_CHECKING:
    from openprogram import Runtime

ANSWER_S = 0.5
AT_ONCE = 200
EXECS = 300
TOKENS = 20_000
ROUNDS = 7


def figures() -> Iterator[Figure]:
    """The best of the rounds: noise only ever adds."""
    from openprogram import Runtime

    def answer(content: object) -> str:
        return "ok"

    async def answer_later(content: object) -> str:
        return "ok"

    yield Figure("providers.exec_call", _exec(Runtime(call=answer)), "us", bar=150)
    yield Figure("providers.exec_call_async", _exec(Runtime(call=answer_later)), "us")
    yield Figure("providers.async_exec_call", _async_exec(Runtime(call=answer_later)), "us")
    yield Figure("providers.stream_token_scripted", _scripted(), "us", bar=10)
    yield Figure("providers.stream_token_http", _over_http(), "us")
    yield Figure("providers.concurrent_200", _at_once() / ANSWER_S, "x 0.5 s", bar=1.3)


def _best(work: Callable[[], object]) -> float:
    """Seconds of the fastest round, after one that is not counted."""
    work()
    seconds: list[float] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _exec(runtime: Runtime) -> float:
    def work() -> None:
        for _ in range(EXECS):
            runtime.exec("x")

    with runtime:
        return _best(work) / EXECS * 1e6


def _async_exec(runtime: Runtime) -> float:
    async def many() -> None:
        for _ in range(EXECS):
            await runtime.async_exec("x")

    with runtime:
        return _best(lambda: asyncio.run(many())) / EXECS * 1e6


def _scripted() -> float:
    from openprogram import Runtime
    from openprogram.providers.base import Finish, TextDelta
    from openprogram.providers.scripted import ScriptedProvider

    reply = [*[TextDelta("token ")] * TOKENS, Finish()]
    with Runtime(provider=ScriptedProvider([reply], repeat=True, keep=False)) as runtime:
        runtime.on_stream = lambda event: None
        return _best(lambda: runtime.exec("x")) / TOKENS * 1e6


def _over_http() -> float:
    from openprogram import Runtime
    from openprogram.providers.openai_chat import OpenAIChatProvider

    with _server(0, TOKENS) as url, Runtime(provider=OpenAIChatProvider(url, environ={}), model="m") as runtime:
        runtime.on_stream = lambda event: None
        return _best(lambda: runtime.exec("x")) / TOKENS * 1e6


def _at_once() -> float:
    """Seconds until so many concurrent requests on one loop were answered, connections included."""
    from openprogram import Runtime
    from openprogram.providers.openai_chat import OpenAIChatProvider

    async def many(url: str) -> float:
        runtime = Runtime(provider=OpenAIChatProvider(url, environ={}), model="m")
        start = time.perf_counter()
        answers = await asyncio.gather(*(runtime.async_exec("x") for _ in range(AT_ONCE)))
        seconds = time.perf_counter() - start
        assert len(answers) == AT_ONCE
        await asyncio.to_thread(runtime.close)
        return seconds

    with _server(ANSWER_S, 3) as url:
        return min(asyncio.run(many(url)) for _ in range(5))


@contextlib.contextmanager
def _server(seconds: float, tokens: int) -> Generator[str]:
    command = [sys.executable, "-m", "benchmarks._slow_model", str(seconds), str(tokens)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()
