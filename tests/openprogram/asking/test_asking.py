"""``runtime.ask``, ``confirm`` and ``form``: what comes back, what is raised, and what is recorded, whoever answers."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from openprogram import AskTimeout, Runtime, UserDeclined, agentic_function, session
from openprogram.agentic_programming.asking import Answer, Ask, answering
from openprogram.errors import OpenProgramError, UsageError
from openprogram.store.memory import MemoryStore
from tests.openprogram.tools import scripted


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """A runtime that nobody answers yet: the tests have no terminal."""
    with Runtime(call=lambda content: "hm") as made, answering(None):
        yield made


def answers(*given: Any) -> tuple[Callable[[Ask], Any], list[Ask]]:
    """A person with these answers, one for each time that something is asked, and what was asked."""
    asked: list[Ask] = []
    left = iter(given)

    def person(ask: Ask) -> Any:
        asked.append(ask)
        return next(left)

    return person, asked


OPTIONS: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, "Grace", "Grace"),
    ({}, "  two\nlines ", "  two\nlines "),
    ({"options": ["a", "b"]}, "b", "b"),
    ({"options": ["Yes", "No"]}, " yes ", "Yes"),
    ({"options": [1, 2.5, True]}, "1", 1),
    ({"options": [1, 2.5, True]}, True, True),
    ({"options": [("a", "the first"), ("b", "")]}, "a", "a"),
    ({"options": [{"label": "A", "value": [1]}, {"label": "B"}]}, "A", [1]),
    ({"options": [{"label": "A", "value": [1]}, {"label": "B"}]}, "B", "B"),
    ({"options": Color}, "blue", Color.BLUE),
    ({"options": list(Color)}, Color.RED, Color.RED),
    ({"options": ["a", "b"], "multi": True}, ["b", "a", "b"], ["b", "a"]),
    ({"options": ["a", "b"], "multi": True}, "a", ["a"]),
    ({"options": ["a", "b"], "multi": True}, [], []),
    ({"options": ["a", "b"], "custom": True}, "other", "other"),
    ({"options": ["a", "b"], "custom": True, "multi": True}, ["a", "other"], ["a", "other"]),
    ({"default": "d"}, "", "d"),
    ({"default": None}, "", None),
    ({"options": ["a", "b"], "default": "b"}, None, "b"),
]


@pytest.mark.parametrize("how", ["ask", "async_ask"])
@pytest.mark.parametrize(("options", "given", "wanted"), OPTIONS)
def test_the_answer_comes_back(runtime: Runtime, how: str, options: dict[str, Any], given: Any, wanted: Any) -> None:
    """A text, the option that was picked, a list of several, one's own words, or the default for an empty answer."""
    runtime.on_ask, asked = answers(given)
    assert runtime.can_ask()
    result = runtime.ask("Which?", **options) if how == "ask" else asyncio.run(runtime.async_ask("Which?", **options))
    assert result == wanted
    assert type(result) is type(wanted)
    (ask,) = asked
    assert (ask.kind, ask.prompt, len(ask.questions)) == ("ask", "Which?", 1)


def test_an_answer_that_does_not_fit_is_asked_for_again(runtime: Runtime) -> None:
    """The person is told what was wrong, and sees what was answered; what never fits ends in an error."""
    runtime.on_ask, asked = answers("c", "", "a")
    assert runtime.ask("Which?", ["a", "b"]) == "a"
    assert [ask.problems for ask in asked] == [{}, {"answer": "'c' is none of the options: a, b"}, {"answer": "an answer is needed"}]
    assert (asked[1].given, len({ask.id for ask in asked})) == ({"answer": "c"}, 1)
    runtime.on_ask = lambda ask: "c"
    with pytest.raises(UsageError, match="20 answers in a row did not fit"):
        runtime.ask("Which?", ["a", "b"])


def test_several_questions_are_put_at_once(runtime: Runtime) -> None:
    """A list gives a list, a dict a dict; each question has its own options and type."""
    questions: list[Any] = ["Name?", {"prompt": "Age?", "type": int}, {"prompt": "Colour?", "options": ["red", "blue"], "multi": True}]
    runtime.on_ask, asked = answers(["Ada", "36", ["red"]])
    assert runtime.ask("About you", questions=questions) == ["Ada", 36, ["red"]]
    assert [question.prompt for question in asked[0].questions] == ["Name?", "Age?", "Colour?"]
    runtime.on_ask, asked = answers({"name": "Ada", "age": 36})
    assert runtime.ask(questions={"name": "Name?", "age": {"prompt": "Age?", "type": "int"}}) == {"name": "Ada", "age": 36}
    runtime.on_ask = lambda ask: ["Ada"]
    with pytest.raises(UsageError, match="a list of as many answers"):
        runtime.ask(questions=["Name?", "Age?"])


