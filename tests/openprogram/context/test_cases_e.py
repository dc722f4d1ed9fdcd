"""Reported situations of area e: sessions and contexts in threads, tasks and generators. Each test carries the id of its case."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, session
from openprogram.context import scope as scopes
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from tests.openprogram.context.support import asked, echoing, named, statuses


@agentic_function
def inner(x: int) -> int:
    """Inner."""
    return x


@agentic_function
def g() -> Iterator[int]:
    """A generator with a helper."""
    yield 1
    inner(1)
    yield 2


def _submitted(work: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, work).result()


def _thread(work: Callable[[], Any]) -> None:
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
    thread.start()
    thread.join()


def _in_executor(work: Callable[[], Any]) -> None:
    async def main() -> None:
        await asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, work)

    asyncio.run(main())


def _to_thread(work: Callable[[], Any]) -> None:
    async def main() -> None:
        await asyncio.to_thread(work)

    asyncio.run(main())


@pytest.mark.parametrize("carry", [_submitted, _thread, _in_executor, _to_thread])
def test_e01_threads_that_copy_the_context_keep_session_and_caller(carry: Callable[[Callable[[], Any]], None], store: Store) -> None:
    """e01: ``contextvars.copy_context().run`` (which ``asyncio.to_thread`` does by itself) takes session, caller and runtime along."""
    runtime, _ = echoing()

    @agentic_function
    def outer(runtime: Runtime) -> None:
        carry(lambda: (inner(1), runtime.exec("from the thread")))

    with session("s", store=store) as recorded:
        outer(runtime)
    around = named(recorded, "outer")
    assert [node.caller for node in recorded.nodes() if node is not around and node.id != around.id] == [around.id, around.id]


def test_e01_a_thread_without_it_is_in_no_session(store: Store) -> None:
    """e01: work in a bare thread runs and is recorded nowhere, also in a pool thread that served a session before: two sessions never mix."""
    with ThreadPoolExecutor(1) as pool:
        for name in ("a", "b"):
            with session(name, store=store) as recorded:
                pool.submit(contextvars.copy_context().run, inner, 1).result()
                assert pool.submit(inner, 2).result() == 2
            assert [node.input for node in recorded.nodes()] == [{"x": 1}]


def test_e02_a_generator_closed_elsewhere_says_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """e02: an agentic async generator that is left early and collected, or closed by another task, raises and logs nothing; the caller is where it was."""

    @agentic_function
    async def numbers() -> AsyncIterator[int]:
        for number in range(10):
            yield number

    async def main() -> None:
        before = scopes.current.get()
        async for _ in numbers():
            break
        gc.collect()
        await asyncio.sleep(0)
        started: Any = numbers()
        await anext(started)
        await asyncio.create_task(started.aclose())
        assert scopes.current.get() is before

    with session("s", store=store) as recorded, caplog.at_level(logging.DEBUG, "asyncio"):
        asyncio.run(main())
    assert [node.status for node in recorded.nodes()] == ["cancelled", "cancelled"]
    assert "different Context" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_e02_a_session_left_in_another_task_raises_nothing(store: Store) -> None:
    """e02: a session that one task enters and another leaves (fixtures do that) ends without an error, and neither task is in it afterwards."""

    async def main() -> None:
        recorded = session("s", store=store)
        await asyncio.create_task(recorded.__aenter__())
        await asyncio.create_task(recorded.__aexit__(None, None, None))
        assert scopes.current.get() is None

    asyncio.run(main())


def test_e03_the_sync_api_works_where_a_loop_runs(store: Store) -> None:
    """e03: in a coroutine, as in a notebook, exec answers and is recorded like anywhere else."""
    runtime, _ = echoing()

    async def main() -> str:
        return runtime.exec("hi")

    with session("s", store=store) as recorded:
        assert asyncio.run(main()) == "reply to hi"
    assert [node.output for node in asked(recorded)] == ["reply to hi"]


def test_e06_between_yields_the_consumer_is_the_caller(store: Store) -> None:
    """e06: what a generator calls is below it, what its consumer calls is not; it runs until it is finished, and one left early does not stay running."""
    with session("s", store=store) as recorded:
        for value in g():
            assert named(recorded, "g").status == "running"
            if value == 1:
                inner(100)
        node = named(recorded, "g")
        callers = {call.input["x"]: call.caller for call in recorded.nodes() if call.name == "inner"}
        assert callers == {100: None, 1: node.id}
        assert (node.status, node.output) == ("completed", [1, 2])
    with session("early", store=store) as recorded:
        for _ in g():
            break
        gc.collect()
        assert statuses(recorded) == {"g": "cancelled"}


class Fatal(BaseException):
    """Neither an Exception nor a cancellation."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), "cancelled"),
        (asyncio.CancelledError(), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (SystemExit(2), "error"),
        (Fatal("x"), "error"),
    ],
)
def test_e08_every_node_on_the_stack_closes(error: BaseException, status: str, is_async: bool, store: Store) -> None:
    """e08: whatever leaves a body, two deep and sync or async: both nodes close with its type, it passes unchanged, and the scope is restored."""

    @agentic_function
    def low() -> None:
        raise error

    @agentic_function
    def high() -> None:
        low()

    @agentic_function(name="low")
    async def async_low() -> None:
        raise error

    @agentic_function(name="high")
    async def async_high() -> None:
        await async_low()

    def drive(coroutine: Any) -> None:
        coroutine.send(None)  # a loop would treat some of these as its own

    with session("s", store=store) as recorded:
        before = scopes.current.get()
        with pytest.raises(type(error)) as raised:
            drive(async_high()) if is_async else high()
        assert scopes.current.get() is before
    assert raised.value is error
    assert statuses(recorded) == {"high": status, "low": status}
    assert {node.metadata["error"]["type"] for node in recorded.nodes()} == {type(error).__name__}


