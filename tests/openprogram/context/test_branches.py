"""Branches of a session as a program makes them: fork, retry, edit, spawn; what each sees, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, session
from openprogram.agentic_programming.session import Session
from openprogram.context.branches import chain
from openprogram.context.call import MAIN, Call, Close, Frame
from openprogram.context.view import prompt_of
from openprogram.errors import LLMError, OpenProgramError, StoreCorruptError, StoreError, UsageError
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from tests.openprogram.context.support import asked, echoing, named, raw, scripted, texts


@agentic_function
def work(x: int, runtime: Runtime) -> str:
    """Work."""
    return runtime.exec(f"inside {x}")


def talk(store: Store, runtime: Runtime, *turns: str) -> tuple[Session, list[Call]]:
    """A session with these turns, and their nodes."""
    with session("s", store=store) as recorded:
        for turn in turns:
            runtime.exec(turn)
    return recorded, asked(recorded)


def test_a_retry_stands_beside_what_it_replaces(store: Store) -> None:
    """It follows the same node, is asked the same, sees nothing of what it replaces or what came after, and overwrites nothing."""
    runtime, provider = echoing()
    recorded, nodes = talk(store, runtime, "one", "two", "three")
    with recorded.retry(nodes[1]) as again:
        runtime.exec(again.content)
        runtime.exec("then")
    assert provider.prompts[3] == provider.prompts[1]
    assert texts(provider.prompts[4]) == ["user: one", "assistant: reply to one", "user: two", "assistant: reply to two", "user: then"]
    retried, after = asked(recorded)[3:]
    assert (retried.predecessor, after.predecessor) == (nodes[0].id, retried.id)
    assert [node.id for node in again.conversation()] == [nodes[0].id, retried.id, after.id]
    assert recorded.conversation() == nodes
    assert (recorded.head, again.head) == (nodes[2].id, after.id)


def test_an_edit_asks_something_else_there(store: Store) -> None:
    """The first turn too can be replaced; the branch then begins the conversation."""
    runtime, provider = echoing()
    recorded, nodes = talk(store, runtime, "one", "two")
    with recorded.edit(nodes[0], "uno", name="spanish") as edited:
        runtime.exec(edited.content)
    assert edited.replaces == nodes[0]
    assert texts(provider.prompts[2]) == ["user: uno"]
    assert asked(recorded)[2].predecessor is None
    with session("s", store=store, branch="spanish"):
        runtime.exec("dos")
    assert texts(provider.prompts[3]) == ["user: uno", "assistant: reply to uno", "user: dos"]


def test_a_fork_goes_on_after_a_node(store: Store) -> None:
    """By default after the head; forks of forks too; what the branch it came from does later is not seen."""
    runtime, provider = echoing()
    recorded, nodes = talk(store, runtime, "one", "two")
    fork = recorded.fork(nodes[0])
    deeper = fork.fork()
    with recorded:
        runtime.exec("later")
    with deeper:
        runtime.exec("elsewhere")
    assert texts(provider.prompts[-1]) == ["user: one", "assistant: reply to one", "user: elsewhere"]
    assert asked(recorded)[-1].predecessor == nodes[0].id
    assert fork.head == nodes[0].id
    assert [branch.name for branch in recorded.branches()] == [MAIN, "branch-2", "branch-3"]


def test_a_fork_may_begin_at_what_stands_on_another_branch(store: Store) -> None:
    """A node is named, not a branch: the new branch goes on from wherever the node stands."""
    runtime, provider = echoing()
    recorded, nodes = talk(store, runtime, "one", "two")
    with recorded.retry(nodes[1]) as again:
        runtime.exec("two again")
    other = asked(recorded)[-1]
    with recorded.fork(other):
        runtime.exec("after the other")
    assert texts(provider.prompts[-1])[2:] == ["user: two again", "assistant: reply to two again", "user: after the other"]
    assert again.branch.id != recorded.branch.id


def test_spawn_begins_with_nothing(store: Store) -> None:
    """A clean branch of the same session: its nodes are recorded there, and see only each other."""
    runtime, provider = echoing()
    recorded, nodes = talk(store, runtime, "one")
    with recorded.spawn(name="clean") as clean:
        runtime.exec("first")
        work(1, runtime)
    assert texts(provider.prompts[1]) == ["user: first"]
    assert texts(provider.prompts[2])[:2] == ["user: first", "assistant: reply to first"]
    assert asked(recorded)[1].predecessor is None
    assert clean.conversation()[0].session == nodes[0].session == "s"


@pytest.mark.parametrize("ending", ["failed", "cancelled", "function", "running"])
def test_whatever_happened_can_be_tried_again(ending: str, store: Store) -> None:
    """A turn that failed or was cancelled, a function that returned, one that still runs: the sibling follows the same node."""
    runtime, provider = echoing()
    recorded, nodes = talk(store, runtime, "one")
    broken, _ = scripted(LLMError("no") if ending == "failed" else KeyboardInterrupt())
    with recorded:
        if ending in ("failed", "cancelled"):
            with pytest.raises((LLMError, KeyboardInterrupt)):
                broken.exec("two")
        elif ending == "function":
            work(7, runtime)
        else:
            store.append(Call(id="open", session="s", role="llm", name="m", frame=recorded.info.frame, input={"messages": []}))
        runtime.exec("later")
    target = next(node for node in recorded.nodes() if node.seq == 2)
    with recorded.retry(target) as again:
        runtime.exec("instead")
    assert target.predecessor == nodes[0].id == asked(recorded)[-1].predecessor
    assert texts(provider.prompts[-1]) == ["user: one", "assistant: reply to one", "user: instead"]
    assert (again.content is None) == (ending == "function")


def test_content_comes_back_as_it_was_given(store: Store) -> None:
    """Blocks, with the model's own turns marked, so that a retry sends the same."""
    runtime, provider = echoing()
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "hello", "role": "assistant"},
        {"type": "image", "data": "aGk=", "mime_type": "image/png"},
        {"type": "text", "text": "what is it?"},
    ]
    with session("s", store=store) as recorded:
        runtime.exec(blocks)
    with recorded.retry(asked(recorded)[0]) as again:
        runtime.exec(again.content)
    assert again.content == blocks
    assert raw(provider.prompts[1]) == raw(provider.prompts[0])


