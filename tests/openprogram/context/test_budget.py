"""Prompts that would not fit the model's window: what is cut, in which order, what is written about it, and what cannot be helped."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, session
from openprogram.agentic_programming.session import Session
from openprogram.context.budget import room_of
from openprogram.context.call import Call
from openprogram.context.messages import Message, text_of
from openprogram.context.rendering import weight
from openprogram.context.view import prompt_of
from openprogram.errors import LLMError, Reason
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, Profile, ToolCall
from openprogram.providers.scripted import ScriptedProvider
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from tests.openprogram.context.support import asked, raw

WINDOW = 2000
PROMPT = room_of(WINDOW, None).prompt


def _answer(request: ModelRequest) -> str:
    text = text_of(request.new[-1])
    return f"notes of {len(text)} characters" if is_summary(request) else f"reply to {text[:12]}"


def is_summary(request: ModelRequest) -> bool:
    """Whether the request asks for a summary."""
    return text_of(request.new[-1]).startswith("Summarize")


def small(answer: Any = _answer, window: int | None = WINDOW) -> tuple[Runtime, ScriptedProvider]:
    """A model with a small window, and what it was shown."""
    provider = ScriptedProvider([answer], repeat=True, profile=Profile(context_window=window, situational_line=False))
    return Runtime(provider=provider, max_retries=1), provider


def turn(number: int, size: int = 400) -> str:
    """A turn's text of a known length."""
    return f"turn {number} {'x' * size}"


def compactions(recorded: Session) -> list[Call]:
    """The nodes that made room."""
    return [node for node in recorded.nodes() if node.name == "compaction"]


def turns_shown(provider: ScriptedProvider) -> list[list[Message]]:
    """The prompts of turns, without the requests for summaries."""
    return [prompt for prompt, request in zip(provider.prompts, provider.requests, strict=True) if not is_summary(request)]


