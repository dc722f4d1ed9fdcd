"""A decision end to end: what is sent, what comes back, and what happens when the model does not pick."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

import pytest

from openprogram import DecisionError, OpenProgramError, Runtime, agentic_function, decision, session
from openprogram.context.messages import text_of
from openprogram.providers.base import Finish, Profile, TextDelta
from openprogram.store.memory import MemoryStore
from tests.openprogram.decision.scripts import scripted, shown


def _made(runtime: Runtime, options: Any, **settings: Any) -> Any:
    return decision.make("Pick one.", options, runtime=runtime, **settings)


def _made_async(runtime: Runtime, options: Any, **settings: Any) -> Any:
    return asyncio.run(decision.amake("Pick one.", options, runtime=runtime, **settings))


def _closed(runtime: Runtime, options: Any, **settings: Any) -> Any:
    return runtime.exec("Pick one.", choices=options, **settings)


def _closed_async(runtime: Runtime, options: Any, **settings: Any) -> Any:
    return asyncio.run(runtime.async_exec("Pick one.", choices=options, **settings))


DOORS: dict[str, Callable[..., Any]] = {"make": _made, "amake": _made_async, "exec": _closed, "async_exec": _closed_async}


@pytest.fixture(params=DOORS)
def decide(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Each way to let a model decide."""
    return DOORS[request.param]


def refund(order: int, when: dt.date | None = None) -> tuple[int, dt.date | None]:
    """Pay back."""
    return order, when


async def wait(n: int = 0) -> str:
    await asyncio.sleep(0)
    return f"waited {n}"


class Waiter:
    async def __call__(self, n: int = 0) -> str:
        return await wait(n)

    async def method(self, n: int = 0) -> str:
        return await wait(n)


@functools.wraps(wait)
def wrapped_wait(n: int = 0) -> Any:
    return wait(n)


@agentic_function
async def agentic_wait(n: int = 0) -> str:
    return await wait(n)


MARK = object()

OPTIONS: dict[str, Any] = {
    "refund": refund,
    "wait": wait,
    "partial": functools.partial(wait, n=5),
    "method": Waiter().method,
    "instance": Waiter(),
    "agentic": agentic_wait,
    "wrapped": wrapped_wait,
    "done": "CONVERSATION_OVER",
    "mark": (MARK, "an object"),
    "function": decision.value(refund),
    "plan": ("Plan.", {"steps": [{"action": str, "due": dt.date}], "share": float}),
}


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        ('{"call": "refund", "args": {"order": "12", "when": "2024-02-29"}}', (12, dt.date(2024, 2, 29))),
        ('{"call": "wait", "args": {"n": 3}}', "waited 3"),
        ('{"call": "partial"}', "waited 5"),
        ('{"call": "partial", "args": {"n": 9}}', "waited 5"),
        ('{"call": "method", "args": {"n": 1}}', "waited 1"),
        ('{"call": "instance", "args": {"n": 1}}', "waited 1"),
        ('{"call": "agentic", "args": {"n": 2}}', "waited 2"),
        ('{"call": "wrapped", "args": {"n": 4}}', "waited 4"),
        ('{"call": "done", "args": {"why": "dropped"}}', "CONVERSATION_OVER"),
        ("done", "CONVERSATION_OVER"),
        ('{"call": "mark"}', MARK),
        ('{"call": "function"}', refund),
        (
            '{"call": "plan", "args": {"steps": [{"action": "a", "due": "2024-01-01", "x": 1}], "share": 1, "y": 2}}',
            {"decision": "plan", "steps": [{"action": "a", "due": dt.date(2024, 1, 1)}], "share": 1.0},
        ),
    ],
)
def test_a_pick_becomes_its_result(decide: Callable[..., Any], reply: str, result: Any) -> None:
    """A function is run with arguments of the annotated types (an async one awaited), a value comes back as it is, a schema as its fields."""
    runtime, provider = scripted(reply)
    assert decide(runtime, OPTIONS) == result
    assert len(provider.requests) == 1


