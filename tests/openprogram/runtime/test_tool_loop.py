"""`exec` with tools: the model calls, the calls run, the results go back, until it answers in words; whichever way it is recorded."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, function
from openprogram.agentic_programming.function import CancelledError
from openprogram.agentic_programming.session import Session
from openprogram.errors import LLMError, Reason, UsageError
from openprogram.providers.base import Finish, Opaque, Profile, TextDelta, ToolCall
from openprogram.providers.scripted import ScriptedProvider
from tests.openprogram.tools import calling, names, result_of, results, scripted

flavour: contextvars.ContextVar[str] = contextvars.ContextVar("flavour", default="none")


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


async def later(a: int) -> int:
    """Add one, later."""
    await asyncio.sleep(0)
    return a + 1


def test_calls_run_and_their_results_go_back(recorded: Session | None) -> None:
    """Both calls of a reply, sync and async; the next request ends with what was called and the results in call order; each call is a node of its exec."""
    runtime, provider = scripted(calling(("add", {"a": "1", "b": 2}), ("later", {"a": 1}), text="let me see"), "three and two")
    assert runtime.exec("?", tools=[add, later]) == "three and two"
    assert names(provider.requests[0]) == ["add", "later"]
    _, said, told = provider.requests[1].new
    assert [block["type"] for block in said.blocks] == ["text", "tool_call", "tool_call"]
    assert told.blocks == (
        {"type": "tool_result", "id": "call_0", "name": "add", "text": "3", "is_error": False},
        {"type": "tool_result", "id": "call_1", "name": "later", "text": "2", "is_error": False},
    )
    if recorded is not None:
        model, *calls = recorded.nodes()
        assert {(node.name, node.status, node.output, node.caller) for node in calls} == {
            ("add", "completed", 3, model.id),
            ("later", "completed", 2, model.id),
        }
        assert [message.role for message in provider.prompts[1]] == ["user", "assistant", "tool"]
        runtime, provider = scripted("hm")
        runtime.exec("again", tools=[])
        assert [message.role for message in provider.prompts[0]] == ["user", "assistant", "tool", "assistant", "user"]


def test_an_agentic_function_as_a_tool_writes_one_node(recorded: Session | None) -> None:
    """Its calls are inside it, its runtime is the one that was asked, and the exec outside is one entry of the log."""

    @agentic_function
    def inner(name: str, runtime: Any = None) -> str:
        """Ask further."""
        assert runtime is outer
        return runtime.exec(f"inner {name}", tools=[])

    outer, provider = scripted(calling(("inner", {"name": "Ada"})), "inner reply", "end")
    assert outer.exec("?", tools=[inner]) == "end"
    assert results(provider.requests[2])[0]["text"] == "inner reply"
    if recorded is not None:
        first, tool, second = recorded.nodes()
        assert (first.role, tool.name, tool.output, tool.caller, second.caller) == ("llm", "inner", "inner reply", first.id, tool.id)
        assert tool.metadata["tool_call"] == "call_0"


def test_a_hidden_function_writes_nothing_as_a_tool(recorded: Session | None) -> None:
    """The exec that called it shows the call and its result, and there is no node."""

    @agentic_function(expose="hidden")
    def secret(runtime: Any = None) -> str:
        return runtime.exec("hidden question", tools=[])

    runtime, _ = scripted(calling(("secret", {})), "hidden reply", "end")
    runtime.exec("?", tools=[secret])
    if recorded is not None:
        assert [node.role for node in recorded.nodes()] == ["llm"]


def boom(text: str = "") -> None:
    """Fail."""
    raise ValueError(text)


FAILURES: list[tuple[Callable[[], Any], str]] = [
    (lambda: boom(""), "ValueError"),
    (lambda: boom("429 rate limit exceeded, retry after 30s"), "ValueError: 429 rate limit exceeded"),
    (lambda: next(iter(())), "StopIteration"),
    (lambda: (_ for _ in ()).throw(RecursionError("deep")), "RecursionError: deep"),
    (lambda: (_ for _ in ()).throw(TimeoutError("slow")), "TimeoutError: slow"),
    (lambda: (_ for _ in ()).throw(LLMError("inner", retryable=True)), "LLMError: inner"),
    (lambda: (_ for _ in ()).throw(ExceptionGroup("g", [ValueError("a")])), "- ValueError: a"),
    (lambda: (_ for _ in ()).throw(asyncio.CancelledError()), "cancelled"),
    (lambda: object(), "which JSON cannot hold"),  # noqa: PLW0108 - a lambda like the others
]


@pytest.mark.parametrize(("work", "told"), FAILURES)
def test_a_failure_is_a_result_for_the_model(work: Callable[[], Any], told: str, recorded: Session | None) -> None:
    """c28, c29: whatever a tool raises or returns, the model is told, nothing is tried again and the loop goes on; the node reads error."""
    runs: list[int] = []

    def tool() -> Any:
        runs.append(1)
        return work()

    runtime, provider = scripted(calling(("tool", {})), "noted")
    assert runtime.exec("?", tools=[tool]) == "noted"
    (block,) = results(provider.requests[1])
    assert block["is_error"] is True
    assert told in block["text"]
    assert (len(runs), len(provider.requests)) == (1, 2)
    if recorded is not None:
        assert [node.status for node in recorded.nodes() if node.name == "tool"] in (["error"], ["cancelled"])


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit, CancelledError])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_ends_a_run_goes_through(fatal: type[BaseException], is_async: bool, recorded: Session | None) -> None:
    """c28: an interrupt, an exit or a cancellation reaches the caller, every node is closed, and the loop lives on."""

    async def slow() -> None:
        if is_async:
            raise fatal("now")
        await asyncio.sleep(30)

    def quick() -> None:
        if not is_async:
            raise fatal("now")

    runtime, _ = scripted(calling(("slow", {}), ("quick", {})), "never")
    with pytest.raises(fatal):
        runtime.exec("?", tools=[slow, quick])
    if recorded is not None:
        assert {node.status for node in recorded.nodes()} <= {"completed", "error", "cancelled"}
    assert scripted("alive")[0].exec("?", tools=[]) == "alive"


BAD_CALLS: list[tuple[str, str, str]] = [
    ("nope", "{}", "there is no tool 'nope'"),
    ("ad", "{}", "Did you mean add?"),
    ("add", '{"a": ', "no JSON object"),
    ("add", "[1]", "a JSON object of the parameters"),
    ("add", '"x"', "no JSON object"),
    ("add", "[" * 100_000, "nested too deeply"),
    ("add", "null", "missing a"),
    ("add", "", "missing a"),
    ("add", '{"a": "x"}', "expected an integer"),
    ("add", '{"a": "' + "y" * 100_000 + '"}', "expected an integer"),
]


@pytest.mark.parametrize(("name", "arguments", "told"), BAD_CALLS)
def test_a_call_that_cannot_run_is_told(name: str, arguments: str, told: str, recorded: Session | None) -> None:
    """c23, c24: the message is short, the call goes back with arguments that are an object, and the text as written is kept."""
    runtime, provider = scripted(calling((name, arguments)), "noted")
    assert runtime.exec("?", tools=[add]) == "noted"
    (block,) = results(provider.requests[1])
    assert block["is_error"] is True
    assert told in block["text"]
    assert len(block["text"]) < 400
    sent = provider.requests[1].new[1].blocks[-1]
    assert isinstance(sent["args"], dict)
    assert sent.get("raw", arguments) == arguments


def test_arguments_that_are_a_json_text_are_read() -> None:
    """Some models encode them twice."""
    assert result_of(add, '"{\\"a\\": 1}"')["text"] == "2"


def test_calls_of_a_reply_that_was_cut_off_do_not_run() -> None:
    """c20: half a file is not written, also when the arguments happen to parse."""
    runtime, provider = scripted(calling(("boom", {}), reason="length"), "shorter")
    assert runtime.exec("?", tools=[boom]) == "shorter"
    assert "token limit" in results(provider.requests[1])[0]["text"]


def test_call_ids_are_unique_and_no_call_is_made_twice(recorded: Session | None) -> None:
    """A repeated id is renamed, in one reply and over replies; the same call delivered twice runs once."""
    runs: list[int] = []

    def note(n: int) -> str:
        runs.append(n)
        return str(n)

    same = [ToolCall("x", "note", '{"n":1}'), ToolCall("x", "note", '{"n":1}'), ToolCall("x", "note", '{"n":2}'), ToolCall("", "note", '{"n":3}')]
    runtime, provider = scripted([*same, Finish()], [ToolCall("x", "note", '{"n":4}'), Finish()], "end")
    runtime.exec("?", tools=[note])
    assert sorted(runs) == [1, 2, 3, 4]
    ids = [block["id"] for message in provider.requests[2].new for block in message.blocks if block["type"] == "tool_result"]
    assert ids == ["x", "x_2", "call", "x_3"]


def test_a_failed_request_does_not_run_tools_again(recorded: Session | None) -> None:
    """c07: the tool ran once, and the repeated request carries the same result."""
    runs: list[int] = []

    def charge() -> str:
        runs.append(1)
        return "charged"

    failure = LLMError("busy", reason=Reason.SERVER, retryable=True)
    runtime, provider = scripted(calling(("charge", {})), failure, failure, "done")
    assert runtime.exec("?", tools=[charge]) == "done"
    assert runs == [1]
    assert provider.requests[1].new == provider.requests[2].new == provider.requests[3].new


@pytest.mark.parametrize(("limit", "requests"), [(3, 3), (1, 1), (0, 1)])
def test_the_rounds_are_limited(limit: int, requests: int, recorded: Session | None) -> None:
    """c13: the last text comes back and the node says why; without any text it is an LLMError that names the limit."""
    runtime, provider = scripted(calling(("add", {"a": 1})), repeat=True)
    with pytest.raises(LLMError, match=f"max_iterations={requests}") as caught:
        runtime.exec("?", tools=[add], max_iterations=limit)
    assert (caught.value.reason, len(provider.requests)) == (Reason.MAX_ITERATIONS, requests)
    runtime, provider = scripted(calling(("add", {"a": 1}), text="so far"), repeat=True)
    assert runtime.exec("?", tools=[add], max_iterations=limit) == "so far"
    if recorded is not None:
        assert [node.metadata.get("finish_reason") for node in recorded.nodes() if node.role == "llm"][-1] == "max_iterations"


def test_the_turn_may_end_in_a_choice(recorded: Session | None) -> None:
    """Tools first, then the pick; the closing question after a reply without one offers no tools."""
    runtime, provider = scripted(calling(("add", {"a": 1})), "I would stop.", '{"call": "stop"}')
    assert runtime.exec("?", tools=[add], choices={"stop": "STOPPED", "go": "GONE"}) == "STOPPED"
    assert [len(request.tools) for request in provider.requests] == [1, 1, 0]


def test_sync_tools_do_not_block_the_loop_and_see_the_context() -> None:
    """e05: two blocking tools run at once, beside a loop that keeps turning, with the caller's context variables."""
    running: list[int] = []
    turning = threading.Event()

    def slow(n: int) -> str:
        running.append(n)
        assert turning.wait(30)
        return flavour.get()

    async def main() -> str:
        flavour.set("vanilla")
        task = asyncio.ensure_future(runtime.async_exec("?", tools=[slow]))
        while len(running) < 2 and not task.done():
            await asyncio.sleep(0.01)
        turning.set()
        return await task

    runtime, provider = scripted(calling(("slow", {"n": 1}), ("slow", {"n": 2})), "done")
    assert asyncio.run(main()) == "done"
    assert [block["text"] for block in results(provider.requests[1])] == ["vanilla", "vanilla"]