def test_old_entries_become_a_summary_and_the_latest_stay(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Every prompt fits; a summary says how many entries it replaces; its node names exactly those, and that it happened is logged."""
    runtime, provider = small()
    with session("s", store=store) as recorded, caplog.at_level(logging.WARNING, "openprogram.context"):
        for number in range(30):
            runtime.exec(turn(number))
    assert all(weight(prompt) <= PROMPT for prompt in provider.prompts)
    made = compactions(recorded)
    assert 1 < len(made) < 10
    by_id = {node.id: node for node in recorded.nodes()}
    covered = [node_id for node in made for node_id in node.metadata["compaction"]["nodes"]]
    turns = [node.id for node in asked(recorded) if node.caller is None]
    assert covered == turns[: len(covered)]
    assert made[-1].metadata["compaction"]["previous"] == made[-2].id
    last = turns_shown(provider)[-1]
    assert text_of(last[0]).startswith(f"(Summary of what came before; it replaces {made[-1].metadata['compaction']['summarized']} entries")
    assert made[-1].output in text_of(last[0])
    assert text_of(last[-3]) == turn(28)
    assert len(caplog.records) == len(made)
    assert made[0].id in caplog.text
    assert all(by_id[node.caller].name == "compaction" for node in asked(recorded) if node.caller)


def test_every_prompt_can_be_made_anew(store: Store) -> None:
    """Those before a compaction, those after it, and the requests for summaries; and from one cut to the next they only grow at their end."""
    runtime, provider = small()
    with session("s", store=store) as recorded:
        for number in range(20):
            runtime.exec(turn(number))
    nodes = {raw(prompt_of(store, node)) for node in asked(recorded)}
    assert nodes == {raw(prompt) for prompt in provider.prompts}
    prompts = [raw(prompt) for prompt in turns_shown(provider)]
    cuts = sum(not later.startswith(earlier[:-1]) for earlier, later in itertools.pairwise(prompts))
    assert cuts == len(compactions(recorded))


def test_tool_results_become_stubs_before_anything_is_summarized(store: Store) -> None:
    """Long results of older turns are replaced by a line that says how long they were and which node holds them; no model is asked for that."""

    def look_up(name: str) -> str:
        """Look something up."""
        return f"{name}: {'data ' * 500}"

    def answer(request: ModelRequest) -> Any:
        assert not is_summary(request)
        if request.new[-1].role == "tool":
            return "found it"
        return [ToolCall("call-1", "look_up", '{"name": "it"}'), Finish(reason="tool_calls")]

    runtime, provider = small(answer, window=5000)
    with session("s", store=store) as recorded:
        for number in range(6):
            runtime.exec(f"question {number}", tools=[look_up])
    (first, *_) = compactions(recorded)
    assert (first.output, first.metadata["compaction"]["summarized"]) == (None, 0)
    shown = [block for message in provider.prompts[-1] for block in message.blocks if block["type"] == "tool_result"]
    stub, last = shown[0], shown[-1]
    assert stub["text"] == f"[result of look_up left out to save room: {len(look_up('it'))} characters; node {asked(recorded)[0].id} holds it]"
    assert last["text"] == look_up("it")
    assert {block["id"] for block in shown} == {"call-1"}
    kept = asked(recorded)[0].exchanges[1]
    assert (kept["blocks"] if isinstance(kept, dict) else kept.blocks)[0]["text"] == look_up("it")


def test_media_count_and_become_stubs(store: Store) -> None:
    """Images of older turns are left out, too; the words beside them stay."""
    runtime, provider = small(window=10_000)
    image = {"type": "image", "data": "aGk=", "mime_type": "image/png"}
    with session("s", store=store):
        for number in range(8):
            runtime.exec([image, {"type": "text", "text": f"picture {number}"}])
    last = provider.prompts[-1]
    assert [block["type"] for block in last[0].blocks] == ["text", "text"]
    assert "image left out to save room" in last[0].blocks[0]["text"]
    assert last[0].blocks[1]["text"] == "picture 0"
    assert list(last[-1].blocks) == [image, {"type": "text", "text": "picture 7"}]


def test_a_turn_that_cannot_fit_is_a_clear_error(store: Store) -> None:
    """It says how much there is, how much fits and what to do; no request is made, the node says the same, and the session goes on."""
    runtime, provider = small()
    with session("s", store=store) as recorded:
        runtime.exec("fine")
        with pytest.raises(LLMError, match=r"about \d+ tokens .* room for 2000, 500 of them kept for its reply; send less") as raised:
            runtime.exec("word " * 5000)
        runtime.exec("fine again")
    assert (raised.value.reason, raised.value.retryable) == (Reason.CONTEXT_LENGTH, False)
    assert len(provider.requests) == 2
    failed = asked(recorded)[1]
    assert (failed.status, failed.metadata["error"]["type"]) == ("error", "LLMError")
    assert not compactions(recorded)


def test_without_a_session_it_is_the_same_error() -> None:
    """Where nothing is recorded there is nothing to cut."""
    runtime, provider = small()
    with pytest.raises(LLMError, match="room for 2000"):
        runtime.exec("word " * 5000)
    assert not provider.requests


def test_a_window_that_is_not_known_cuts_nothing(store: Store) -> None:
    """The provider then is the one to say that it is too much."""
    runtime, provider = small(window=None)
    with session("s", store=store) as recorded:
        for number in range(12):
            runtime.exec(turn(number))
    assert len(provider.prompts[-1]) == 23
    assert not compactions(recorded)


def test_a_summary_that_fails_fails_the_turn_and_nothing_else(store: Store) -> None:
    """The error of the request comes through, nothing enters the log, and the next turn tries again."""
    broken: list[bool] = [True]

    def answer(request: ModelRequest) -> Any:
        return LLMError("out of credit") if is_summary(request) and broken[0] else _answer(request)

    runtime, provider = small(answer)
    with session("s", store=store) as recorded:
        with pytest.raises(LLMError, match="out of credit"):
            for number in range(12):
                runtime.exec(turn(number))
        broken[0] = False
        runtime.exec("and now")
    failed, made = compactions(recorded)
    assert (failed.status, made.status) == ("error", "completed")
    assert [node.status for node in asked(recorded) if node.caller is None][-2:] == ["error", "completed"]
    assert made.output in text_of(provider.prompts[-1][0])


@agentic_function
def step(number: int, runtime: Runtime) -> str:
    """Take a step."""
    return runtime.exec(f"step {number}")


@agentic_function
def talkative(turns: int, runtime: Runtime) -> str:
    """Talk."""
    return "".join(runtime.exec(turn(number)) for number in range(turns))


def test_room_made_for_a_function_is_made_for_the_next(store: Store) -> None:
    """A session whose functions alone fill the window is not summarized anew for each of them; a function sees its own call and the latest entries."""
    runtime, provider = small()
    with session("s", store=store) as recorded:
        for number in range(200):
            step(number, runtime)
    assert all(weight(prompt) <= PROMPT for prompt in provider.prompts)
    summaries = sum(map(is_summary, provider.requests))
    assert 0 < summaries < 12
    assert text_of(provider.prompts[-1][-2]) == "Take a step.\n\nstep(number=199)"
    assert text_of(provider.prompts[-1][-3]).startswith("step(number=198) returned")
    assert {raw(prompt_of(store, node)) for node in asked(recorded)} == {raw(prompt) for prompt in provider.prompts}


def test_what_a_function_said_inside_stays_inside(store: Store) -> None:
    """A summary of a function's own turns is not shown outside."""
    runtime, provider = small()
    with session("s", store=store) as recorded:
        runtime.exec("before")
        talkative(15, runtime)
        runtime.exec("after")
    assert {node.frame for node in compactions(recorded)} == {compactions(recorded)[0].frame}
    assert compactions(recorded)[0].frame != recorded.info.frame
    assert [text_of(message)[:24] for message in provider.prompts[-1]] == ["before", "reply to before", "talkative(turns=15) retu", "after"]


def test_turns_at_once_make_room_once(store: Store) -> None:
    """Two that find the prompt too large both go on behind one cut; nothing is covered twice."""

    class Yielding(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            await asyncio.sleep(0)
            async for event in super().stream(request):
                yield event

    provider = Yielding([_answer], repeat=True, profile=Profile(context_window=WINDOW, situational_line=False))
    runtime = Runtime(provider=provider, max_retries=1)

    async def both() -> None:
        await asyncio.gather(*(runtime.async_exec(f"at once {number}") for number in range(3)))

    with session("s", store=store) as recorded:
        number = 0
        while not compactions(recorded):
            number += 1
            if weight(provider.prompts[-1] if provider.prompts else []) > PROMPT - 300:
                asyncio.run(both())
            else:
                runtime.exec(turn(number))
        runtime.exec("last")
    entered = [entry.node for entry in store.log(recorded.info.frame)]
    inside = [node for node in compactions(recorded) if node.id in entered]
    covered = [node_id for node in inside for node_id in node.metadata["compaction"]["nodes"]]
    assert len(covered) == len(set(covered))
    assert {raw(prompt_of(store, node)) for node in asked(recorded)} == {raw(prompt) for prompt in provider.prompts}


def test_a_branch_from_before_the_cut_sees_what_was(store: Store) -> None:
    """A compaction changes no history: a branch that begins before it is shown every turn as it was."""
    runtime, provider = small()
    with session("s", store=store) as recorded:
        for number in range(12):
            runtime.exec(turn(number))
    assert compactions(recorded)
    third = [node for node in asked(recorded) if node.caller is None][2]
    with recorded.retry(third) as again:
        runtime.exec(again.content)
    assert provider.prompts[-1] == provider.prompts[2]


def test_render_ranges_count_in_what_is_left() -> None:
    """A function that looks at few entries needs no room for the others."""

    @agentic_function(render_range={"callers": 1, "subcalls": 2})
    def narrow(runtime: Runtime) -> None:
        for number in range(20):
            runtime.exec(turn(number))

    runtime, provider = small()
    with session("s", store=MemoryStore()) as recorded:
        narrow(runtime)
    assert not compactions(recorded)
    assert len(provider.prompts[-1]) == 6


@pytest.mark.parametrize(("window", "reply", "prompt"), [(2000, None, 1500), (2000, 100, 1900), (2000, 5000, 1000), (8, None, 6)])
def test_the_room_of_a_window(window: int, reply: int | None, prompt: int) -> None:
    """What the reply may take is kept free, a quarter if nothing is said, and never more than half."""
    assert room_of(window, reply).prompt == prompt