def test_make_sends_the_prompt_and_the_menu_only() -> None:
    """The instruction to work first belongs to exec; both send what render_options shows, and no tools."""
    for decide, instructed in ((_made, False), (_closed, True)):
        runtime, provider = scripted("done")
        decide(runtime, OPTIONS)
        text = shown(provider.prompts[0])
        assert text.startswith("Pick one.")
        assert text.endswith(decision.render_options(OPTIONS))
        assert (decision.DECISION_FINISH_INSTRUCTION in text) is instructed
        assert provider.requests[0].tools == ()


def test_make_is_constrained_where_the_provider_can() -> None:
    """The schema of the menu travels with a pure decision; a free turn is not constrained, its re-ask is."""
    runtime, provider = scripted("done", profile=Profile(schema=True))
    _made(runtime, OPTIONS)
    constraint = provider.requests[0].constraint
    assert constraint is not None and constraint.schema is not None
    assert [branch["properties"]["call"]["const"] for branch in constraint.schema["anyOf"]] == list(OPTIONS)

    runtime, provider = scripted("hm", "done", profile=Profile(schema=True))
    _closed(runtime, OPTIONS)
    assert [request.constraint is not None for request in provider.requests] == [False, True]


@pytest.mark.parametrize(
    "case",
    [
        ("I would say wait or done", 'no JSON object with a "call" key'),
        ('{"call": "fly"}', 'no option "fly"'),
        ('{"call": "refund", "args": {"order": "a lot"}}', "$.order"),
        ('{"call": "refund", "args": {"order": 1, "when": "soon"}}', "when"),
        ("", "(empty)"),
    ],
)
def test_a_reply_that_is_no_pick_is_asked_again(decide: Callable[..., Any], case: tuple[str, str]) -> None:
    """a49: the second prompt shows the question, the reply, what was wrong and the menu; exactly two requests, and the second reply decides alone."""
    first, reason = case
    runtime, provider = scripted(first, '{"call": "wait", "args": {"n": 1}}')
    assert decide(runtime, OPTIONS) == "waited 1"
    assert len(provider.requests) == 2
    again = text_of(provider.requests[1].new[-1])
    for part in ("Pick one.", first, reason, decision.render_options(OPTIONS)):
        assert part in again
    assert provider.requests[1].tools == ()


def test_the_re_ask_shows_the_tail_of_a_long_reply() -> None:
    """f21: a reply ends in what it decided, so its end is shown, not its head."""
    runtime, provider = scripted("the head " + "x" * 5000 + " so I think we are finished here", "done")
    _made(runtime, OPTIONS)
    again = text_of(provider.requests[1].new[-1])
    assert "so I think we are finished here" in again
    assert "the head" not in again


def test_a_re_ask_sees_the_history_of_its_frame() -> None:
    """What the frame said before, and the first try, come before the re-ask; both tries are nodes of the record."""
    runtime, provider = scripted("noted", "either", "done")

    @agentic_function
    def route(runtime: Runtime) -> Any:
        runtime.exec("Remember 42.")
        return decision.make("Pick one.", ["done", "wait"])

    with session("re-ask", store=MemoryStore()) as record:
        assert route(runtime) == "done"
        assert [node.output for node in record.nodes() if node.role == "llm"] == ["noted", "either", "done"]
    past = shown(provider.prompts[2][:-1])
    for part in ("Remember 42.", "noted", "Pick one.", "either"):
        assert part in past


