"""What a model call sees of the past: within a frame, inside a function and from outside."""

from __future__ import annotations

import pytest

from openprogram import Runtime, agentic_function, session
from openprogram.context.messages import Message, text_of
from openprogram.context.rendering import shown
from openprogram.errors import LLMError
from openprogram.providers.base import Profile
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from tests.openprogram.context.support import asked, echoing, scripted, texts


def test_a_session_sees_what_was_said_in_it(store: Store) -> None:
    """A top-level exec is shown the prompts and replies before it, also those of an earlier ``with`` and of another runtime."""
    runtime, provider = echoing()
    with session("s", store=store):
        runtime.exec("one")
        runtime.exec("two")
    again, later = echoing()
    with session("s", store=store):
        again.exec("three")
    assert texts(provider.prompts[1]) == ["user: one", "assistant: reply to one", "user: two"]
    assert texts(later.prompts[0]) == ["user: one", "assistant: reply to one", "user: two", "assistant: reply to two", "user: three"]


def test_other_sessions_are_not_seen(store: Store) -> None:
    """Sessions of one store share nothing."""
    runtime, provider = echoing()
    with session("a", store=store):
        runtime.exec("mine")
    with session("b", store=store):
        runtime.exec("yours")
    assert texts(provider.prompts[1]) == ["user: yours"]


def test_without_a_session_each_exec_stands_alone() -> None:
    """Nothing is remembered where nothing is recorded."""
    runtime, provider = echoing()
    runtime.exec("one")
    runtime.exec("two")
    assert texts(provider.prompts[1]) == ["user: two"]


@pytest.mark.parametrize("expose", ["io", "llm", "full", "hidden"])
def test_a_frame_sees_its_own_progress_whatever_it_exposes(expose: str, store: Store) -> None:
    """Within a function the second exec is shown the first, prompt and reply as a pair and nothing empty; ``expose`` concerns outsiders."""
    runtime, provider = echoing()

    @agentic_function(expose=expose)
    def work(x: str, runtime: Runtime) -> str:
        """Do the work."""
        return runtime.exec("first") + runtime.exec("second")

    with session("s", store=store):
        runtime.exec("before")
        work("it", runtime)
    assert texts(provider.prompts[2]) == [
        "user: before",
        "assistant: reply to before",
        "user: Do the work.\n\nwork(x='it')",
        "user: first",
        "assistant: reply to first",
        "user: second",
    ]


SEEN_FROM_OUTSIDE = {
    "io": ["user: work(x='it') returned done"],
    "llm": ["user: inside", "assistant: reply to inside"],
    "full": [
        "user: Do the work.\n\nwork(x='it')",
        "user: inside",
        "assistant: reply to inside",
        "user: leaf() returned 3",
        "user: work(x='it') returned done",
    ],
    "hidden": [],
}


@pytest.mark.parametrize("expose", SEEN_FROM_OUTSIDE)
def test_outsiders_see_what_is_exposed(expose: str, store: Store) -> None:
    """After the function returned: its call and result (io), its exchanges (llm), both with what it called (full), or nothing (hidden)."""
    runtime, provider = echoing()

    @agentic_function
    def leaf() -> int:
        return 3

    @agentic_function(expose=expose)
    def work(x: str, runtime: Runtime) -> str:
        """Do the work."""
        runtime.exec("inside")
        leaf()
        return "done"

    with session("s", store=store):
        work("it", runtime)
        runtime.exec("after")
    assert texts(provider.prompts[-1]) == [*SEEN_FROM_OUTSIDE[expose], "user: after"]


def test_a_hidden_function_writes_nothing(store: Store) -> None:
    """Neither its node nor anything inside it reaches the store, however deep."""
    runtime, provider = echoing()

    @agentic_function
    def leaf(runtime: Runtime) -> str:
        return runtime.exec("deep")

    @agentic_function(expose="hidden")
    def secret(runtime: Runtime) -> str:
        runtime.exec("shallow")
        return leaf()

    with session("s", store=store) as recorded:
        assert secret(runtime) == "reply to deep"
    assert recorded.nodes() == []
    assert texts(provider.prompts[1]) == ["user: secret()", "user: shallow", "assistant: reply to shallow", "user: leaf()", "user: deep"]


def test_a_nested_function_sees_its_surroundings_frozen_at_entry(store: Store) -> None:
    """Its base is what the functions around it had seen when it began, then its own entry line."""
    runtime, provider = echoing()

    @agentic_function
    def inner(n: int, runtime: Runtime) -> str:
        return runtime.exec("in")

    @agentic_function
    def outer(runtime: Runtime) -> None:
        runtime.exec("out")
        inner(1)
        inner(2)

    with session("s", store=store):
        outer(runtime)
    surroundings = ["user: outer()", "user: out", "assistant: reply to out"]
    assert texts(provider.prompts[1]) == [*surroundings, "user: inner(n=1)", "user: in"]
    assert texts(provider.prompts[2]) == [*surroundings, "user: inner(n=1) returned reply to in", "user: inner(n=2)", "user: in"]


def test_a_failed_call_is_one_line_and_a_failed_exec_none(store: Store) -> None:
    """The frame is told that a function raised, with type and message; an exec that failed, or a call that was cancelled, leaves nothing in prompts."""
    runtime, provider = scripted("fine", LLMError("down"), "fine")

    @agentic_function
    def failing(x: int) -> None:
        raise ValueError("too large")

    @agentic_function
    def interrupted() -> None:
        raise KeyboardInterrupt

    with session("s", store=store):
        runtime.exec("one")
        with pytest.raises(ValueError, match="too large"):
            failing(7)
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with pytest.raises(LLMError):
            runtime.exec("two")
        runtime.exec("three")
    assert texts(provider.prompts[-1]) == ["user: one", "assistant: fine", "user: failing(x=7) failed: ValueError: too large", "user: three"]