def test_calls_run_one_after_another_when_asked() -> None:
    """``parallel_tool_calls=False`` is passed on, and holds for what the model calls all the same."""
    running: list[int] = []

    async def alone(n: int) -> None:
        assert running == []
        running.append(n)
        await asyncio.sleep(0)
        running.pop()

    runtime, provider = scripted(calling(*(("alone", {"n": n}) for n in range(3))), "done")
    runtime.exec("?", tools=[alone], parallel_tool_calls=False)
    assert provider.requests[0].parallel_tool_calls is False
    assert [block["is_error"] for block in results(provider.requests[1])] == [False] * 3


def test_cancelling_ends_a_tool_and_its_late_result_is_not_seen(recorded: Session | None) -> None:
    """c08: the caller hears of it at once, the nodes read cancelled, the tool cleans up, and the next exec knows nothing of it."""
    cleaned = threading.Event()
    started = threading.Event()

    async def slow() -> str:
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            cleaned.set()
        return "late"

    async def main() -> None:
        runtime, _ = scripted(calling(("slow", {})), "never")
        task = asyncio.ensure_future(runtime.async_exec("?", tools=[slow]))
        while not started.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned.is_set()
        runtime, provider = scripted("hm")
        await runtime.async_exec("next", tools=[])
        assert [message.role for message in provider.prompts[0]] == ["user"]

    asyncio.run(main())
    if recorded is not None:
        assert [node.status for node in recorded.nodes()] == ["cancelled", "cancelled", "completed"]