def test_runs_that_start_at_one_head_share_the_branch(store: Store) -> None:
    """Both enter as they close and have the same predecessor: no branch is made by itself."""

    arrived: list[str] = []

    async def together(content: list[dict[str, Any]]) -> str:
        arrived.append(content[-1]["text"])
        while len(arrived) == 2:  # neither of the two answers before both have been asked
            await asyncio.sleep(0)
        return "yes"

    async def both() -> None:
        runtime = Runtime(call=together)
        await runtime.async_exec("one")
        await asyncio.gather(runtime.async_exec("two"), runtime.async_exec("also two"))

    with session("s", store=store) as recorded:
        asyncio.run(both())
    first, *others = asked(recorded)
    assert {node.predecessor for node in others} == {first.id}
    assert {node.id for node in recorded.conversation()} == {first.id, *(node.id for node in others)}
    assert len(recorded.branches()) == 1


def test_prompts_on_branches_can_be_made_anew(store: Store) -> None:
    """From the store alone, also where a function ran on a branch of a branch."""
    runtime, provider = echoing()
    recorded, nodes = talk(store, runtime, "one", "two")
    with recorded.fork(nodes[0]) as fork:
        work(1, runtime)
    with fork.retry(named(recorded, "work")):
        work(2, runtime)
        runtime.exec("end")
    assert [prompt_of(store, node) for node in asked(recorded)] == provider.prompts