RANGES: dict[str, tuple[dict[str, int | None], list[str]]] = {
    "all": ({}, ["before", "reply to before", "work()", "one", "reply to one"]),
    "None and -1": ({"callers": None, "subcalls": -1}, ["before", "reply to before", "work()", "one", "reply to one"]),
    "no callers": ({"callers": 0}, ["one", "reply to one"]),
    "one caller": ({"callers": 1}, ["work()", "one", "reply to one"]),
    "no subcalls": ({"subcalls": 0}, ["before", "reply to before", "work()"]),
    "one subcall": ({"subcalls": 1}, ["before", "reply to before", "work()", "one", "reply to one"]),
    "nothing": ({"callers": 0, "subcalls": 0}, []),
}


@pytest.mark.parametrize("case", RANGES)
def test_render_range_cuts_what_is_shown(case: str, store: Store) -> None:
    """``callers`` keeps the last entries of the base and ``subcalls`` of the log; None and -1 keep all, 0 none."""
    render_range, expected = RANGES[case]
    runtime, provider = echoing()

    @agentic_function(render_range=render_range)
    def work(runtime: Runtime) -> None:
        runtime.exec("one")
        runtime.exec("two")

    with session("s", store=store):
        runtime.exec("before")
        work(runtime)
    assert [text_of(message) for message in provider.prompts[-1]] == [*expected, "two"]


def test_subcalls_slide(store: Store) -> None:
    """``subcalls=1`` shows the latest entry, not the first."""
    runtime, provider = echoing()

    @agentic_function(render_range={"callers": 0, "subcalls": 1})
    def work(runtime: Runtime) -> None:
        for text in ("one", "two", "three"):
            runtime.exec(text)

    with session("s", store=store):
        work(runtime)
    assert [text_of(message) for message in provider.prompts[-1]] == ["two", "reply to two", "three"]


def test_the_situational_line_opens_the_turn_and_only_inside_a_function(store: Store) -> None:
    """A model inside a function is told which one, in the turn's own message; a profile may switch it off and a top-level exec has none."""
    runtime, provider = scripted("a", "b", profile=Profile())

    @agentic_function(name="nick")
    def work(runtime: Runtime) -> str:
        return runtime.exec("one")

    with session("s", store=store):
        runtime.exec("zero")
        work(runtime)
    assert texts(provider.prompts[0]) == ["user: zero"]
    (last,) = provider.requests[1].new
    assert [block["text"] for block in last.blocks][-1] == "one"
    assert "nick" in last.blocks[0]["text"]


def test_system_texts_are_those_of_the_call(store: Store) -> None:
    """The runtime's ``system``, replaced inside a function that has its own (also in what it calls), joined by ``role: system`` blocks of the call."""
    runtime, provider = echoing()
    runtime.system = "general"

    @agentic_function
    def leaf(runtime: Runtime) -> str:
        return runtime.exec("leaf")

    @agentic_function(system="special")
    def work(runtime: Runtime) -> None:
        runtime.exec("one")
        leaf()
        runtime.exec([{"type": "text", "text": "and so", "role": "system"}, {"type": "text", "text": "two"}])

    with session("s", store=store) as recorded:
        work(runtime)
        runtime.exec("after")
    assert [request.system for request in provider.requests] == ["special", "special", "special\n\nand so", "general"]
    assert [node.metadata["system"] for node in asked(recorded)] == ["special", "special", "special\n\nand so", "general"]


def test_long_values_are_shown_by_head_and_tail() -> None:
    """A prompt holds a bounded line of a value; the head is 70 percent of it."""
    text = shown("a" * 5000 + "z" * 5000)
    assert len(text) < 4100
    assert text.startswith("a" * 2800)
    assert text.endswith("z" * 1200)
    assert "[6000 characters left out]" in text
    assert shown("short") == "short"


def test_a_node_that_cannot_be_read_hides_nothing_else() -> None:
    """A model call whose stored input is damaged is left out of later prompts; the rest is shown."""
    store = MemoryStore()
    runtime, provider = echoing()
    with session("s", store=store) as recorded:
        runtime.exec("one")
        damaged = asked(recorded)[0]
        row = store._rows[damaged.id]  # pyright: ignore[reportPrivateUsage] - no public call can damage a row
        store._rows[damaged.id] = row._replace(input='{"$type":"cut","value":"unreadable"}')  # pyright: ignore[reportPrivateUsage]
        runtime, provider = echoing()
    with session("s", store=store):
        runtime.exec("two")
    assert texts(provider.prompts[0]) == ["assistant: reply to one", "user: two"]


def test_assistant_blocks_are_turns_of_the_model(store: Store) -> None:
    """Worked examples come back in the order and roles in which they were given."""
    runtime, provider = echoing()
    example = [{"type": "text", "text": "2+2?"}, {"type": "text", "text": "4", "role": "assistant"}, {"type": "text", "text": "3+3?"}]
    with session("s", store=store):
        runtime.exec(example)
        runtime.exec("and now?")
    assert texts(provider.prompts[0]) == ["user: 2+2?", "assistant: 4", "user: 3+3?"]
    assert provider.prompts[1][:3] == [Message(role=role, blocks=(block,)) for role, block in zip(("user", "assistant", "user"), example, strict=True)]