def test_a_model_that_never_picks_is_a_decision_error(decide: Callable[..., Any]) -> None:
    """The error carries the last kind, path, the head of the reply, the attempts and the nodes; it is a ValueError too."""
    runtime, provider = scripted("hm", '{"call": "refund", "args": {"order": "x"}}' + " " * 500)
    with session("undecided", store=MemoryStore()) as record:
        with pytest.raises(DecisionError, match="order") as caught:
            decide(runtime, OPTIONS)
        nodes = [node.id for node in record.nodes() if node.role == "llm"]
    error = caught.value
    assert isinstance(error, OpenProgramError) and isinstance(error, ValueError)
    assert error.kind in str(error) and error.reply[:40] in str(error)
    assert (error.kind, error.path, error.attempts) == ("type_mismatch", "$.order", 2)
    assert error.reply.startswith('{"call": "refund"') and len(error.reply) <= 300
    assert list(error.node_ids) == nodes and len(nodes) == 2
    assert len(provider.requests) == 2


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_max_retries_counts_the_re_asks(retries: int) -> None:
    """0 asks once; the last reply may still decide."""
    for decide in (_made, _made_async):
        runtime, provider = scripted("hm", repeat=True)
        with pytest.raises(DecisionError) as caught:
            decide(runtime, ["done", "wait"], max_retries=retries)
        assert len(provider.requests) == caught.value.attempts == retries + 1
        runtime, _ = scripted(*["hm"] * retries, "done")
        assert decide(runtime, ["done", "wait"], max_retries=retries) == "done"


def test_a_reply_that_was_cut_is_asked_again_and_then_incomplete() -> None:
    """a24: a complete-looking pick that the token limit ended is not run."""
    cut: list[Any] = [TextDelta('{"call": "refund", "args": {"order": 1}}'), Finish(reason="length")]
    runtime, _ = scripted(cut, cut)
    ran: list[int] = []

    def refund(order: int) -> None:
        ran.append(order)

    with pytest.raises(DecisionError) as caught:
        _made(runtime, [refund, "stop"])
    assert caught.value.kind == "incomplete"
    assert ran == []


@pytest.mark.parametrize("settings", [{"max_retries": -1}, {"max_retries": 1.5}, {"max_retries": True}, {"max_retries": None}])
def test_max_retries_is_a_count(settings: dict[str, Any]) -> None:
    """Anything else is refused before any request."""
    runtime, provider = scripted()
    with pytest.raises(ValueError, match="max_retries"):
        _made(runtime, ["a"], **settings)
    assert provider.requests == []


@pytest.mark.parametrize("options", [{}, [], ["a", "a"], {"a": (1, 2)}, {"a": ("d", {"x": [str, int]})}, [lambda: 1]])
def test_a_bad_menu_is_refused_before_any_request(decide: Callable[..., Any], options: Any) -> None:
    """A ValueError or TypeError, never a DecisionError, and the model is not asked."""
    runtime, provider = scripted()
    with pytest.raises((ValueError, TypeError)) as caught:
        decide(runtime, options)
    assert not isinstance(caught.value, DecisionError)
    assert provider.requests == []


@agentic_function(input={"desk": {"source": "context"}, "key": {"hidden": True}})
def file(paper: str, desk: str, key: str = "own", runtime: Any = None, **more: int) -> tuple[Any, ...]:
    return paper, desk, key, runtime, more


def test_context_fills_what_the_model_does_not_see(decide: Callable[..., Any]) -> None:
    """f26: a model's values for hidden, context and runtime parameters are stripped, also where ``**kwargs`` would take them."""
    reply = '{"call": "file", "args": {"paper": "p", "desk": "evil", "key": "evil", "runtime": "evil", "n": "4"}}'
    runtime, provider = scripted(reply, reply)
    assert decide(runtime, [file, "stop"], context={"desk": "north", "unused": 1}) == ("p", "north", "own", runtime, {"n": 4})
    assert decide(runtime, [file, "stop"], context={"desk": "north", "key": "k"})[:3] == ("p", "north", "k")
    menu = shown(provider.prompts[0])
    assert "desk" not in menu and "key" not in menu and "runtime" not in menu


def test_a_context_that_lacks_something_is_refused_before_any_request(decide: Callable[..., Any]) -> None:
    """The message names the option and the parameter; nothing was asked."""
    runtime, provider = scripted()
    with pytest.raises(ValueError, match="'file' needs 'desk'"):
        decide(runtime, [file, "stop"], context={"key": "k"})
    assert provider.requests == []


def test_positional_only_parameters_keep_their_places() -> None:
    """f23: a default in front of a given one stays; ``*args`` is left out and ``**kwargs`` filled with its type."""

    def move(a: int = 1, b: int = 2, /, *args: int, c: int, **more: float) -> tuple[Any, ...]:
        return a, b, args, c, more

    runtime, _ = scripted('{"call": "move", "args": {"b": 5, "c": 6, "args": [7], "d": 1}}')
    assert _made(runtime, [move]) == (1, 5, (), 6, {"d": 1.0})