@pytest.mark.parametrize("how", ["exec", "async_exec"])
def test_a_tool_out_of_time_is_told(how: str, recorded: Session | None) -> None:
    """c09: blocking or not, the model is told when the time is over, and what comes later is thrown away."""
    release = threading.Event()

    @function(timeout=0.05, register_globally=False)
    def blocking() -> str:
        release.wait(30)
        return "late"

    @function(timeout=0.05, register_globally=False)
    async def waiting() -> str:
        await asyncio.sleep(30)
        return "late"

    runtime, provider = scripted(calling(("blocking", {}), ("waiting", {})), "done")
    if how == "exec":
        runtime.exec("?", tools=[blocking, waiting])
    else:
        asyncio.run(runtime.async_exec("?", tools=[blocking, waiting]))
    release.set()
    assert all("was not done after 0.05 seconds" in block["text"] and block["is_error"] for block in results(provider.requests[1]))
    if recorded is not None:
        assert [node.status for node in recorded.nodes()[1:]] == ["error", "error"]


def test_a_tool_may_ask_the_model_itself() -> None:
    """e14, e17: a sync exec in sync and async tools, three deep; the inner calls have no tools, stream or time limit of the outer one."""
    told: list[Any] = []
    asked: list[Any] = []

    def make(depth: int) -> Any:
        async def deeper() -> str:
            request = ScriptedProvider([calling(("deeper", {})), f"depth {depth}"] if depth else ["bottom"], profile=Profile())
            inner = Runtime(provider=request)
            asked.append(request)
            return inner.exec("inner", tools=[make(depth - 1)] if depth else [])

        return deeper

    runtime, provider = scripted(calling(("deeper", {})), "end")
    runtime.on_stream = told.append
    assert runtime.exec("?", tools=[make(3)], timeout_s=60) == "end"
    assert results(provider.requests[1])[0]["text"] == "depth 3"
    assert [event["type"] for event in told] == ["tool_use", "tool_result", "text"]
    assert len(asked) == 4


