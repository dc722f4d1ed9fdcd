"""The nodes that calls leave: who called whom, what they hold, and how they end, whichever way that is."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, session
from openprogram.agentic_programming.function import CancelledError
from openprogram.agentic_programming.session import Session
from openprogram.context import scope as scopes
from openprogram.context.call import Call, Close, Frame
from openprogram.errors import LLMError, StoreError
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from tests.openprogram.context.support import asked, echoing, named, scripted, statuses


def test_a_call_is_a_node_with_its_arguments_and_result(store: Store) -> None:
    """Arguments as they were at entry, secrets by name redacted, the docstring, who exposes what, and the result."""

    @agentic_function
    def work(items: list[int], api_key: str, runtime: Runtime, note: str = "none") -> dict[str, int]:
        """Add."""
        items.append(99)
        return {"sum": sum(items)}

    runtime, _ = echoing()
    with session("s", store=store) as recorded:
        work([1, 2], "sk-secret", runtime)
    (node,) = recorded.nodes()
    assert (node.role, node.name, node.status, node.caller) == ("code", "work", "completed", None)
    assert node.input == {"items": [1, 2], "api_key": "[redacted]"}
    assert node.output == {"sum": 102}
    assert node.metadata["doc"] == "Add."
    assert node.metadata["expose"] == "io"
    assert node.ended_at is not None
    assert 0 < node.started_at <= node.ended_at


def test_the_tree_says_who_called_whom(store: Store) -> None:
    """``caller`` is the function around a call; ``predecessor`` the call before it in its frame; ``seq`` counts from 1."""
    runtime, _ = echoing()

    @agentic_function
    def inner(runtime: Runtime) -> str:
        return runtime.exec("inner")

    @agentic_function
    def outer(runtime: Runtime) -> str:
        return inner() + runtime.exec("outer")

    with session("s", store=store) as recorded:
        outer(runtime)
    around, below, deep, last = recorded.nodes()
    assert [node.seq for node in (around, below, deep, last)] == [1, 2, 3, 4]
    assert [node.name for node in (around, below)] == ["outer", "inner"]
    assert [around.caller, below.caller, deep.caller, last.caller] == [None, around.id, below.id, around.id]
    assert [deep.predecessor, last.predecessor] == [None, below.id]


def test_a_model_call_is_a_node_with_its_turn_and_reply(store: Store) -> None:
    """What was added to the history, the reply, model, provider, usage and why it ended."""
    runtime, _ = scripted("three little words")
    with session("s", store=store) as recorded:
        runtime.exec("hello", model="small")
    (node,) = recorded.nodes()
    assert (node.role, node.status, node.output) == ("llm", "completed", "three little words")
    assert node.metadata["model"] == "small"
    assert node.metadata["provider"] == "scripted"
    assert node.metadata["usage"]["output_tokens"] == 3
    assert node.metadata["finish_reason"] == "stop"


def test_a_failed_model_call_is_an_error_node(store: Store) -> None:
    """It holds type and message of what was raised, and its prompt."""
    runtime, _ = scripted(LLMError("no credit"))
    with session("s", store=store) as recorded, pytest.raises(LLMError):
        runtime.exec("hello")
    (node,) = recorded.nodes()
    assert (node.status, node.output) == ("error", None)
    assert node.metadata["error"]["type"] == "LLMError"
    assert "no credit" in node.metadata["error"]["message"]
    assert node.input["messages"][0]["blocks"] == [{"type": "text", "text": "hello"}]


ENDINGS: dict[str, tuple[BaseException, str]] = {
    "an error": (ValueError("bad"), "error"),
    "SystemExit": (SystemExit(3), "error"),
    "KeyboardInterrupt": (KeyboardInterrupt(), "cancelled"),
    "the hook's CancelledError": (CancelledError("stop"), "cancelled"),
    "asyncio's CancelledError": (asyncio.CancelledError(), "cancelled"),
}


def _plain(error: BaseException) -> None:
    @agentic_function
    def body() -> None:
        raise error

    body()


def _coroutine(error: BaseException) -> None:
    @agentic_function
    async def body() -> None:
        raise error

    running = body()
    running.send(None)


def _generator(error: BaseException) -> None:
    @agentic_function
    def body() -> Iterator[int]:
        yield 1
        raise error

    list(body())


def _async_generator(error: BaseException) -> None:
    @agentic_function
    async def body() -> AsyncIterator[int]:
        yield 1
        raise error

    running = aiter(body())
    with pytest.raises(StopIteration):
        anext(running).__await__().send(None)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a generator, as all such are
    anext(running).__await__().send(None)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("body", [_plain, _coroutine, _generator, _async_generator])
def test_a_body_that_raises_closes_its_node(body: Callable[[BaseException], None], ending: str, store: Store) -> None:
    """Cancelled when somebody ended the call, error otherwise, never completed or still running; type, message and the user's own trace are kept."""
    error, status = ENDINGS[ending]
    with session("s", store=store) as recorded, pytest.raises(type(error)):
        body(error)
    node = named(recorded, "body")
    assert node.status == status
    assert node.metadata["error"]["type"] == type(error).__name__
    assert "test_nodes.py" in node.metadata["error"]["trace"]
    assert "bodies.py" not in node.metadata["error"]["trace"]


