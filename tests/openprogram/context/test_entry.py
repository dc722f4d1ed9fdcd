"""A call that somebody else wrote: the first function takes it, and what it calls is recorded inside it."""

from __future__ import annotations

import contextvars

import pytest

from openprogram import agentic_function
from openprogram.agentic_programming.runtime import Runtime
from openprogram.context import scope as scopes
from openprogram.context.call import Call, Frame
from openprogram.context.view import prompt_of
from openprogram.store.memory import MemoryStore


@agentic_function
def leaf(x: int) -> int:
    """Leaf."""
    return x


@agentic_function
def entered(x: int, runtime: Runtime) -> str:
    """Entered."""
    leaf(x)
    return runtime.exec("Now?")


@agentic_function(expose="hidden")
def hidden(x: int) -> int:
    return leaf(x)


def store_with_entry() -> MemoryStore:
    store = MemoryStore()
    info = store.create_session("s")
    store.append(Call(id="said", session="s", role="user", name="user", frame=info.frame, input="before"))
    from openprogram.context.call import Close

    store.finish(Close(id="said", status="completed", enters=True))
    entry = Call(id="entry", session="s", role="code", name="entered", frame=info.frame, input={"x": 1}, metadata={"frame": "inner", "doc": "Entered."})
    store.append(entry, opens=Frame(id="inner", session="s", parent=info.frame, owner="entry"))
    return store


def inside(store: MemoryStore, call: object) -> object:
    """Call as a worker does."""

    def run() -> object:
        scopes.current.set(scopes.entered(store, "s", "entry", "inner"))
        scopes.entry.set(("entry", "inner"))
        return call()  # type: ignore[operator]

    return contextvars.Context().run(run)


def test_the_entry_is_written_once() -> None:
    """The function writes no node of its own and leaves the entry open; what it calls stands in the entry's frame, under the entry."""
    store = store_with_entry()
    runtime = Runtime(call=lambda content, **_: "now")  # type: ignore[misc]
    assert inside(store, lambda: entered(1, runtime)) == "now"
    nodes = {node.name: node for node in store.page("s") if node.id not in ("said", "entry")}
    assert set(nodes) == {"leaf", "default"}
    assert {(node.caller, node.frame, node.status) for node in nodes.values()} == {("entry", "inner", "completed")}
    entry = store.node("entry")
    assert entry is not None and entry.is_open


def test_a_prompt_inside_sees_what_was_before() -> None:
    """The history of a model call is that of the session, the entry's own line, and what ran in it."""
    store = store_with_entry()
    inside(store, lambda: entered(1, Runtime(call=lambda content, **_: "now")))  # type: ignore[misc]
    (node,) = [node for node in store.page("s") if node.role == "llm"]
    texts = [message.blocks[0]["text"] for message in prompt_of(store, node)]
    assert texts[:3] == ["before", "Entered.\n\nentered(x=1)", "leaf(x=1) returned 1"]


@pytest.mark.parametrize("times", [1, 3])
def test_only_the_first_call_takes_it(times: int) -> None:
    """Later ones are written as ever."""
    store = store_with_entry()
    inside(store, lambda: [leaf(i) for i in range(1 + times)])
    assert [node.name for node in store.page("s")][2:] == ["leaf"] * times


def test_a_hidden_function_takes_it_too() -> None:
    """Nothing inside a hidden one is written, and nothing in it takes the entry for its own."""
    store = store_with_entry()
    assert inside(store, lambda: hidden(2)) == 2
    assert [node.id for node in store.page("s")] == ["said", "entry"]