@pytest.mark.parametrize(("given", "wanted"), [(True, True), (False, False), ("true", True), (None, False)])
def test_confirm_is_a_yes_or_no(runtime: Runtime, given: Any, wanted: bool) -> None:
    """Without an answer its default holds."""
    runtime.on_ask, asked = answers(given)
    assert runtime.confirm("Sure?") is wanted
    assert (asked[0].kind, asked[0].questions[0].schema["type"], asked[0].questions[0].default) == ("confirm", "boolean", False)


FIELDS: list[tuple[Any, Any, Any]] = [
    (str, "x", "x"),
    (int, "3", 3),
    (float, "2", 2.0),
    (bool, "true", True),
    (dt.date, "2024-02-29", dt.date(2024, 2, 29)),
    (dt.date, dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
    (Color, "red", Color.RED),
    (Literal["a", 1], 1, 1),
    ("a description", "x", "x"),
    (["red", "blue"], "blue", "blue"),
    ([int], ["1", 2], [1, 2]),
    ({"type": "int", "default": 7}, "", 7),
    ({"type": int, "required": False}, None, None),
    ({"type": Annotated[int, Field(ge=1)], "prompt": "How many?"}, 1, 1),
    ({"options": ["a", "b"], "multi": True, "default": ["a"]}, None, ["a"]),
    ({"check": lambda text: text.isupper() or "capitals, please"}, "ABC", "ABC"),
]


@pytest.mark.parametrize(("field", "given", "wanted"), FIELDS)
def test_a_form_gives_values_of_the_declared_types(runtime: Runtime, field: Any, given: Any, wanted: Any) -> None:
    """Types, options and defaults, as a dict by name or a list."""
    runtime.on_ask = lambda ask: {"f": given}
    assert runtime.form("Fill in", {"f": field}) == {"f": wanted}
    if isinstance(field, dict):
        assert runtime.form("Fill in", [{"name": "f", **field}]) == {"f": wanted}


@pytest.mark.parametrize(
    ("field", "given", "problem"),
    [
        (int, "x", "expected an integer"),
        (dt.date, "soon", "f:"),
        ({"type": Annotated[int, Field(ge=1)]}, 0, "greater than or equal to 1"),
        ({"check": lambda text: text.isupper() or "capitals, please"}, "abc", "capitals, please"),
        ({"check": lambda text: False}, "abc", "not allowed"),
        ({"check": lambda text: int(text) < 0}, "abc", "invalid literal"),
        (str, "", "an answer is needed"),
    ],
)
def test_a_field_says_what_is_wrong(runtime: Runtime, field: Any, given: Any, problem: str) -> None:
    """The problem stands under the field's name; what was right is not asked again in vain."""
    runtime.on_ask, asked = answers({"f": given, "g": "x"}, Answer(outcome="decline"))
    with pytest.raises(UserDeclined):
        runtime.form("Fill in", {"f": field, "g": str})
    assert list(asked[1].problems) == ["f"]
    assert problem in asked[1].problems["f"]
    assert asked[1].given == {"f": given, "g": "x"}


def _refuse(ask: Ask) -> Any:
    raise UserDeclined("not now")


@pytest.mark.parametrize("person", [_refuse, lambda ask: Answer(outcome="decline")])
@pytest.mark.parametrize("question", [lambda rt: rt.ask("?", default=1), lambda rt: rt.confirm("?"), lambda rt: rt.form("?", {"f": str}, default={})])
def test_a_refusal_is_raised_whatever_the_default(runtime: Runtime, person: Any, question: Callable[[Runtime], Any]) -> None:
    """Somebody was there and would not: that is not the same as nobody."""
    runtime.on_ask = person
    with pytest.raises(UserDeclined, match=r"declined: \?"):
        question(runtime)


def test_with_nobody_there_the_default_comes_back_or_it_is_told_at_once(runtime: Runtime) -> None:
    """An explicit default, also None; confirm's own; else AskTimeout, which is a TimeoutError, without waiting."""
    assert not runtime.can_ask()
    assert runtime.ask("?", default="d") == "d"
    assert runtime.ask("?", default=None) is None
    assert runtime.ask(questions=["a", "b"], default=[1]) == [1]
    assert runtime.form("?", {"f": int}, default=None) is None
    assert (runtime.confirm("?"), runtime.confirm("?", True)) == (False, True)
    for question in (lambda: runtime.ask("Name?"), lambda: runtime.form("Name?", {"f": {"default": 1, "type": int}}), lambda: runtime.ask(questions=["Name?"])):
        with pytest.raises(AskTimeout, match="nobody is attached") as caught:
            question()
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, OpenProgramError)