def test_a_generator_is_recorded_with_what_it_yielded(store: Store) -> None:
    """Its values, or what it returned if it returned something; open until it ends."""

    @agentic_function
    def values() -> Iterator[int]:
        yield from range(3)

    @agentic_function
    def result() -> Any:
        yield 1
        return "result"

    @agentic_function
    async def slow_values() -> AsyncIterator[int]:
        for n in range(3):
            yield n

    async def consume() -> None:
        assert [n async for n in slow_values()] == [0, 1, 2]

    with session("s", store=store) as recorded:
        running = iter(values())
        next(running)
        assert statuses(recorded) == {"values": "running"}
        assert list(running) == [1, 2]
        list(result())
        asyncio.run(consume())
    assert {node.name: node.output for node in recorded.nodes()} == {"values": [0, 1, 2], "result": "result", "slow_values": [0, 1, 2]}


def test_a_generator_that_is_dropped_is_cancelled(store: Store) -> None:
    """Closing it, or losing the last reference to it, ends the node; the body's ``finally`` runs inside its own frame."""
    inside: list[str | None] = []

    @agentic_function
    def values() -> Iterator[int]:
        try:
            yield from range(3)
        finally:
            scope = scopes.current.get()
            inside.append(scope and scope.function)

    with session("s", store=store) as recorded:
        next(iter(values()))
        gc.collect()
    assert statuses(recorded) == {"values": "cancelled"}
    assert inside == ["values"]


def test_an_async_generator_that_is_left_is_cancelled(store: Store) -> None:
    """``break`` and then ``aclose`` close its node."""

    @agentic_function
    async def values() -> AsyncIterator[int]:
        for n in range(3):
            yield n

    async def leave() -> None:
        running: Any = values()
        async for _ in running:
            break
        await running.aclose()

    with session("s", store=store) as recorded:
        asyncio.run(leave())
    assert statuses(recorded) == {"values": "cancelled"}


def test_the_consumer_of_a_generator_runs_outside_its_frame(store: Store) -> None:
    """What is called between two values is no child of the generator."""
    runtime, _ = echoing()

    @agentic_function
    def values() -> Iterator[int]:
        yield from range(2)

    with session("s", store=store) as recorded:
        for _ in values():
            runtime.exec("between")
    assert [node.caller for node in asked(recorded)] == [None, None]


def test_past_the_recursion_limit_every_node_closes(store: Store) -> None:
    """A RecursionError deep inside leaves no node running, although there was no stack to write with where it happened."""
    bottom: list[int] = []

    @agentic_function
    def edge() -> None:
        bottom.append(1)

    @agentic_function
    def deep() -> None:
        def down() -> None:
            edge()
            down()

        down()

    with session("s", store=store) as recorded:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(len(inspect.stack(0)) + 150)
        try:
            with pytest.raises(RecursionError):
                deep()
        finally:
            sys.setrecursionlimit(limit)
    assert named(recorded, "deep").status == "error"
    assert bottom
    assert {node.status for node in recorded.nodes()} <= {"completed", "error"}


