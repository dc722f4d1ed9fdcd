"""A model of one's own: ``Runtime(call=…)`` and subclasses that override ``_call``."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from openprogram import Runtime, agentic_function
from openprogram.agentic_programming.session import Session
from openprogram.errors import NoModelError

Content = list[dict[str, Any]]


def sync(content: Content, model: str = "m", response_format: Any = None) -> str:
    """The documented signature."""
    return f"{content[-1]['text']} on {model}"


async def awaited(content: Content, model: str = "m", response_format: Any = None) -> str:
    """The same, async."""
    await asyncio.sleep(0)
    return f"{content[-1]['text']} on {model}"


def keywords(content: Content, **options: Any) -> str:
    """Takes whatever there is."""
    return f"{content[-1]['text']} on {options['model']}"


def only_model(content: Content, *, model: str) -> str:
    """Leaves the format out."""
    return f"{content[-1]['text']} on {model}"


def hands_over(content: Content, model: str) -> Awaitable[str]:
    """Plain itself, but what it returns is to be awaited."""
    return awaited(content, model)


class Model:
    """Callables and methods."""

    def __call__(self, content: Content, model: str) -> str:
        return f"{content[-1]['text']} on {model}"

    async def method(self, content: Content, model: str) -> str:
        """Async and bound."""
        return f"{content[-1]['text']} on {model}"


class AsyncModel:
    """A callable whose call is a coroutine."""

    async def __call__(self, content: Content, model: str) -> str:
        return f"{content[-1]['text']} on {model}"


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sync": sync,
    "async": awaited,
    "lambda": lambda content, model: f"{content[-1]['text']} on {model}",  # pyright: ignore[reportUnknownLambdaType]
    "a function that returns a coroutine": hands_over,
    "**keywords": keywords,
    "keyword-only": only_model,
    "a callable": Model(),
    "an async method": Model().method,
    "an async callable": AsyncModel(),
    "a partial": functools.partial(sync, response_format=None),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_any_callable_may_answer(function: str, recorded: Session | None) -> None:
    """Sync or async; parameters that it does not take are left out."""
    runtime = Runtime(call=FUNCTIONS[function], model="mine")
    assert runtime.exec("hi") == "hi on mine"
    assert asyncio.run(runtime.async_exec("hi")) == "hi on mine"


def test_a_function_of_the_content_alone() -> None:
    """The other parameters are optional."""

    def yes(content: Content) -> str:
        return "yes"

    assert Runtime(call=yes).exec("?") == "yes"


def test_a_function_without_parameters_is_refused() -> None:
    """When the runtime is made, with the signature that is wanted."""
    with pytest.raises(NoModelError, match="content"):
        Runtime(call=lambda: "yes")


class Recording:
    """A model function that keeps what it was given."""

    def __init__(self) -> None:
        self.contents: list[Content] = []

    def __call__(self, content: Content) -> str:
        self.contents.append(content)
        return f"reply {len(self.contents)}"


def text(value: str, role: str | None = None) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": value, **({"role": role} if role else {})}


def test_the_prompt_is_all_that_a_function_is_given() -> None:
    """No persona, no menu, no remark: the blocks of the call, and the system text if one is set."""
    model = Recording()
    runtime = Runtime(call=model)

    @agentic_function
    def work(runtime: Runtime) -> str:
        """Work."""
        return runtime.exec("inside")

    runtime.exec("hi")
    work(runtime)
    runtime.system = "Be brief."
    runtime.exec("hi")
    assert model.contents == [[text("hi")], [text("inside")], [text("Be brief.", "system"), text("hi")]]


BLOCKS: list[dict[str, Any]] = [
    {"type": "image", "data": "aGk=", "mime_type": "image/png", "cache_control": {"type": "ephemeral"}},
    {"type": "text", "text": "what is this?"},
    {"type": "audio", "data": "aGk=", "mime_type": "audio/wav"},
    {"type": "invented", "payload": object(), "raw": b"\xff", "pair": (1, 2)},
]


def test_blocks_arrive_unchanged(recorded: Session | None) -> None:
    """Images, media and types that nobody knows reach the function as the very objects that were passed, in order, whether recorded or not."""
    model = Recording()
    Runtime(call=model).exec(BLOCKS)
    assert len(model.contents[0]) == len(BLOCKS)
    assert all(given is block for given, block in zip(model.contents[0], BLOCKS, strict=True))


def test_the_history_comes_first_with_roles(recorded: Session | None) -> None:
    """Earlier turns as flat blocks, each text with its role and media as they were, then this turn without additions."""
    model = Recording()
    runtime = Runtime(call=model)
    image = {"type": "image", "data": "aGk=", "mime_type": "image/png"}
    runtime.exec([image, text("one")])
    runtime.exec("two")
    history = [image, text("one", "user"), text("reply 1", "assistant")] if recorded is not None else []
    assert model.contents[1] == [*history, text("two")]


def test_history_inside_a_function(recorded: Session | None) -> None:
    """With the entry line of the function, as for any provider."""
    model = Recording()

    @agentic_function
    def work(x: int, runtime: Runtime) -> str:
        """Work."""
        runtime.exec("one")
        return runtime.exec("two")

    work(1, Runtime(call=model))
    history = [text("Work.\n\nwork(x=1)", "user"), text("one", "user"), text("reply 1", "assistant")] if recorded is not None else []
    assert model.contents[1] == [*history, text("two")]


class Overriding(Runtime):
    """Brings its own model."""

    def __init__(self) -> None:
        super().__init__(model="own", max_retries=1)
        self.seen: list[tuple[Content, str, Content]] = []

    def _call(self, content: Content, model: str = "default", response_format: Any = None) -> str:
        self.seen.append((content, model, self.history()))
        return f"reply {len(self.seen)}"


class OverridingAsync(Runtime):
    """The same, async."""

    async def _call(self, content: Content, model: str = "default", response_format: Any = None) -> str:
        await asyncio.sleep(0)
        return f"{content[0]['text']} on {model}, {len(self.history())} before"


class OverridingBoth(Overriding):
    """Sync and async."""

    async def _async_call(self, content: Content, model: str = "default", response_format: Any = None) -> str:
        await asyncio.sleep(0)
        return f"async {content[0]['text']}"


class OverridingTheTwin(Runtime):
    """Nothing but the async one."""

    async def _async_call(self, content: Content, model: str = "default", response_format: Any = None) -> str:
        return f"async {content[0]['text']} {model}"


def test_an_overridden_async_call_is_what_async_methods_use() -> None:
    """Beside an overridden ``_call``; alone it answers every method."""
    both, alone = OverridingBoth(), OverridingTheTwin(model="own")
    assert (both.exec("one"), asyncio.run(both.async_exec("two"))) == ("reply 1", "async two")
    assert (alone.exec("one"), asyncio.run(alone.async_exec("two"))) == ("async one own", "async two own")


def test_an_overridden_call_receives_this_turn_and_asks_for_the_rest(recorded: Session | None) -> None:
    """Only the turn's blocks come as content; `Runtime.history` gives what was before, and is empty outside of a call."""
    runtime = Overriding()
    assert runtime.exec("one") == "reply 1"
    assert runtime.exec("two") == "reply 2"
    before = [text("one", "user"), text("reply 1", "assistant")] if recorded is not None else []
    assert runtime.seen == [([text("one")], "own", []), ([text("two")], "own", before)]
    assert runtime.history() == []