def test_what_a_provider_wants_back_goes_back() -> None:
    """c19: a signed thought stands where it stood, before the calls."""
    thought = Opaque("scripted", "m", {"signature": "S"})
    runtime, provider = scripted([thought, TextDelta("a"), TextDelta("b"), ToolCall("1", "add", '{"a":1}'), Finish()], "end")
    runtime.exec("?", tools=[add])
    assert [block["type"] for block in provider.requests[1].new[1].blocks] == ["opaque", "text", "tool_call"]
    assert provider.requests[1].new[1].blocks[1]["text"] == "ab"


def test_a_model_without_tools_is_not_offered_any() -> None:
    """What is registered is left out silently; what the call names is an error before any request."""
    function(add)
    runtime, provider = scripted("hm", profile=Profile(tools=False))
    assert runtime.exec("?") == "hm"
    assert provider.requests[0].tools == ()
    named: list[dict[str, Any]] = [{"tools": [add]}, {"toolset": "full"}]
    for said in named:
        with pytest.raises(UsageError, match=r"takes no tools.*\(add\)"):
            runtime.exec("?", **said)
    assert len(provider.requests) == 1


def test_a_timeout_bounds_the_whole_loop(recorded: Session | None) -> None:
    """``timeout_s`` ends an exec whose tool does not come back."""
    release = threading.Event()

    def stuck() -> None:
        release.wait(60)

    runtime, _ = scripted(calling(("stuck", {})), "never")
    with pytest.raises(LLMError, match=r"timeout_s=0\.1") as caught:
        runtime.exec("?", tools=[stuck], timeout_s=0.1)
    release.set()
    assert caught.value.reason == Reason.TIMEOUT
