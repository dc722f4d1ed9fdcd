"""`llm`: one plain request on the runtime of the surroundings."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, llm, session
from openprogram.agentic_programming.llm import allm
from openprogram.errors import LLMError, Reason
from openprogram.store.memory import MemoryStore
from tests.openprogram.decision.scripts import scripted, shown


def test_it_is_one_request_on_the_ambient_runtime() -> None:
    """Without tools or a menu: the prompt goes as it is, the text comes back, and the node belongs to the function around it."""
    runtime, provider = scripted("words")

    @agentic_function
    def write(runtime: Runtime) -> str:
        return llm("Say something.")

    with session("llm", store=MemoryStore()) as record:
        assert write(runtime) == "words"
        roles = [(node.role, node.output) for node in record.nodes()]
    assert roles == [("code", "words"), ("llm", "words")]
    (request,) = provider.requests
    assert request.tools == () and request.constraint is None
    assert shown(provider.prompts[0]).endswith("Say something.")


def test_it_sees_what_an_exec_sees() -> None:
    """f4: a ``call=`` function receives the history of the frame, then the prompt."""
    contents: list[list[dict[str, Any]]] = []

    def answer(content: list[dict[str, Any]]) -> str:
        contents.append(content)
        return "noted"

    @agentic_function
    def work(runtime: Runtime) -> str:
        runtime.exec("Remember 42.")
        return llm("What was it?")

    with session("history", store=MemoryStore()):
        work(Runtime(call=answer))
    texts = [block["text"] for block in contents[1]]
    assert texts[-1] == "What was it?"
    assert any("Remember 42." in text for text in texts) and "noted" in texts


@pytest.mark.parametrize("prompt", ["Go.", [{"type": "text", "text": "Go."}]])
def test_system_and_settings_travel(prompt: Any) -> None:
    """A system text is added to that of the runtime; model and settings are those of the call."""
    runtime, provider = scripted("ok")
    runtime.system = "Be brief."
    assert llm(prompt, system="Be kind.", runtime=runtime, model="other", model_settings={"seed": 7}) == "ok"
    (request,) = provider.requests
    assert request.system == "Be brief.\n\nBe kind."
    assert (request.model, request.settings.seed) == ("other", 7)
    assert shown(provider.prompts[0]) == "Go."


def test_the_async_twin_runs_on_the_callers_loop() -> None:
    """Two of them at once, below one function, both recorded."""
    runtime, provider = scripted("a", "b")

    @agentic_function
    async def both(runtime: Runtime) -> list[str]:
        return list(await asyncio.gather(allm("One.", system="Be kind."), allm("Two.")))

    with session("async", store=MemoryStore()) as record:
        assert sorted(asyncio.run(both(runtime))) == ["a", "b"]
        assert sorted(str(node.output) for node in record.nodes() if node.role == "llm") == ["a", "b"]
    assert len(provider.requests) == 2


def test_without_a_runtime_the_error_says_how_to_get_one() -> None:
    """f9: also in the thread of a pool, where a copied context is what mends it."""
    for attempt in (lambda: llm("x"), lambda: asyncio.run(allm("x"))):
        with pytest.raises(RuntimeError, match="runtime=None"):
            attempt()
    runtime, _ = scripted("words")

    @agentic_function
    def write(runtime: Runtime) -> str:
        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(RuntimeError, match="copy_context"):
                pool.submit(llm, "x").result()
            return pool.submit(contextvars.copy_context().run, llm, "x").result()

    assert write(runtime) == "words"


@pytest.mark.parametrize(
    ("arguments", "kind", "reason"),
    [
        ({"prompt": 3}, TypeError, "content"),
        ({"prompt": [{"type": "text"}]}, ValueError, "text"),
        ({"prompt": "x", "system": 3}, TypeError, "system"),
        ({"prompt": "x", "runtime": "r"}, TypeError, "Runtime"),
        ({"prompt": "x", "model_settings": {"heat": 1}}, ValueError, "heat"),
    ],
)
def test_bad_input_is_refused_before_any_request(arguments: dict[str, Any], kind: type[Exception], reason: str) -> None:
    """The error names what it is about."""
    runtime, provider = scripted()
    given: dict[str, Any] = {"runtime": runtime, **arguments}
    with pytest.raises(kind, match=reason):
        llm(**given)
    assert provider.requests == []


def test_failures_are_those_of_exec() -> None:
    """An error of the model arrives as it is."""
    runtime, _ = scripted(LLMError("no", reason=Reason.AUTH))
    with pytest.raises(LLMError) as caught:
        llm("x", runtime=runtime)
    assert caught.value.reason is Reason.AUTH