def test_e12_siblings_at_once_stay_apart(store: Store) -> None:
    """e12: twenty children gathered have the parent as caller and each its own answer; one that raises closes nobody else's node."""

    async def echo(content: list[dict[str, Any]]) -> str:
        number = int(content[-1]["text"])
        for _ in range(number % 5):
            await asyncio.sleep(0)
        return f"answer {number}"

    @agentic_function
    async def child(number: int, runtime: Runtime) -> str:
        if number == 7:
            raise ValueError("seven")
        return await runtime.async_exec(str(number))

    @agentic_function
    async def parent(runtime: Runtime) -> list[Any]:
        return await asyncio.gather(*(child(number, runtime) for number in range(20)), return_exceptions=True)

    with session("s", store=store) as recorded:
        answers = asyncio.run(parent(Runtime(call=echo)))
    around = named(recorded, "parent")
    children = [node for node in recorded.nodes() if node.name == "child"]
    assert {node.caller for node in children} == {around.id}
    assert [answer for answer in answers if not isinstance(answer, ValueError)] == [f"answer {number}" for number in range(20) if number != 7]
    assert {node.input["number"]: node.status for node in children} == {number: "error" if number == 7 else "completed" for number in range(20)}
    by_caller = {node.caller: node.output for node in asked(recorded)}
    assert all(by_caller[node.id] == node.output for node in children if node.status == "completed")


def test_e13_a_task_that_outlives_its_function_is_recorded_under_it(store: Store) -> None:
    """e13: it goes on without an error after function and session have ended, and their nodes stay as they were."""

    async def main() -> None:
        ended = asyncio.Event()

        @agentic_function
        async def later() -> str:
            await ended.wait()
            inner(5)
            return "late"

        tasks: list[asyncio.Task[Any]] = []

        @agentic_function
        async def parent() -> int:
            tasks.append(asyncio.ensure_future(later()))
            await asyncio.sleep(0)
            return 1

        async with session("s", store=store):
            await parent()
        closed = named(session("s", store=store), "parent")
        ended.set()
        assert await tasks[0] == "late"
        recorded = session("s", store=store)
        assert named(recorded, "parent") == closed
        assert (named(recorded, "later").caller, named(recorded, "later").status) == (closed.id, "completed")
        assert named(recorded, "inner").caller == named(recorded, "later").id

    asyncio.run(main())


@pytest.mark.parametrize("ends", ["close", "aclose"])
def test_e15_a_generator_that_is_closed_in_the_middle_ends_quietly(ends: str, store: Store) -> None:
    """e15: its own clean-up runs, nothing is raised, and the node reads cancelled."""
    cleaned: list[str] = []

    @agentic_function
    def plain() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            cleaned.append("plain")

    @agentic_function
    async def coroutine() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            cleaned.append("coroutine")

    async def main() -> None:
        running: Any = coroutine()
        await anext(running)
        await running.aclose()

    with session("s", store=store) as recorded:
        if ends == "close":
            started: Any = plain()
            next(started)
            started.close()
        else:
            asyncio.run(main())
    assert len(cleaned) == 1
    assert [node.status for node in recorded.nodes()] == ["cancelled"]


def test_one_session_entered_by_many_at_once(store: Store) -> None:
    """The same object entered by threads and tasks together, and nested in itself: each is in it while it is inside, and out of it afterwards."""
    recorded = session("s", store=store)
    outside = MemoryStore()

    def enter(number: int) -> None:
        with session("other", store=outside), recorded, recorded:
            inner(number)
        assert scopes.current.get() is None

    async def aenter(number: int) -> None:
        async with recorded:
            await asyncio.sleep(0)
            inner(number)

    async def main() -> None:
        await asyncio.gather(*(aenter(number) for number in range(10, 15)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, range(10)))
    asyncio.run(main())
    assert sorted(node.input["x"] for node in recorded.nodes()) == list(range(15))
    assert sorted(node.seq for node in recorded.nodes()) == list(range(1, 16))
    assert session("other", store=outside).nodes() == []
