"""What history costs: an exec in a long session beside one in a short, a prompt of 3,000 entries beside one `bytes.join`, what a local model evaluates anew."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from benchmarks import Figure
from benchmarks._measure import interleaved
from openprogram import Runtime, agentic_function, session
from openprogram.context.messages import Block
from openprogram.context.view import View, view_of
from openprogram.errors import OpenProgramError
from openprogram.providers.base import ModelEvent, ModelRequest, Profile
from openprogram.providers.openai_messages import ChatForm, encoded_messages
from openprogram.providers.scripted import ScriptedProvider
from openprogram.store.sqlite import SqliteStore

FEW, MANY = 10, 3000
ROUNDS = 300
QUESTION = "What comes next, and why?"
PROFILE = Profile()
LOCAL = "local:smollm2-135m"
TURNS = 10
NEW_TEXT = "the river runs past the old mill where nobody has lived for many years and " * 14


def figures() -> Iterator[Figure]:
    """All on stores of their own; those of the local model only where it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _execs(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield from _prompts(Path(folder))
    yield from _reuse()


class _Wire(ScriptedProvider):
    """Answers at once, when the messages are written as they would go out to a server."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        b"".join(encoded_messages(request, PROFILE).pieces)
        async for event in super().stream(request):
            yield event


def _wire() -> Runtime:
    return Runtime(provider=_Wire(["It goes on."], repeat=True, keep=False))


def _call() -> Runtime:
    def answer(content: list[Block]) -> str:
        return "It goes on."

    return Runtime(call=answer)


def _execs(folder: Path) -> Iterator[Figure]:
    for name, make in {"exec": _wire, "exec_with_call": _call}.items():
        few, many = (_inside(folder / f"{name}{nodes}", nodes, make()) for nodes in (FEW, MANY))
        taken = interleaved({"few": lambda few=few: next(few), "many": lambda many=many: next(many)}, ROUNDS)
        short, long = (statistics.median(seconds) for seconds in (taken["few"], taken["many"]))
        is_measured = name == "exec"
        yield Figure(f"context.{name}_{MANY}_nodes", value=min(taken["many"]) * 1000, unit="ms", bar=0.5 if is_measured else None)
        yield Figure(f"context.{name}_{MANY}_over_{FEW}_nodes", value=long / short, unit="times", bar=1.5 if is_measured else None)


def _inside(path: Path, nodes: int, runtime: Runtime) -> Iterator[None]:
    """One exec at each step, in a function of a session that holds so many nodes before."""

    @agentic_function
    def work(runtime: Runtime) -> Iterator[None]:
        while True:
            runtime.exec(QUESTION)
            yield

    store = SqliteStore(path)
    with session("s", store=store):
        for _ in range(nodes):
            runtime.exec(QUESTION)
        steps = work(runtime)
        next(steps)  # so that it begins in the session
    yield from steps


def _prompts(folder: Path) -> Iterator[Figure]:
    view = _long(folder)
    form = ChatForm("m", "openai", PROFILE)
    pieces = [b"".join(view.encoded(form, upto + 1))[len(b"".join(view.encoded(form, upto))) :] for upto in range(MANY)]
    subjects: dict[str, Callable[[], object]] = {
        "join": lambda: b"".join(pieces),
        "prompt": lambda: b"".join(view.encoded(form, MANY)),
        "messages": lambda: view.messages(MANY),
    }
    taken = interleaved(subjects, ROUNDS)
    join = min(taken["join"])
    yield Figure("context.prompt_over_join", value=min(taken["prompt"]) / join, unit="times", bar=5)
    yield Figure("context.messages_over_join", value=min(taken["messages"]) / join, unit="times", bar=5)


def _long(folder: Path) -> View:
    store = SqliteStore(folder / "prompts")
    runtime = _wire()
    with session("s", store=store) as recorded:
        for _ in range(MANY):
            runtime.exec(QUESTION)
    view = view_of(store, recorded.info.frame)
    assert view is not None
    return view


def _reuse() -> Iterator[Figure]:
    """Tokens that the model evaluates, over those that it had not seen: the new turn, and the last token of each prompt, which is always evaluated."""
    runtime = Runtime(model=LOCAL, model_settings={"max_output_tokens": 4, "temperature": 0.0})
    try:
        evaluated, new = _evaluated(runtime)
    except OpenProgramError as error:
        print(f"(no figures of the local model: {error})")
        return
    finally:
        runtime.close()
    yield Figure("context.evaluated_over_new_tokens", value=evaluated / new, unit="times", bar=1.1)


def _evaluated(runtime: Runtime) -> tuple[int, int]:
    evaluated = new = seen = 0
    with tempfile.TemporaryDirectory() as folder, session("s", store=SqliteStore(Path(folder) / "reuse")):
        for number in range(TURNS):
            runtime.exec(f"Part {number} at {time.time_ns()}. {NEW_TEXT}")
            usage = runtime.last_usage or {}
            evaluated += usage["input_tokens"] - usage["cache_read"]
            new += usage["input_tokens"] - seen
            seen = usage["total_tokens"]
    return evaluated, new
