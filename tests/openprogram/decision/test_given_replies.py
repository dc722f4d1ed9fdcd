"""`parse_args` and `resolve_decision`: replies that are there already."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from openprogram import DecisionError, Runtime, agentic_function, decision, session
from openprogram.context.messages import text_of
from openprogram.providers.base import Profile
from openprogram.store.memory import MemoryStore
from tests.openprogram.decision.scripts import scripted


def refund(order: int, when: dt.date | None = None) -> tuple[int, dt.date | None]:
    return order, when


async def wait(n: int = 0) -> str:
    return f"waited {n}"


class Later:
    async def __call__(self) -> str:
        return "later"


LATER = Later()


@agentic_function(input={"desk": {"source": "context"}})
def file(paper: str, desk: str, runtime: Any = None) -> tuple[str, str, Any]:
    return paper, desk, runtime


def move(a: int = 1, b: int = 2, /, *, c: int) -> tuple[int, int, int]:
    return a, b, c


MARK = object()
OPTIONS: dict[str, Any] = {
    "refund": refund,
    "wait": wait,
    "later": LATER,
    "file": file,
    "move": move,
    "done": MARK,
    "plan": ("Plan.", {"steps": [{"action": str, "due": dt.date}]}),
}
CONTEXT = {"desk": "north"}
DAY = dt.date(2024, 2, 29)

READ: list[tuple[str, Any, dict[str, Any], Any]] = [
    ('{"call": "refund", "args": {"order": "7", "when": "2024-02-29", "x": 1}}', refund, {"order": 7, "when": DAY}, (7, DAY)),
    ('{"action": "wait", "args": {"n": 2}}', wait, {"n": 2}, "waited 2"),
    ("later", LATER, {}, "later"),
    ('{"call": "move", "args": {"b": 5, "c": 6}}', move, {"b": 5, "c": 6}, (1, 5, 6)),
    ('{"call": "done", "args": {"why": "dropped"}}', "done", {}, MARK),
    (
        '{"call": "plan", "args": {"steps": [{"action": "a", "due": "2024-02-29", "x": 1}]}}',
        "plan",
        {"steps": [{"action": "a", "due": DAY}]},
        {"decision": "plan", "steps": [{"action": "a", "due": DAY}]},
    ),
]


@pytest.mark.parametrize(("reply", "chosen", "arguments", "result"), READ)
def test_a_reply_is_read_without_a_request(reply: str, chosen: Any, arguments: dict[str, Any], result: Any) -> None:
    """The function itself, or the name, with arguments of the annotated types; then its result. A valid reply needs no runtime."""
    runtime, provider = scripted()
    for given in (runtime, None):
        found, kwargs = decision.parse_args(reply, OPTIONS, given, context=CONTEXT)
        assert found is chosen or found == chosen
        assert kwargs == arguments
        assert decision.resolve_decision(reply, OPTIONS, {}, given, context=CONTEXT) == result
    assert provider.requests == []


def test_what_the_model_does_not_see_is_filled() -> None:
    """From the context and with the runtime, whatever the reply says of them; the arguments are ready to call the function with."""
    runtime, _ = scripted()
    reply = '{"call": "file", "args": {"paper": "p", "desk": "evil", "runtime": "evil"}}'
    chosen, kwargs = decision.parse_args(reply, OPTIONS, runtime, context=CONTEXT)
    assert kwargs == {"paper": "p", "desk": "north", "runtime": runtime}
    assert chosen(**kwargs) == decision.resolve_decision(reply, OPTIONS, None, runtime, context=CONTEXT) == ("p", "north", runtime)


def test_the_ambient_runtime_is_used_where_none_is_given() -> None:
    """For what is filled in and for re-asks."""
    runtime, provider = scripted('{"call": "file", "args": {"paper": "p"}}')

    @agentic_function
    def route(runtime: Runtime) -> Any:
        return decision.resolve_decision("hm", OPTIONS, context=CONTEXT)

    assert route(runtime) == ("p", "north", runtime)
    assert len(provider.requests) == 1


def test_values_come_from_the_table() -> None:
    """A name of the menu stands for the table's value, also for None; one that the table lacks for the menu's own; a schema for its fields."""
    menu = ["stop", ("go", "when ready"), ("plan", "Plan.", {"n": int}), "other"]
    table = {"stop": 42, "go": None, "plan": "never looked up"}
    results = [decision.resolve_decision(reply, menu, table, None) for reply in ("stop", "go", '{"call": "plan", "args": {"n": "1"}}', "other")]
    assert results == [42, None, {"decision": "plan", "n": 1}, "other"]


@pytest.mark.parametrize("resolve", [False, True])
def test_a_reply_that_is_no_pick_is_asked_again_on_the_runtime(resolve: bool) -> None:
    """The re-ask shows the tail of the reply, what was wrong and the menu, is constrained where it can be, has no tools, and is a node."""
    runtime, provider = scripted('{"call": "refund", "args": {"order": 7}}', profile=Profile(schema=True))
    bad = "head " + "x" * 600 + ' {"call": "refund", "args": {"order": "seven"}}'
    with session("given", store=MemoryStore()) as record:
        if resolve:
            assert decision.resolve_decision(bad, OPTIONS, None, runtime, context=CONTEXT) == (7, None)
        else:
            assert decision.parse_args(bad, OPTIONS, runtime, context=CONTEXT) == (refund, {"order": 7})
        assert [node.metadata["pick"]["name"] for node in record.nodes() if node.role == "llm"] == ["refund"]
    (request,) = provider.requests
    again = text_of(request.new[-1])
    for part in ('"order": "seven"', "$.order", decision.render_options(OPTIONS)):
        assert part in again
    assert "head" not in again
    assert request.constraint is not None and request.tools == ()


def test_a_model_that_never_picks_is_a_decision_error() -> None:
    """Attempts count the given reply; the nodes are those of the re-asks."""
    runtime, provider = scripted("hm", "well", '{"call": "fly"}')
    with session("given", store=MemoryStore()) as record:
        with pytest.raises(DecisionError, match="unknown_call") as caught:
            decision.parse_args("no", OPTIONS, runtime, context=CONTEXT, max_retries=3)
        nodes = [node.id for node in record.nodes() if node.role == "llm"]
    assert (caught.value.kind, caught.value.path, caught.value.attempts) == ("unknown_call", "$.call", 4)
    assert list(caught.value.node_ids) == nodes and len(nodes) == len(provider.requests) == 3


def test_without_re_asks_the_first_reply_decides() -> None:
    """max_retries=0 asks nothing."""
    runtime, provider = scripted()
    with pytest.raises(DecisionError) as caught:
        decision.parse_args("hm", OPTIONS, runtime, context=CONTEXT, max_retries=0)
    assert (caught.value.attempts, caught.value.node_ids) == (1, ())
    assert provider.requests == []


BAD: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    (("hm", OPTIONS, None), RuntimeError, "runtime=None"),
    ((None, OPTIONS, None), TypeError, "text"),
    ((b"{}", OPTIONS, None), TypeError, "text"),
    (("done", {}, None), ValueError, "empty"),
    (("done", "done", None), TypeError, "dict"),
    (("hm", OPTIONS, object()), TypeError, "Runtime"),
]


@pytest.mark.parametrize(("arguments", "kind", "reason"), BAD)
def test_bad_input_is_refused_with_a_reason(arguments: tuple[Any, ...], kind: type[Exception], reason: str) -> None:
    """No runtime where one is needed, a reply that is no text, a menu that is none."""
    reply, options, runtime = arguments
    with pytest.raises(kind, match=reason):
        decision.parse_args(reply, options, runtime, context=CONTEXT)
    with pytest.raises(kind, match=reason):
        decision.resolve_decision(reply, options, {}, runtime, context=CONTEXT)


def test_context_and_retries_are_checked_first() -> None:
    """A context that lacks something, and a max_retries that is no count."""
    with pytest.raises(ValueError, match="'file' needs 'desk'"):
        decision.parse_args("done", OPTIONS, None)
    with pytest.raises(ValueError, match="max_retries"):
        decision.parse_args("done", OPTIONS, None, context=CONTEXT, max_retries=-1)


@pytest.mark.parametrize("text", [None, b'{"call": "a"}', 3])
def test_extract_action_reads_texts(text: Any) -> None:
    """Anything else is refused by name."""
    with pytest.raises(TypeError, match="text"):
        decision.extract_action(text)
