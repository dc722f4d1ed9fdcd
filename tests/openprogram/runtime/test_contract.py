"""What a Runtime promises, whichever way it is recorded: from scripts, threads, tasks and running loops."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, decision
from openprogram.agentic_programming.session import Session
from openprogram.errors import DecisionError, LLMError, Reason
from openprogram.providers.base import Finish, ModelSettings, Profile, TextDelta, ThinkingDelta, Usage
from openprogram.providers.scripted import Reply, ScriptedProvider

flavour: contextvars.ContextVar[str] = contextvars.ContextVar("flavour", default="none")


def scripted(*replies: Reply, **options: Any) -> Runtime:
    """A runtime on a script."""
    return Runtime(provider=ScriptedProvider(replies, **options))


def last(request: Any) -> str:
    """A reply that repeats the turn's last text."""
    return request.new[-1].blocks[-1]["text"]


async def _in_a_running_loop(runtime: Runtime, text: str) -> str:
    return runtime.exec(text)


async def _gathered(runtime: Runtime, text: str) -> str:
    first, second = await asyncio.gather(runtime.async_exec(text), runtime.async_exec("beside"))
    assert second == "beside"
    return first


def _from_an_async_tool(runtime: Runtime, text: str) -> str:
    """An async option is awaited on the background loop; it uses the sync API there."""

    async def tool() -> str:
        await asyncio.sleep(0)
        return runtime.exec(text)

    return decision.make("pick", [tool], runtime=scripted('{"call": "tool"}'))


def _from_an_async_tool_through_a_function(runtime: Runtime, text: str) -> str:
    """As above, and the model that the tool asks is a sync function which asks one itself, in a thread."""

    def answer(content: Any) -> str:
        return runtime.exec(text)

    async def tool() -> str:
        return Runtime(call=answer).exec("outer")

    return decision.make("pick", [tool], runtime=scripted('{"call": "tool"}'))


CALLERS: dict[str, Callable[[Runtime, str], str]] = {
    "exec": lambda runtime, text: runtime.exec(text),
    "async_exec": lambda runtime, text: asyncio.run(runtime.async_exec(text)),
    "exec inside a running loop": lambda runtime, text: asyncio.run(_in_a_running_loop(runtime, text)),
    "two at once": lambda runtime, text: asyncio.run(_gathered(runtime, text)),
    "exec from an async tool": _from_an_async_tool,
    "exec from a function that an async tool asks": _from_an_async_tool_through_a_function,
    "asyncio.to_thread": lambda runtime, text: asyncio.run(asyncio.to_thread(runtime.exec, text)),
}


@pytest.mark.parametrize("caller", CALLERS)
def test_it_may_be_called_from_anywhere(caller: str, recorded: Session | None) -> None:
    """The same reply, and one model call recorded with it, wherever the call is made."""
    assert CALLERS[caller](scripted(last, repeat=True), "hello") == "hello"
    if recorded is not None:
        assert [node.status for node in recorded.nodes() if node.output == "hello" and node.metadata["provider"] == "scripted"] == ["completed"]


def test_threads_may_share_a_runtime(recorded: Session | None) -> None:
    """Every thread gets its own reply; those that carry the context are recorded, each once."""
    runtime = scripted(last, repeat=True)
    texts = [f"thread {n}" for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(contextvars.copy_context().run, runtime.exec, text) for text in texts]
    assert [future.result() for future in futures] == texts
    if recorded is not None:
        nodes = recorded.nodes()
        assert sorted(node.output for node in nodes) == sorted(texts)
        assert [node.seq for node in nodes] == list(range(1, 25))


def test_threads_with_different_system_texts_do_not_mix(recorded: Session | None) -> None:
    """A function's ``system`` is that of its own calls, whatever other threads do on the same runtime."""
    gate = threading.Barrier(4)
    provider = ScriptedProvider([lambda request: request.system], repeat=True)
    runtime = Runtime(provider=provider)

    def function(n: int) -> Callable[..., str]:
        @agentic_function(system=f"system {n}")
        def work(runtime: Runtime) -> str:
            gate.wait(30)
            return runtime.exec("?")

        return work

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(function(n), runtime) for n in range(4)]
    assert [future.result() for future in futures] == [f"system {n}" for n in range(4)]


async def _async_flavour(content: Any) -> str:
    return flavour.get()


MODELS: dict[str, Callable[..., Any]] = {"sync": lambda content: flavour.get(), "async": _async_flavour}  # pyright: ignore[reportUnknownLambdaType]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("caller", [caller for caller in CALLERS if caller != "two at once"])
def test_context_variables_travel(model: str, caller: str, recorded: Session | None) -> None:
    """A model function sees the caller's ContextVars, on whatever loop or thread it runs."""
    token = flavour.set("vanilla")
    try:
        assert CALLERS[caller](Runtime(call=MODELS[model]), "?") == "vanilla"
    finally:
        flavour.reset(token)