def test_an_end_that_could_not_be_written_is_written_by_the_next() -> None:
    """Where the stack is used up, closing is left to the call that ends next; each is written once."""
    written: list[str] = []
    stack = [RecursionError()]

    def deep() -> None:
        if stack:
            raise stack.pop()
        written.append("deep")

    scopes.settle(deep)
    assert written == []
    scopes.settle(lambda: written.append("further up"))
    scopes.settle(lambda: written.append("later"))
    assert written == ["further up", "deep", "later"]


def test_cancelling_a_task_cancels_its_nodes(store: Store) -> None:
    """The model call and the functions around it."""

    @agentic_function
    async def outer(runtime: Runtime) -> str:
        return await runtime.async_exec("never answered")

    async def cancelled() -> None:
        asking = asyncio.Event()

        async def answer(content: Any) -> str:
            asking.set()
            await asyncio.Event().wait()
            return "never"

        task = asyncio.create_task(outer(Runtime(call=answer)))
        await asking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with session("s", store=store) as recorded:
        asyncio.run(cancelled())
    assert [(node.role, node.status) for node in recorded.nodes()] == [("code", "cancelled"), ("llm", "cancelled")]


class Failing(MemoryStore):
    """A store that refuses to write from the moment it is told to, with an error of any kind."""

    error: Exception | None = None

    def append(self, call: Call, *, opens: Frame | None = None) -> Call:
        if self.error is not None:
            raise self.error
        return super().append(call, opens=opens)

    def finish(self, close: Close) -> Call:
        if self.error is not None:
            raise self.error
        return super().finish(close)


@pytest.mark.parametrize("error", [StoreError("disk full"), OSError("gone"), ValueError("no such thing")], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("at", ["entry", "exit"])
def test_a_failure_to_record_never_breaks_the_call(error: Exception, at: str, caplog: pytest.LogCaptureFixture) -> None:
    """The function and the model call return their results; the failures are logged and counted."""
    store = Failing()
    runtime, _ = echoing()

    @agentic_function
    def work(runtime: Runtime) -> str:
        if at == "exit":
            store.error = error
        return runtime.exec("go on")

    before = scopes.failures
    with session("s", store=store), caplog.at_level(logging.WARNING, logger="openprogram.record"):
        if at == "entry":
            store.error = error
        assert work(runtime) == "reply to go on"
    assert scopes.failures == before + 2
    assert str(error) in caplog.text


def test_the_instance_of_a_method_is_no_argument(store: Store) -> None:
    """Its repr, with an address, would make every prompt another one."""

    class Shop:
        @agentic_function
        def price(self, x: int) -> int:
            return x

    with session("s", store=store) as recorded:
        Shop().price(1)
        Shop.price(Shop(), 2)
    assert [node.input for node in recorded.nodes()] == [{"x": 1}, {"x": 2}]


def test_a_session_may_be_entered_again_and_nested(store: Store) -> None:
    """Leaving restores what was recorded before; the same session goes on, also as an async context manager."""
    runtime, _ = echoing()
    outer, inner = session("outer", store=store), session("inner", store=store)

    async def later(recorded: Session) -> None:
        async with recorded:
            await runtime.async_exec("again")

    with outer:
        with inner:
            runtime.exec("in")
        runtime.exec("out")
    asyncio.run(later(outer))
    runtime.exec("nowhere")
    assert [len(recorded.nodes()) for recorded in (outer, inner)] == [2, 1]


def test_session_ids_are_checked_and_made_up(store: Store) -> None:
    """An id that cannot be one is a ValueError; without one each session has its own, and the title is kept."""
    with pytest.raises(ValueError, match="id"):
        session("../evil", store=store)
    one, two = session(store=store, title="One"), session(store=store)
    assert one.id != two.id
    assert store.session(one.id).title == "One"
