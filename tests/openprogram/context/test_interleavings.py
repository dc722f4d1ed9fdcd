"""The guarantee on prompts under calls that are nested, parallel (tasks and threads), failing and cancelled, in any interleaving, on bytes.

If no other node of a frame entered its log while an exec was open, every later prompt of that frame starts with that exec's last request.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openprogram import Runtime, agentic_function, session
from openprogram.context.call import Call, Frame
from openprogram.context.messages import Message
from openprogram.context.view import prompt_of, view_inside, view_of
from openprogram.errors import LLMError
from openprogram.providers.anthropic import AnthropicWire
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, Profile, TextDelta, ToolCall
from openprogram.providers.gemini import GeminiWire
from openprogram.providers.openai_messages import ChatForm, chat_messages, encoded_messages
from openprogram.providers.openai_responses import ResponsesWire
from openprogram.providers.wire import Wire, json_bytes
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.context.support import raw

PROFILE = Profile(situational_line=True, max_output_tokens=1000)
Step = tuple[Any, ...]


OTHERS: dict[str, tuple[Wire, str, str]] = {
    "anthropic": (AnthropicWire(), "messages", "content"),
    "gemini": (GeminiWire(), "contents", "parts"),
    "responses": (ResponsesWire(), "input", "content"),
}


def blocks_of(kind: str, request: ModelRequest) -> bytes:
    """A request of one of the other wires, a block a line: what stands between blocks (a wire may put two turns of one role into one) is no part of them.

    Marks for caching are left out: they move on with the end of the prompt, and are not part of what is cached.
    """
    wire, turns, parts = OTHERS[kind]
    lines: list[Any] = []
    for turn in wire.body(request, PROFILE, kind)[turns]:
        content: Any = turn.get(parts)
        lines += [{"role": turn["role"], **block} for block in cast("list[Any]", content)] if isinstance(content, list) else [turn]
    return b"\n".join(json_bytes({key: value for key, value in line.items() if key != "cache_control"}) for line in lines)


class Recording:
    """A model that takes a few turns of the loop to answer, calls a tool when asked to, and keeps every request as it would go out."""

    name = "recording"

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sent: dict[str, list[tuple[bytes, ...]]] = {}
        self._waits = itertools.cycle([0, 3, 1, 0, 2, 5])
        self._lock = threading.Lock()

    def profile(self, model: str) -> Profile:
        return PROFILE

    def _keep(self, request: ModelRequest) -> None:
        wire = b"".join(encoded_messages(request, PROFILE).pieces)
        assert wire == json_bytes(chat_messages(request, PROFILE))
        with self._lock:
            self.sent.setdefault(request.history.node, []).append((raw(request.messages()), wire, *(blocks_of(kind, request) for kind in OTHERS)))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self._keep(request)
        for _ in range(next(self._waits)):
            await asyncio.sleep(0)
        text = request.new[0].blocks[-1]["text"]
        if text == "fail":
            raise LLMError("as asked")
        if text == "tools" and len(request.new) == 1:
            for number in range(2):
                yield ToolCall(f"call_{number}", "look", '{"x": "1"}')
            yield Finish(reason="tool_calls")
            return
        yield TextDelta(f"reply to {text}")
        yield Finish()

    async def aclose(self) -> None:
        return None


class Broken(Exception):
    """Raised by a function of the program."""


def look(x: str) -> str:
    """Look."""
    return f"seen {x}"


async def run(runtime: Runtime, steps: Sequence[Step]) -> None:
    """Carry steps out, one after the other."""
    for step in steps:
        with contextlib.suppress(LLMError, Broken):
            await _one(runtime, step)


async def _one(runtime: Runtime, step: Step) -> None:
    kind, *rest = step
    if kind == "exec":
        await runtime.async_exec(rest[0], tools=[look] if rest[0] == "tools" else [])
    elif kind == "call":
        await FUNCTIONS[rest[0]](runtime, rest[1], rest[2])
    elif kind == "tasks":
        await asyncio.gather(*(run(runtime, part) for part in rest[0]))
    elif kind == "threads":
        await asyncio.gather(*(asyncio.to_thread(_in_thread, runtime, part) for part in rest[0]))
    else:
        task = asyncio.create_task(run(runtime, rest[1]))
        for _ in range(rest[0]):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _in_thread(runtime: Runtime, steps: Sequence[Step]) -> None:
    """The same by the sync API, where a step can be one."""
    for kind, *rest in steps:
        with contextlib.suppress(LLMError, Broken):
            if kind == "exec":
                runtime.exec(rest[0], tools=[look] if rest[0] == "tools" else [])
            else:
                contextvars.copy_context().run(asyncio.run, run(runtime, [(kind, *rest)]))


def _function(expose: str, render_range: dict[str, int | None] | None = None) -> Any:
    @agentic_function(expose=expose, render_range=render_range)
    async def f(runtime: Runtime, ending: str, steps: list[Step]) -> str:
        """Do as told."""
        await run(runtime, steps)
        if ending == "raise":
            raise Broken(f"after {len(steps)} steps")
        return ending

    return f


FUNCTIONS = {expose: _function(expose) for expose in ("io", "llm", "full", "hidden")}


def last_requests(model: Recording) -> dict[str, tuple[bytes, ...]]:
    """The last request of each node: as messages, and as the bytes of each wire."""
    return {node: requests[-1] for node, requests in model.sent.items()}


def check(store: Store, model: Recording, nodes: Sequence[Call]) -> int:
    """Hold every pair of prompts to the guarantee; how many pairs there were."""
    pairs = 0
    last = last_requests(model)
    asked = [node for node in nodes if node.role == "llm"]
    for node in asked:
        if node.id in model.sent:  # one that was cancelled at once was never sent
            assert raw(prompt_of(store, node)) == model.sent[node.id][0][0]
    for frame, group in itertools.groupby(sorted(asked, key=lambda node: node.frame), lambda node: node.frame):
        places = {entry.node: place for place, entry in enumerate(store.log(frame))}
        members = list(group)
        for node, later in itertools.product(members, members):
            assert node.reads is not None
            assert later.reads is not None
            alone = places.get(node.id) == node.reads.upto
            if alone and later.reads.upto > node.reads.upto and later.id in model.sent:
                pairs += 1
                assert all(now.startswith(then[:-1]) for now, then in zip(model.sent[later.id][0], last[node.id], strict=True))
    return pairs


def played(store: Store, steps: Sequence[Step]) -> int:
    """Run a program in a session and check it."""
    model = Recording(store)
    runtime = Runtime(provider=model, max_retries=1)
    with session("s", store=store) as recorded:
        asyncio.run(run(runtime, steps))
    nodes = recorded.nodes()
    assert not [node.id for node in nodes if node.is_open]
    assert all(node.reads is not None for node in nodes if node.role == "llm")
    return check(store, model, nodes)


TEXTS = st.sampled_from(["a", "tools", "fail", "b \u2028 é", ""]).filter(bool)


def _deeper(inner: st.SearchStrategy[list[Step]]) -> st.SearchStrategy[list[Step]]:
    parts = st.lists(inner, min_size=1, max_size=3)
    step = st.one_of(
        st.tuples(st.just("exec"), TEXTS),
        st.tuples(st.just("call"), st.sampled_from(sorted(FUNCTIONS)), st.sampled_from(["return", "raise"]), inner),
        st.tuples(st.just("tasks"), parts),
        st.tuples(st.just("threads"), parts),
        st.tuples(st.just("cancel"), st.integers(0, 6), inner),
    )
    return st.lists(step, max_size=4)


PROGRAMS = st.recursive(st.lists(st.tuples(st.just("exec"), TEXTS), max_size=2), _deeper, max_leaves=5)


@given(PROGRAMS)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_any_interleaving_keeps_the_guarantee(steps: list[Step]) -> None:
    """Prompts grow at their end, on the bytes of the messages and of the wire, and follow from the store."""
    played(MemoryStore(), [*steps, ("exec", "last")])


MIXED: list[Step] = [
    ("exec", "tools"),
    ("tasks", [[("exec", "a"), ("exec", "tools")], [("call", "full", "return", [("exec", "tools"), ("exec", "b")])], [("exec", "fail")]]),
    ("threads", [[("exec", "a"), ("call", "llm", "return", [("exec", "tools")])], [("call", "io", "raise", [("exec", "a")]), ("exec", "b")]]),
    ("cancel", 2, [("exec", "a"), ("call", "full", "return", [("exec", "a"), ("exec", "a"), ("exec", "a"), ("exec", "a")])]),
    ("call", "hidden", "return", [("exec", "secret")]),
    ("exec", "a"),
    ("exec", "tools"),
    ("exec", "a"),
]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_program_of_everything_keeps_it(kind: str, tmp_path: Path) -> None:
    """With every kind of step, on each store; the pairs that are compared are many, so that the check is none that cannot fail."""
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.sqlite3")
    assert played(store, [*MIXED, *MIXED]) > 30
    store.close()


def test_a_file_that_is_opened_again_gives_the_same_prompts(tmp_path: Path) -> None:
    """Another store object on the same file, with nothing of the run in memory, makes every prompt anew."""
    store = SqliteStore(tmp_path / "store.sqlite3")
    model = Recording(store)
    with session("s", store=store):
        asyncio.run(run(Runtime(provider=model, max_retries=1), MIXED))
    store.close()
    again = SqliteStore(tmp_path / "store.sqlite3")
    nodes = [node for node in session("s", store=again).nodes() if node.role == "llm"]
    assert len(nodes) > 15
    assert all(raw(prompt_of(again, node)) == model.sent[node.id][0][0] for node in nodes if node.id in model.sent)
    again.close()


class Counting(ChatForm):
    """A form that says how many messages it was given each time."""

    def encode(self, messages: Sequence[Message], names: Any, *, past: bool = True) -> bytes:
        encoded.append(len(messages))
        return super().encode(messages, names, past=past)


encoded: list[int] = []


def test_each_entry_is_encoded_once() -> None:
    """A request encodes what is new, however long the history is: the bytes of earlier entries are kept, also for the frames inside."""
    encoded.clear()
    form = Counting("m", "openai", PROFILE)
    store = MemoryStore()
    runtime = Runtime(provider=Recording(store), max_retries=1)
    with session("s", store=store) as recorded:
        for _ in range(20):
            runtime.exec("a")
    view = view_of(store, recorded.info.frame)
    assert view is not None
    for upto in range(21):
        view.encoded(form, upto)
    inside = view_inside(view, Frame(id="inner", session="s", parent=recorded.info.frame, base=20), None)
    assert b"".join(inside.encoded(form, 0)) == b"".join(view.encoded(form, 20))
    assert encoded == [2] * 20
