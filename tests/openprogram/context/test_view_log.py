"""The guarantee of view logs, on bytes: what was sent can be made anew from the store, and a frame's prompts grow at their end only."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openprogram import Runtime, agentic_function, decision, session
from openprogram.context.call import Call, Reads
from openprogram.context.view import prompt_of
from openprogram.errors import LLMError
from openprogram.providers.base import Profile
from openprogram.providers.scripted import ScriptedProvider
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.context.support import asked, echoing, raw, reproduced, scripted, texts

Step = tuple[Any, ...]


class Broken(Exception):
    """What a program of the tests raises."""


def play(runtime: Runtime, steps: Sequence[Step]) -> None:
    """Run a program: each step an exec, a failing exec, or a call of a function with steps of its own that returns, raises or is cancelled."""
    for step in steps:
        if step[0] == "exec":
            runtime.exec(step[1])
        elif step[0] == "fail":
            with pytest.raises(LLMError):
                runtime.exec("fail")
        else:
            _, expose, ending, inner = step
            try:
                CALLS[expose](inner, ending, runtime)
            except (Broken, KeyboardInterrupt):
                continue


def _calls(expose: str) -> Callable[..., Any]:
    @agentic_function(name=f"f_{expose}", expose=expose)
    def f(steps: Any, ending: str, runtime: Runtime) -> str:
        """A function."""
        play(runtime, steps)
        if ending == "raise":
            raise Broken(f"after {len(steps)} steps")
        if ending == "cancel":
            raise KeyboardInterrupt
        return ending

    return f


CALLS = {expose: _calls(expose) for expose in ("io", "llm", "full", "hidden")}


def answer(request: Any) -> Any:
    """A reply that depends on the whole prompt, or a failure when the turn says so."""
    last = request.new[-1].blocks[-1]["text"]
    return LLMError("as asked") if last == "fail" else f"{len(request.messages())} messages, the last {last!r}"


PROGRAM: list[Step] = [
    ("exec", "one"),
    ("call", "io", "return", [("exec", "in"), ("exec", "in again"), ("fail",)]),
    ("fail",),
    ("call", "full", "return", [("exec", "a"), ("call", "llm", "return", [("exec", "deep")]), ("exec", "b")]),
    ("call", "full", "raise", [("exec", "doomed")]),
    ("call", "io", "cancel", [("exec", "given up")]),
    ("call", "hidden", "return", [("exec", "secret"), ("call", "io", "return", [("exec", "deeper secret")])]),
    ("exec", "two \ud800 \x00 é \u2028"),
]


def test_prompts_can_be_made_anew_from_memory() -> None:
    """For every recorded model call, the bytes of its prompt follow from the store alone."""
    store = MemoryStore()
    runtime, provider = scripted(answer, repeat=True)
    with session("s", store=store) as recorded:
        play(runtime, PROGRAM[:-1])
    sent = [raw(prompt) for prompt, request in zip(provider.prompts, provider.requests, strict=True) if _is_in(store, request)]
    assert reproduced(store, recorded) == sent
    assert len(sent) == 10


def test_prompts_can_be_made_anew_from_a_reopened_file(tmp_path: Path) -> None:
    """As above, by another store object on the same file, when nothing of the run is left in memory; strings that JSON text cannot hold included."""
    store = SqliteStore(tmp_path / "store.sqlite3")
    runtime, provider = scripted(answer, repeat=True)
    with session("s", store=store):
        play(runtime, PROGRAM)
    sent = [prompt for prompt, request in zip(provider.prompts, provider.requests, strict=True) if _is_in(store, request)]
    store.close()
    again = SqliteStore(tmp_path / "store.sqlite3")
    nodes = asked(session("s", store=again))
    assert [prompt_of(again, node) for node in nodes] == sent
    assert len(sent) == 11
    again.close()


def _is_in(store: Store, request: Any) -> bool:
    return store.node(request.history.node) is not None


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "image", "data": "aGk=", "mime_type": "image/png"}, {"type": "text", "text": "what?"}],
        [{"type": "text", "text": "cached", "cache_control": {"type": "ephemeral"}}],
        [{"type": "own", "data": b"\x00\xff", "pair": (1, 2), "path": Path("x"), "nested": [{"deep": (3,)}]}, {"type": "text", "text": "what?"}],
    ],
    ids=["image", "extra keys", "values beyond JSON"],
)
def test_blocks_come_back_as_they_were_sent(blocks: list[dict[str, Any]], store: Store) -> None:
    """A later prompt shows an earlier turn's blocks unchanged, also those that JSON has no form for."""
    runtime, provider = echoing()
    with session("s", store=store):
        runtime.exec(blocks)
        runtime.exec("next")
    assert list(provider.prompts[0][0].blocks) == blocks
    assert provider.prompts[1][:1] == provider.prompts[0]


def prefixed(prompts: Sequence[Sequence[Any]]) -> bool:
    """Whether each prompt starts with the one before, in bytes without the closing bracket."""
    return all(raw(later).startswith(raw(earlier)[:-1]) for earlier, later in itertools.pairwise(prompts))


def by_frame(store: Store, provider: ScriptedProvider) -> dict[str, list[list[Any]]]:
    """The prompts of completed model calls by the frame that they read, in order."""
    found: dict[str, list[list[Any]]] = {}
    for prompt, request in zip(provider.prompts, provider.requests, strict=True):
        node = store.node(request.history.node)
        if node is not None and node.status == "completed":
            assert node.reads is not None
            found.setdefault(node.reads.frame, []).append(prompt)
    return found


