"""Faults that were measured elsewhere, by their numbers: what must never happen to context and record here."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, session
from openprogram.agentic_programming.llm import llm
from openprogram.context.scope import _current_runtime as ambient  # pyright: ignore[reportPrivateUsage] - the name is documented
from openprogram.store.base import Store
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.context.support import asked, echoing, named, scripted, texts


@pytest.mark.parametrize("expose", ["io", "llm", "full"])
def test_fault_1_and_2_a_frame_sees_its_own_pairs(expose: str, store: Store) -> None:
    """1, 2: the second exec sees the first, prompt and reply as a pair; there is no empty message and none for the node that is open."""
    runtime, provider = echoing()

    @agentic_function(expose=expose)
    def work(runtime: Runtime) -> None:
        runtime.exec("one")
        runtime.exec("two")

    with session("s", store=store):
        work(runtime)
    assert texts(provider.prompts[1]) == ["user: work()", "user: one", "assistant: reply to one", "user: two"]


def test_fault_3_a_top_level_exec_sees_the_session(store: Store) -> None:
    """3: also one of another runtime, in a later entry of the session."""
    runtime, _ = echoing()
    later, provider = echoing()
    with session("s", store=store):
        runtime.exec("one")
    with session("s", store=store):
        later.exec("two")
    assert texts(provider.prompts[0]) == ["user: one", "assistant: reply to one", "user: two"]


def test_fault_4_llm_sees_what_exec_sees(store: Store) -> None:
    """4: ``llm()`` on a ``call=`` function is given the history."""
    seen: list[list[str]] = []

    def answer(content: list[dict[str, Any]]) -> str:
        seen.append([block["text"] for block in content])
        return "yes"

    runtime = Runtime(call=answer)
    with session("s", store=store):
        runtime.exec("one")
        llm("two", runtime=runtime)
    assert seen[1][:2] == ["one", "yes"]
    assert "two" in seen[1][-1]


def _deep() -> None:
    def deeper() -> None:
        deeper()

    deeper()


def _interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("body", "status"), [(_interrupted, "cancelled"), (lambda: sys.exit(3), "error"), (_deep, "error")], ids=["interrupt", "exit", "recursion"]
)
def test_fault_8_whatever_ends_a_body_ends_its_node(body: Callable[[], None], status: str, store: Store) -> None:
    """8: an interrupt reads cancelled; an exit and a stack that is used up read error; none reads completed or running."""

    @agentic_function
    def work() -> None:
        body()

    with session("s", store=store) as recorded, pytest.raises((KeyboardInterrupt, SystemExit, RecursionError)):
        work()
    assert named(recorded, "work").status == status


def test_fault_8_a_generator_ends(store: Store) -> None:
    """8: a generator that was read to its end is completed."""

    @agentic_function
    def numbers() -> Iterator[int]:
        yield 1

    with session("s", store=store) as recorded:
        assert list(numbers()) == [1]
    assert named(recorded, "numbers").status == "completed"


def test_fault_9_a_missing_argument_leaks_no_runtime(store: Store) -> None:
    """9: after the TypeError there is no ambient runtime."""
    runtime, _ = echoing()

    @agentic_function
    def inner(x: int, runtime: Runtime) -> None: ...

    @agentic_function
    def outer(runtime: Runtime) -> None:
        inner()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    with session("s", store=store), pytest.raises(TypeError, match="missing"):
        outer(runtime)
    assert ambient.get() is None


def test_fault_10_system_texts_and_numbers_are_per_call(tmp_path: Path) -> None:
    """10: four threads on one runtime and session, each with a system text of its own: each is sent its own, and no two nodes have one ``seq``."""
    together = threading.Barrier(4, timeout=30)
    seen: dict[str, str] = {}

    def answer(content: list[dict[str, Any]]) -> str:
        seen[content[-1]["text"]] = next(block["text"] for block in content if block.get("role") == "system")
        return "ok"

    runtime = Runtime(call=answer)

    def asking(number: int) -> Callable[[], None]:
        @agentic_function(system=f"system {number}", name=f"f{number}")
        def work(runtime: Runtime) -> None:
            for turn in range(5):
                together.wait()
                runtime.exec(f"{number} {turn}")

        return lambda: work(runtime)

    store = SqliteStore(tmp_path / "store.sqlite3")

    def run(number: int) -> None:
        with session("s", store=store):
            asking(number)()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert seen == {f"{number} {turn}": f"system {number}" for number in range(4) for turn in range(5)}
    assert sorted(node.seq for node in session("s", store=store).nodes()) == list(range(1, 25))
    store.close()


def test_fault_11_secrets_are_redacted_and_large_arguments_kept_once(tmp_path: Path) -> None:
    """11: an argument named like a secret is not stored; five megabytes are stored once, read back whole, and shown by head and tail."""
    path = tmp_path / "store.sqlite3"
    store = SqliteStore(path)
    runtime, provider = echoing()
    large = "".join(f"{number:07d} " for number in range(640_000))

    @agentic_function
    def work(text: str, api_key: str, runtime: Runtime) -> str:
        return runtime.exec("go")

    with session("s", store=store) as recorded:
        work(large, "sk-very-secret", runtime)
        work(large, "sk-very-secret", runtime)
    nodes = [node for node in recorded.nodes() if node.name == "work"]
    assert all(node.input == {"text": large, "api_key": "[redacted]"} for node in nodes)
    assert max(len(text) for text in texts(provider.prompts[-1])) < 10_000
    store.close()
    data = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"sk-very-secret" not in data
    assert len(data) < 2 * len(large)


@pytest.mark.parametrize("bad", ["../evil", "", ".", "a/b"])
def test_fault_12_session_ids_that_are_paths_are_refused(bad: str, store: Store) -> None:
    """12: by name, before anything is written."""
    with pytest.raises(ValueError, match="session id"):
        session(bad, store=store)
    assert store.sessions() == []


def test_each_exec_has_its_own_usage_and_reads(store: Store) -> None:
    """Every model call names what it read, also those that run at once."""
    runtime, _ = scripted("yes", repeat=True)

    async def main() -> None:
        await asyncio.gather(*(runtime.async_exec(f"turn {number}") for number in range(5)))

    with session("s", store=store) as recorded:
        asyncio.run(main())
    assert all(node.reads is not None and node.metadata["usage"]["output_tokens"] == 1 for node in asked(recorded))