def test_choices_return_the_result_of_the_pick(recorded: Session | None) -> None:
    """A free turn whose last reply picks; one closing request follows when it does not."""

    def double(x: int) -> int:
        return 2 * x

    picked = '{"call": "double", "args": {"x": 4}}'
    assert scripted(picked).exec("?", choices=[double]) == 8
    provider = ScriptedProvider(["I would double it.", picked], profile=Profile(schema=True))
    assert Runtime(provider=provider).exec("?", choices=[double]) == 8
    assert [request.constraint is not None for request in provider.requests] == [False, True]
    assert asyncio.run(scripted(picked).async_exec("?", choices=[double])) == 8


def test_a_pick_in_two_requests(recorded: Session | None) -> None:
    """A profile may ask for the name under a grammar and then for that option's arguments under its schema: one call, usage summed."""
    profile = Profile(two_step_pick=True, schema=True, grammar=True)

    def reply(text: str) -> Reply:
        return [TextDelta(text), Finish(usage=Usage(input_tokens=10, output_tokens=2))]

    def refund(order_id: int) -> str:
        """Pay back."""
        return f"refunded {order_id}"

    provider = ScriptedProvider([reply("refund"), reply('{"order_id": 1234}'), reply("close")], profile=profile)
    runtime = Runtime(provider=provider)
    assert decision.make("Refund 1234, please.", [refund, "close"], runtime=runtime) == "refunded 1234"
    assert runtime.last_usage is not None
    assert (runtime.last_usage["input_tokens"], runtime.last_usage["total_tokens"]) == (20, 24)
    name, arguments = (request.constraint for request in provider.requests)
    assert name is not None
    assert name.grammar == 'root ::= "refund" | "close"'
    assert arguments is not None
    assert arguments.schema is not None
    assert list(arguments.schema["properties"]) == ["order_id"]
    assert "1234" in provider.requests[1].new[-1].blocks[-1]["text"]
    assert decision.make("Close it.", [refund, "close"], runtime=runtime) == "close"
    assert len(provider.requests) == 3
    if recorded is not None:
        assert [node.metadata["pick"]["name"] for node in recorded.nodes()] == ["refund", "close"]


def test_no_valid_pick_is_a_decision_error_with_the_nodes(recorded: Session | None) -> None:
    """It counts the attempts and names the model calls that were made."""
    with pytest.raises(DecisionError) as caught:
        decision.make("?", ["a", "b"], runtime=scripted("c", "d"))
    assert caught.value.attempts == 2
    assert list(caught.value.node_ids) == ([node.id for node in recorded.nodes()] if recorded else [])