REFUSED: dict[str, tuple[Callable[[Session, Call], Any], type[OpenProgramError], str]] = {
    "an unknown node": (lambda s, _: s.fork("nowhere"), UsageError, "no node 'nowhere'"),
    "a retry of an unknown node": (lambda s, _: s.retry("nowhere"), UsageError, "no node 'nowhere'"),
    "inside a function": (lambda s, inner: s.retry(inner), UsageError, "inside a function"),
    "a fork inside a function": (lambda s, inner: s.fork(inner), UsageError, "inside a function"),
    "what never entered": (lambda s, _: s.fork("open"), UsageError, "running and not part of the conversation"),
    "a name that is taken": (lambda s, _: s.spawn(name=MAIN), StoreError, "'main'"),
    "a name that is a path": (lambda s, _: s.spawn(name="a/b"), UsageError, "branch name"),
    "an unknown branch": (lambda s, _: session("s", store=s.store, branch="gone"), UsageError, "no branch 'gone'; it has main"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_branched_is_refused(case: str, store: Store) -> None:
    """With an error that names the node or branch, and no branch is made."""
    attempt, error, message = REFUSED[case]
    runtime, _ = echoing()
    with session("s", store=store) as recorded:
        work(1, runtime)
        store.append(Call(id="open", session="s", role="llm", name="m", frame=recorded.info.frame, input={"messages": []}))
    with pytest.raises(error, match=message):
        attempt(recorded, asked(recorded)[0])
    assert [branch.name for branch in recorded.branches()] == [MAIN]


class Lossy(MemoryStore):
    """A store that lost a node."""

    lost = ""

    def nodes(self, node_ids: Any) -> list[Call]:
        return super().nodes([node_id for node_id in node_ids if node_id != self.lost])


def test_broken_chains_raise_and_name_the_node() -> None:
    """The read invariant: a prompt, a conversation or a chain that would silently show less than there was is an error that says what is missing."""
    store = Lossy()
    runtime, _ = echoing()
    recorded, nodes = talk(store, runtime, "one", "two", "three")
    assert [node.id for node in chain(store, nodes[2].id)] == [node.id for node in reversed(nodes)]
    store.lost = nodes[1].id
    with pytest.raises(StoreCorruptError, match=nodes[1].id):
        recorded.conversation()
    with pytest.raises(StoreCorruptError, match=f"{nodes[2].id} follows {nodes[1].id}"):
        list(chain(store, nodes[2].id))
    with pytest.raises(StoreCorruptError, match=nodes[1].id):
        prompt_of(store, nodes[2])
    with session("s", store=store), pytest.raises(StoreCorruptError, match=nodes[1].id):
        runtime.exec("four")


@pytest.mark.parametrize("gone", ["frame", "parent", "owner", "log"])
def test_frames_that_cannot_be_told_raise(gone: str) -> None:
    """A prompt that reads a frame which the store has lost, whose parent or function it has lost, or whose log is too short, is an error that names it."""

    class Damaged(MemoryStore):
        def frame(self, frame_id: str) -> Frame | None:
            return None if frame_id == missing else super().frame(frame_id)

        def node(self, node_id: str) -> Call | None:
            return None if node_id == missing else super().node(node_id)

        def log(self, frame_id: str, start: int = 0, stop: int | None = None) -> Any:
            return [] if frame_id == missing else super().log(frame_id, start, stop)

    missing = ""
    store = Damaged()
    runtime, _ = echoing()
    with session("s", store=store) as recorded:
        runtime.exec("before")
        work(1, runtime)
    function, inner = named(recorded, "work"), asked(recorded)[1]
    missing = {"frame": inner.frame, "parent": recorded.info.frame, "owner": function.id, "log": recorded.info.frame}[gone]
    with pytest.raises(StoreCorruptError, match=missing):
        prompt_of(store, inner)


def test_a_store_with_one_branch_says_so() -> None:
    """Where a store keeps no branches, asking for one is an error; sessions work as ever."""

    class Plain(MemoryStore):
        open_branch = branches = property()  # type: ignore[assignment]

    runtime, _ = echoing()
    recorded, nodes = talk(Plain(), runtime, "one")
    assert recorded.conversation() == nodes
    with pytest.raises(StoreError, match="main branch of a session only"):
        recorded.fork()


def test_what_a_person_said_is_shown_whole(store: Store) -> None:
    """A text of any length, or blocks: what somebody typed is never cut."""
    runtime, provider = echoing()
    with session("s", store=store) as recorded:
        for node_id, value in (("a", "long " * 5000), ("b", [{"type": "text", "text": "look"}, {"type": "image", "data": "aGk="}])):
            store.append(Call(id=node_id, session="s", role="user", name="user", frame=recorded.info.frame, input=value))
            store.finish(Close(id=node_id, status="completed", enters=True))
        runtime.exec("and?")
    first, second, _ = provider.prompts[0]
    assert first.blocks[0]["text"] == "long " * 5000
    assert list(second.blocks) == [{"type": "text", "text": "look"}, {"type": "image", "data": "aGk="}]