def check_prefixes(steps: Sequence[Step]) -> None:
    """Run a program and compare each frame's prompts."""
    store = MemoryStore()
    runtime, provider = scripted(answer, repeat=True)
    with session("s", store=store) as recorded:
        play(runtime, steps)
    for prompts in by_frame(store, provider).values():
        assert prefixed(prompts)
    sent = [raw(prompt) for prompt, request in zip(provider.prompts, provider.requests, strict=True) if _is_in(store, request)]
    assert reproduced(store, recorded) == sent


def test_prompts_of_a_frame_start_with_the_one_before() -> None:
    """With calls nested, failing, cancelled and hidden in between."""
    check_prefixes(PROGRAM[:-1])


def _nested(inner: st.SearchStrategy[list[Step]]) -> st.SearchStrategy[list[Step]]:
    call = st.tuples(st.just("call"), st.sampled_from(sorted(CALLS)), st.sampled_from(["return", "raise", "cancel"]), inner)
    return st.lists(st.one_of(st.tuples(st.just("exec"), st.text(max_size=5)), st.just(("fail",)), call), max_size=4)


@given(st.recursive(st.just([]), _nested, max_leaves=6))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_keeps_the_guarantee(steps: list[Step]) -> None:
    """Prompts follow from the store and grow at their end, whatever calls a program makes."""
    check_prefixes(steps)


def test_execs_at_once_share_their_beginning(store: Store) -> None:
    """Concurrent turns in a frame are shown the same history; those that come later are shown them all."""
    shown: dict[str, list[str]] = {}
    arrived: list[str] = []

    async def together(content: list[dict[str, Any]]) -> str:
        *past, turn = [block["text"] for block in content]
        shown[turn] = past
        arrived.append(turn)
        while turn.startswith("at once") and len(arrived) < 4:  # nobody answers before all have been asked
            await asyncio.sleep(0)
        return f"reply to {turn}"

    async def both(runtime: Runtime) -> None:
        await runtime.async_exec("zero")
        await asyncio.gather(*(runtime.async_exec(f"at once {n}") for n in range(3)))
        await runtime.async_exec("last")

    with session("s", store=store) as recorded:
        asyncio.run(both(Runtime(call=together)))
    frame = recorded.info.frame
    assert [node.reads for node in asked(recorded)] == [Reads(frame, 0), Reads(frame, 1), Reads(frame, 1), Reads(frame, 1), Reads(frame, 4)]
    assert [shown[f"at once {n}"] for n in range(3)] == [["zero", "reply to zero"]] * 3
    assert shown["last"][:2] == ["zero", "reply to zero"]
    assert sorted(shown["last"][2:]) == sorted(text for n in range(3) for text in (f"at once {n}", f"reply to at once {n}"))


def test_a_node_enters_when_it_closes(store: Store) -> None:
    """A turn that is still open is not shown; once closed it stands behind what closed before it."""
    runtime, provider = echoing()

    async def slow(content: Any) -> str:
        return await runtime.async_exec("asked meanwhile")

    with session("s", store=store):
        Runtime(call=slow).exec("slow")
        runtime.exec("after")
    assert texts(provider.prompts[0]) == ["user: asked meanwhile"]
    meanwhile = ["user: asked meanwhile", "assistant: reply to asked meanwhile"]
    assert texts(provider.prompts[1]) == [*meanwhile, "user: slow", "assistant: reply to asked meanwhile", "user: after"]


def test_a_pick_in_two_requests_is_one_transcript(store: Store) -> None:
    """Name, question for the arguments and arguments are shown again as they were sent, so that the next prompt starts with the last request."""
    profile = Profile(two_step_pick=True, schema=True, grammar=True, situational_line=False)
    runtime, provider = scripted("refund", '{"order_id": 7}', "fine", profile=profile)

    def refund(order_id: int) -> int:
        """Pay back."""
        return order_id

    with session("s", store=store) as recorded:
        assert decision.make("Refund order 7.", [refund, "close"], runtime=runtime) == 7
        runtime.exec("thanks")
    node = asked(recorded)[0]
    assert (len(asked(recorded)), len(node.exchanges)) == (2, 2)
    assert prefixed(provider.prompts)
    assert prompt_of(store, node) == provider.prompts[0]


def test_prompt_of_other_nodes_is_empty(store: Store) -> None:
    """Only a model call has a prompt."""

    @agentic_function
    def f() -> None: ...

    with session("s", store=store) as recorded:
        f()
    (node,) = recorded.nodes()
    assert prompt_of(store, node) == []
    assert prompt_of(store, Call(id="llm-1", session="s", role="llm", name="m", frame="f")) == []


def test_a_session_of_n_turns_reads_each_entry_once() -> None:
    """What was rendered is kept: the number of nodes read grows with the turns, not with their square."""

    class Counting(MemoryStore):
        read = 0

        def nodes(self, node_ids: Any) -> list[Call]:
            wanted = list(node_ids)
            Counting.read += len(wanted)
            return super().nodes(wanted)

    runtime, _ = echoing()
    with session("s", store=Counting()):
        for n in range(40):
            runtime.exec(f"turn {n}")
    assert Counting.read <= 40