def test_the_runtime_comes_from_the_function_around() -> None:
    """A function that declares a runtime makes it ambient, also for async ones; picked functions get it without passing it on."""
    runtime, _ = scripted('{"call": "look"}', '{"call": "look"}')

    def look(runtime: Any = None, review_runtime: Any = None) -> Any:
        return runtime, review_runtime

    @agentic_function
    def route(runtime: Runtime) -> Any:
        return decision.make("Pick one.", [look, "stop"])

    @agentic_function
    async def aroute(runtime: Runtime) -> Any:
        return await decision.amake("Pick one.", [look, "stop"])

    assert route(runtime) == (runtime, runtime)
    assert asyncio.run(aroute(runtime)) == (runtime, runtime)


def test_the_runtime_that_was_asked_is_the_one_filled_in(decide: Callable[..., Any]) -> None:
    """One passed explicitly goes before the ambient one, for the question and for what was picked."""
    ambient, _ = scripted()
    asked, _ = scripted('{"call": "look"}')

    def look(runtime: Any = None) -> Any:
        return runtime

    @agentic_function
    def route(runtime: Runtime) -> Any:
        return decide(asked, [look, "stop"])

    assert route(ambient) is asked


@pytest.mark.parametrize("context", ["text", [1], 3])
def test_context_is_a_mapping(decide: Callable[..., Any], context: Any) -> None:
    """Anything else is refused before any request."""
    runtime, provider = scripted()
    with pytest.raises(TypeError, match="context"):
        decide(runtime, ["a"], context=context)
    assert provider.requests == []


def test_a_runtime_is_a_runtime() -> None:
    """What is none is refused with its own words, not with an AttributeError."""
    with pytest.raises(TypeError, match="'not one'"):
        decision.make("Pick one.", ["a"], runtime="not one")


def test_without_a_runtime_there_is_a_reason() -> None:
    """Outside, and below a function that declares none, the error says what to declare."""

    @agentic_function
    def route() -> Any:
        return decision.make("Pick one.", ["a"])

    for attempt in (route, lambda: decision.make("Pick one.", ["a"]), lambda: asyncio.run(decision.amake("Pick one.", ["a"]))):
        with pytest.raises(RuntimeError, match="runtime=None"):
            attempt()


def test_what_a_picked_function_raises_is_the_callers(decide: Callable[..., Any]) -> None:
    """A ValueError of the function is no DecisionError and is not asked again."""

    def burn() -> None:
        raise ValueError("smoke")

    runtime, provider = scripted('{"call": "burn"}')
    with pytest.raises(ValueError, match="smoke") as caught:
        decide(runtime, [burn, "stop"])
    assert not isinstance(caught.value, DecisionError)
    assert len(provider.requests) == 1


def test_a_repaired_pick_says_so_in_its_node() -> None:
    """f18: the record tells a repaired reply from a clean one."""
    runtime, _ = scripted("{'call': 'wait', 'args': {'n': 1,}}", '{"call": "wait"}')
    with session("repaired", store=MemoryStore()) as record:
        _made(runtime, [wait, "stop"])
        _made(runtime, [wait, "stop"])
        picks = [node.metadata["pick"] for node in record.nodes() if node.role == "llm"]
    assert picks == [{"name": "wait", "args": {"n": 1}, "repaired": True}, {"name": "wait", "args": {}, "repaired": False}]


def test_a_pick_in_two_requests_is_one_exec() -> None:
    """A profile may ask for the name first and then for its arguments: the same result, one node."""
    runtime, provider = scripted("refund", '{"order": 7}', profile=Profile(two_step_pick=True))
    with session("two", store=MemoryStore()) as record:
        assert _made(runtime, OPTIONS) == (7, None)
        assert len([node for node in record.nodes() if node.role == "llm"]) == 1
    assert len(provider.requests) == 2