def test_an_overridden_call_may_be_async(recorded: Session | None) -> None:
    """It is awaited, and what it answers is over when it returned."""

    async def ask() -> str:
        runtime = OverridingAsync(model="own")
        await runtime.async_exec("one")
        reply = await runtime.async_exec("two")
        assert runtime.history() == []
        return reply

    assert asyncio.run(ask()) == f"two on own, {2 if recorded is not None else 0} before"


@pytest.mark.parametrize("reply", [None, 3, b"bytes", {"json": 1}, ["list"]])
def test_a_reply_that_is_no_text_is_a_type_error(reply: Any, recorded: Session | None) -> None:
    """Raised at once, saying what came instead; the node is an error."""
    calls: list[Content] = []

    def wrong(content: Content) -> Any:
        calls.append(content)
        return reply

    with pytest.raises(TypeError, match=type(reply).__name__):
        Runtime(call=wrong).exec("?")
    assert len(calls) == 1
    assert recorded is None or [node.status for node in recorded.nodes()] == ["error"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(4)], ids=lambda error: type(error).__name__)
def test_what_ends_a_program_passes_through(error: BaseException, recorded: Session | None) -> None:
    """Raised in the function, it reaches the caller as it is, and the next call still works."""

    def ending(content: Content) -> str:
        raise error

    with pytest.raises(type(error)):
        Runtime(call=ending).exec("?")
    assert Runtime(call=sync).exec("on") == "on on default"


def test_stop_iteration_is_an_error_like_others() -> None:
    """A future cannot hold one; it must not hang the caller."""

    def stopping(content: Content) -> str:
        raise StopIteration

    with pytest.raises(Exception, match="StopIteration"):
        Runtime(call=stopping, max_retries=1).exec("?")


def test_functions_that_ask_each_other_do_not_run_out_of_threads() -> None:
    """Forty levels of a model function that asks the next one; a pool of threads would wait for itself."""

    def level(n: int) -> Runtime:
        def answer(content: Content) -> str:
            return "bottom" if n == 0 else level(n - 1).exec("?")

        return Runtime(call=answer)

    assert level(40).exec("?") == "bottom"