def test_who_leaves_meanwhile_is_nobody(runtime: Runtime) -> None:
    """A transport may say that nobody is there any more."""
    runtime.on_ask = lambda ask: Answer(outcome="absent")
    assert runtime.ask("?", default=3) == 3
    with pytest.raises(AskTimeout, match="nobody is attached"):
        runtime.ask("?")


@pytest.mark.parametrize("is_async", [False, True])
def test_the_time_to_answer_ends(runtime: Runtime, is_async: bool) -> None:
    """The default comes back, or AskTimeout with the seconds; a person who blocks is not waited for."""
    release = threading.Event()

    async def slow(ask: Ask) -> str:
        await asyncio.sleep(60)
        return "late"

    runtime.on_ask = slow if is_async else lambda ask: release.wait(60)
    assert runtime.ask("?", timeout=0.05, default="d") == "d"
    assert runtime.confirm("?", True, timeout=0.05) is True
    with pytest.raises(AskTimeout, match=r"within 0\.05 seconds: Name\?"):
        runtime.ask("Name?", timeout=0.05)
    release.set()


BAD: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda rt: rt.ask(), TypeError, "nothing to ask"),
    (lambda rt: rt.ask(3), TypeError, "a prompt is a text"),
    (lambda rt: rt.ask("?", "ab"), TypeError, "options is a list"),
    (lambda rt: rt.ask("?", []), ValueError, "options is empty"),
    (lambda rt: rt.ask("?", ["a", "a"]), ValueError, "two options are called 'a'"),
    (lambda rt: rt.ask("?", [object()]), TypeError, "an option is"),
    (lambda rt: rt.ask("?", multi=True), ValueError, "multi needs options"),
    (lambda rt: rt.ask("?", timeout=0), ValueError, "timeout"),
    (lambda rt: rt.ask("?", timeout="5"), ValueError, "timeout"),
    (lambda rt: rt.ask(questions=[]), ValueError, "questions is empty"),
    (lambda rt: rt.ask(questions="?"), TypeError, "questions is a list"),
    (lambda rt: rt.ask(questions=[3]), TypeError, "question 'q1'"),
    (lambda rt: rt.ask(questions=["?"], options=["a"]), TypeError, "give each of questions= its own"),
    (lambda rt: rt.confirm("?", "yes"), TypeError, "default of confirm"),
    (lambda rt: rt.form("?", {}), ValueError, "at least one field"),
    (lambda rt: rt.form("?", "f"), TypeError, "fields is a dict"),
    (lambda rt: rt.form("?", {3: str}), TypeError, "the name of a field"),
    (lambda rt: rt.form("?", [{"type": int}]), TypeError, "a dict with a 'name'"),
    (lambda rt: rt.form("?", ["f", "f"]), ValueError, "two fields are called 'f'"),
    (lambda rt: rt.form("?", {"f": {"tpye": int}}), ValueError, "'tpye'; allowed: type, prompt"),
    (lambda rt: rt.form("?", {"f": {"type": "integer"}}), TypeError, "type 'integer' is unknown; allowed: str, int"),
    (lambda rt: rt.form("?", {"f": threading.Thread}), TypeError, "no type that a person can fill in"),
    (lambda rt: rt.form("?", {"f": {"check": 1}}), TypeError, "check is a function"),
    (lambda rt: rt.form("?", {"f": {"required": "no"}}), TypeError, "required is True or False"),
]


@pytest.mark.parametrize(("question", "kind", "message"), BAD)
def test_a_question_that_cannot_be_asked_is_refused(runtime: Runtime, question: Callable[[Any], Any], kind: type[Exception], message: str) -> None:
    """Before anybody is asked, with the place and what is allowed; nothing is recorded."""
    runtime.on_ask, asked = answers("never")
    with session("s", store=MemoryStore()) as recorded, pytest.raises(kind, match=message):
        question(runtime)
    assert (asked, recorded.nodes()) == ([], [])


def test_a_closed_runtime_asks_nobody() -> None:
    """As with exec."""
    runtime = Runtime(call=lambda content: "hm")
    runtime.on_ask = lambda ask: "x"
    runtime.close()
    assert not runtime.can_ask()
    with pytest.raises(RuntimeError, match="closed"):
        runtime.ask("?")