def test_streaming_delivers_pieces_in_order(recorded: Session | None) -> None:
    """Text and thinking as they come; what a consumer raises reaches the caller as it is, and nothing is tried again (d31)."""
    events: list[dict[str, Any]] = []
    runtime = scripted([ThinkingDelta("hm"), TextDelta("a"), TextDelta("b"), Finish()], repeat=True)
    runtime.on_stream = events.append
    assert runtime.exec("?") == "ab"
    assert events == [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    def breaking(event: dict[str, Any]) -> None:
        events.append(event)
        raise ValueError("the view is gone")

    runtime.on_stream = breaking
    events.clear()
    with pytest.raises(ValueError, match="the view is gone"):
        runtime.exec("?")
    assert len(events) == 1
    assert recorded is None or [node.status for node in recorded.nodes()] == ["completed", "error"]


def test_model_and_settings_of_a_call_replace_those_of_the_runtime() -> None:
    """Field by field; an unknown setting is a ValueError that names the known ones."""
    provider = ScriptedProvider(["a"], repeat=True)
    runtime = Runtime(provider=provider, model="big", model_settings={"temperature": 0.5, "seed": 1})
    runtime.exec("?")
    runtime.exec("?", model="small", model_settings={"seed": 2})
    assert [request.model for request in provider.requests] == ["big", "small"]
    assert [request.settings for request in provider.requests] == [ModelSettings(temperature=0.5, seed=1), ModelSettings(temperature=0.5, seed=2)]
    with pytest.raises(ValueError, match=r"temprature.*temperature"):
        runtime.exec("?", model_settings={"temprature": 1})


ASKING: list[Callable[[Runtime], Any]] = [
    lambda runtime: runtime.exec("?"),
    lambda runtime: asyncio.run(runtime.async_exec("?")),
    lambda runtime: decision.make("?", ["a"], runtime=runtime),
]


@pytest.mark.parametrize("use", ASKING, ids=["exec", "async_exec", "decision.make"])
def test_a_closed_runtime_refuses(use: Callable[[Runtime], Any], recorded: Session | None) -> None:
    """RuntimeError, whichever way it is asked; closing closes the provider, may happen twice, and is what leaving ``with`` does."""
    provider = ScriptedProvider(["a"])
    with Runtime(provider=provider) as runtime:
        pass
    runtime.close()
    assert provider.closed
    with pytest.raises(RuntimeError, match="closed"):
        use(runtime)


def test_a_runtime_without_a_model_says_so() -> None:
    """NotImplementedError at the first call, with what to pass; an unknown provider is refused when the runtime is made."""
    with pytest.raises(NotImplementedError, match="call="):
        Runtime().exec("?")
    with pytest.raises(ValueError, match="nonesuch"):
        Runtime(model="nonesuch:model")


CONTENTS: list[tuple[Any, type[Exception], str]] = [
    (3, TypeError, "int"),
    ([3], TypeError, "3"),
    ([{"text": "no type"}], TypeError, "type"),
    ([{"type": "text"}], ValueError, "text"),
    ([{"type": "text", "text": "x", "role": "tool"}], ValueError, "role"),
    ([{"type": "image", "path": "no/such/file.png"}], FileNotFoundError, "no/such/file.png"),
]


@pytest.mark.parametrize(("content", "kind", "named"), CONTENTS)
def test_bad_content_is_refused_before_any_request(content: Any, kind: type[Exception], named: str, recorded: Session | None) -> None:
    """At once, with what was wrong; nothing is asked and nothing recorded."""
    provider = ScriptedProvider([])
    with pytest.raises(kind, match=named):
        Runtime(provider=provider).exec(content)
    assert provider.requests == []
    assert recorded is None or recorded.nodes() == []


def test_a_budget_of_time_ends_a_call(recorded: Session | None) -> None:
    """``timeout_s`` ends the call with reason TIMEOUT although the model function is still busy, and its node is an error."""
    release = threading.Event()

    def busy(content: Any) -> str:
        release.wait(60)
        return "late"

    try:
        with pytest.raises(LLMError, match=r"timeout_s=0\.05") as caught:
            Runtime(call=busy).exec("?", timeout_s=0.05)
    finally:
        release.set()
    assert (caught.value.reason, caught.value.retryable) == (Reason.TIMEOUT, False)
    assert recorded is None or [node.status for node in recorded.nodes()] == ["error"]


def test_the_budget_of_time_includes_the_waits_between_attempts(monkeypatch: pytest.MonkeyPatch, recorded: Session | None) -> None:
    """Nobody waits a minute for the next attempt with a twentieth of a second left; the environment sets the same budget."""
    monkeypatch.setenv("OPENPROGRAM_RETRY_BACKOFF_BASE", "60")
    monkeypatch.setenv("OPENPROGRAM_EXEC_TIMEOUT_S", "0.05")
    with pytest.raises(LLMError) as caught:
        scripted(LLMError("busy", retryable=True), repeat=True).exec("?")
    assert caught.value.reason == Reason.TIMEOUT


async def _never(content: Any) -> str:
    await asyncio.Event().wait()
    return "never"


def test_outside_cancellation_ends_async_exec(recorded: Session | None) -> None:
    """Cancelling the task ends the request and leaves a cancelled node."""

    async def cancelled() -> None:
        task = asyncio.create_task(Runtime(call=_never).async_exec("?"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert recorded is None or {node.status for node in recorded.nodes()} <= {"cancelled"}


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are sent to a thread")
def test_an_interrupt_of_the_waiting_thread_leaves_a_cancelled_node(recorded: Session | None) -> None:
    """Ctrl-C while a model is asked: KeyboardInterrupt comes out, and the model call and the function around it are closed."""
    main = threading.main_thread().ident
    assert main is not None
    assert threading.get_ident() == main

    async def interrupted(content: Any) -> str:
        signal.pthread_kill(main, signal.SIGINT)
        return await _never(content)

    @agentic_function
    def work(runtime: Runtime) -> str:
        return runtime.exec("?")

    with pytest.raises(KeyboardInterrupt):
        work(Runtime(call=interrupted))
    assert recorded is None or [(node.role, node.status) for node in recorded.nodes()] == [("code", "cancelled"), ("llm", "cancelled")]


ERRORS: dict[str, Callable[[], Any]] = {
    "a failed request": lambda: scripted(LLMError("no", reason="auth", http_status=401)).exec("?"),
    "no pick": lambda: decision.make("?", ["a"], runtime=scripted("x", "y")),
    "time is up": lambda: Runtime(call=_never).exec("?", timeout_s=0.01),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_travel_between_processes(error: str, recorded: Session | None) -> None:
    """A process pool gets the error as it was raised, with all its fields."""
    with pytest.raises((LLMError, DecisionError)) as caught:
        ERRORS[error]()
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)
    assert vars(again) == vars(caught.value)


def test_without_a_store_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A function and a model call outside of any session leave no file in the home, nor is the folder made."""
    home = tmp_path / "home"
    monkeypatch.setenv("OPENPROGRAM_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    @agentic_function
    def work(runtime: Runtime) -> str:
        return runtime.exec("?")

    assert work(scripted("a")) == "a"
    assert list(tmp_path.iterdir()) == []