def test_concurrent_questions_never_mix_answers(runtime: Runtime) -> None:
    """Twenty threads and twenty tasks at once on one runtime: each gets the answer to its own question."""

    async def later(ask: Ask) -> str:
        await asyncio.sleep(0)
        return f"answer to {ask.prompt}"

    runtime.on_ask = later
    prompts = [f"question {n}" for n in range(20)]
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(runtime.ask, prompts)) == [f"answer to {prompt}" for prompt in prompts]

    async def gathered() -> list[str]:
        return await asyncio.gather(*(runtime.async_ask(prompt) for prompt in prompts))

    assert asyncio.run(gathered()) == [f"answer to {prompt}" for prompt in prompts]


def test_cancelling_ends_the_wait_at_once(runtime: Runtime) -> None:
    """p23: the person is not asked any longer, the node reads cancelled, and the next question works."""
    asked, withdrawn = threading.Event(), threading.Event()

    async def person(ask: Ask) -> str:
        try:
            asked.set()
            await asyncio.sleep(60)
        finally:
            withdrawn.set()
        return "late"

    async def main() -> None:
        task = asyncio.ensure_future(runtime.async_ask("Name?"))
        while not asked.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    runtime.on_ask = person
    with session("s", store=MemoryStore()) as recorded:
        asyncio.run(main())
        assert withdrawn.is_set()
        runtime.on_ask = lambda ask: "Ada"
        assert runtime.ask("Name?") == "Ada"
    assert [node.status for node in recorded.nodes()] == ["cancelled", "completed", "completed"]


def test_questions_and_answers_are_nodes_and_the_model_knows_them() -> None:
    """The question is what later calls of the frame see; the answers, wrong ones too, are nodes beneath it; secrets are nowhere."""
    runtime, provider = scripted("hm")
    runtime.on_ask, _ = answers("green", "blue", {"user": "ada", "pin": "1234", "password": "hunter2"})

    @agentic_function
    def work(runtime: Any = None) -> str:
        runtime.ask("Which colour?", ["red", "blue"])
        runtime.form("Log in", {"user": str, "pin": {"secret": True}, "password": str})
        return runtime.exec("go on", tools=[])

    with session("s", store=MemoryStore()) as recorded:
        work(runtime)
    function, question, wrong, right, form, filled, _ = recorded.nodes()
    assert (question.role, question.name, question.caller, question.output) == ("code", "ask", function.id, "blue")
    assert question.input == {"prompt": "Which colour?", "options": ["red", "blue"]}
    assert [(node.role, node.input, node.caller) for node in (wrong, right)] == [("user", "green", question.id), ("user", "blue", question.id)]
    assert wrong.metadata["problems"] == {"answer": "'green' is none of the options: red, blue"}
    assert form.output == filled.input == {"user": "ada", "pin": "[redacted]", "password": "[redacted]"}
    history = "\n".join(block["text"] for message in provider.prompts[0] for block in message.blocks)
    assert 'ask(prompt=\'Which colour?\', options=["red","blue"]) returned blue' in history
    assert "hunter2" not in history
    assert "1234" not in history


@pytest.mark.parametrize(
    ("person", "default", "status", "outcome"),
    [(None, 3, "completed", "default"), (None, ..., "error", None), (_refuse, ..., "error", None)],
)
def test_what_was_not_answered_is_recorded_too(runtime: Runtime, person: Any, default: Any, status: str, outcome: str | None) -> None:
    """A default says that it is one; a refusal and a question to nobody are errors of the node."""
    runtime.on_ask = person
    with session("s", store=MemoryStore()) as recorded:
        try:
            runtime.ask("?", default=default)
        except (AskTimeout, UserDeclined) as error:
            assert recorded.nodes()[0].metadata["error"]["type"] == type(error).__name__
    node = recorded.nodes()[0]
    assert (node.status, node.metadata.get("outcome")) == (status, outcome)


def test_the_host_answers_for_every_runtime_inside() -> None:
    """``answering`` holds for functions that make their own runtime; the runtime's own on_ask comes first."""
    with answering(lambda ask: "host"):
        runtime = Runtime(call=lambda content: "hm")
        assert runtime.ask("?") == "host"
        runtime.on_ask = lambda ask: "own"
        assert runtime.ask("?") == "own"
        with answering(None):
            assert Runtime(call=lambda content: "hm").can_ask() is False
    with pytest.raises(TypeError, match="a function of the Ask or a Transport"), answering(3):
        pass


def test_a_callback_that_fails_is_the_caller_s_error(runtime: Runtime) -> None:
    """Its exception comes through, and the node reads error."""
    runtime.on_ask = lambda ask: 1 / 0
    with session("s", store=MemoryStore()) as recorded, pytest.raises(ZeroDivisionError):
        runtime.ask("?", default=1)
    assert recorded.nodes()[0].status == "error"
