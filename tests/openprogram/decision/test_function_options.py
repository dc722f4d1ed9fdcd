"""Functions as options, of every kind that Python has: what the model is shown, and what arrives. The ids are those of measured faults."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import pathlib
import uuid
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from openprogram import Runtime, agentic_function, decision, session
from tests.openprogram.decision.scripts import scripted, shown


class Color(enum.Enum):
    RED = "red"
    GREEN = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


class Order(BaseModel):
    number: int
    lines: list[Point]


class Address(TypedDict):
    street: str


def positional(a: int, b: int = 2, /, *args: int, c: int = 3, **more: float) -> tuple[Any, ...]:
    return a, b, args, c, more


def bare(x, y=7):  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    return x, y  # pyright: ignore[reportUnknownVariableType]


def named(a: int, b: int, c: int = 0) -> tuple[int, int, int]:
    return a, b, c


class Desk:
    def method(self, n: int) -> int:
        return n

    @classmethod
    def of_class(cls, n: int) -> tuple[str, int]:
        return cls.__name__, n

    @staticmethod
    def static(n: int) -> int:
        return n

    def __call__(self, n: int) -> str:
        return f"called {n}"

    @agentic_function
    def agentic(self, n: int) -> int:
        return n + 1


async def later(n: int) -> str:
    return f"later {n}"


@agentic_function(name="nick")
async def renamed(n: int) -> int:
    return n


CALLS: list[tuple[str, Any, dict[str, Any], Any]] = [
    ("f23 positional-only", positional, {"a": 1}, (1, 2, (), 3, {})),
    ("f23 positional-only and more", positional, {"a": 1, "b": "5", "args": [9], "d": 1}, (1, 5, (), 3, {"d": 1.0})),
    ("f23 unannotated", bare, {"x": {"any": [1]}}, ({"any": [1]}, 7)),
    ("f23 partial", functools.partial(named, b=5), {"a": 1}, (1, 5, 0)),
    ("f23 partial by position", functools.partial(named, 5), {"a": 9, "b": 1}, (5, 1, 0)),
    ("f23 partial of a partial", functools.partial(functools.partial(named, 5), c=6), {"b": 1}, (5, 1, 6)),
    ("f23 bound method", Desk().method, {"n": 1}, 1),
    ("f23 classmethod", Desk.of_class, {"n": 1}, ("Desk", 1)),
    ("f23 staticmethod", Desk.static, {"n": 1}, 1),
    ("f23 instance", Desk(), {"n": 1}, "called 1"),
    ("f23 builtin", len, {"obj": [1, 2]}, 2),
    ("f23 method of a builtin", "a,b".split, {"sep": ","}, ["a", "b"]),
    ("f25 async", later, {"n": 1}, "later 1"),
    ("f25 async partial", functools.partial(later, n=3), {}, "later 3"),
    ("f25 another name", renamed, {"n": 1}, 1),
    ("f25 agentic method", Desk().agentic, {"n": 1}, 2),
]


@pytest.mark.parametrize(("function", "arguments", "result"), [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
def test_any_callable_is_called_properly(function: Any, arguments: dict[str, Any], result: Any) -> None:
    """Whatever its parameters are like: bound properly, what a partial has bound not offered, ``*args`` left out, an async one awaited."""
    runtime, _ = scripted(lambda _: _pick("option", arguments))
    assert decision.make("Pick.", {"option": function, "stop": None}, runtime=runtime) == result


def _pick(name: str, arguments: dict[str, Any]) -> str:
    return json.dumps({"call": name, "args": arguments})


CONVERTED: list[tuple[Any, str, Any, Any, Any]] = [
    (int | None, "int | None", None, None, "x"),
    (Literal["a", "b"], "str", "a", "a", "c"),
    (Color, "str | int", "red", Color.RED, "RED"),
    (Point, "dict", {"x": 1}, Point(1), {"y": 1}),
    (Order, "dict", {"number": 1, "lines": [{"x": 2, "y": 3}]}, Order(number=1, lines=[Point(2, 3.0)]), {"number": 1, "lines": [{}]}),
    (Address, "dict", {"street": "s", "x": 1}, {"street": "s"}, {}),
    (list[int], "list[int]", [1, "2"], [1, 2], [1, "b"]),
    (dict[str, Color], "dict", {"a": 2}, {"a": Color.GREEN}, {"a": "2"}),
    (int | str, "int | str", "007", "007", []),
    (Annotated[int, Field(ge=0, description="how many")], "int", 3, 3, -1),
    (dt.datetime, "str", "2024-02-29T12:00:00", dt.datetime(2024, 2, 29, 12), "soon"),
    (uuid.UUID, "str", str(uuid.UUID(int=5)), uuid.UUID(int=5), "5"),
    (pathlib.Path, "str", "a/b", pathlib.Path("a/b"), 3),
    (decimal.Decimal, "float | str", "0.10", decimal.Decimal("0.10"), "a lot"),
    (tuple[int, str], "list", [1, "a"], (1, "a"), [1]),
]


@pytest.mark.parametrize(("annotation", "name", "given", "value", "wrong"), CONVERTED, ids=[str(row[0]) for row in CONVERTED])
def test_arguments_arrive_as_the_annotated_types(annotation: Any, name: str, given: Any, value: Any, wrong: Any) -> None:
    """f24: the type is shown, a value of it converted, and one that is none of it asked again, also when the annotation is postponed."""

    def option(x: Any) -> Any:
        return x

    for written in (annotation, "annotation"):
        option.__annotations__["x"] = written
        option.__globals__["annotation"] = annotation  # where postponed annotations are looked up
        runtime, provider = scripted(_pick("option", {"x": wrong}), _pick("option", {"x": given}))
        result = decision.make("Pick.", [option, "stop"], runtime=runtime)
        assert result == value and type(result) is type(value)
        assert f"option(x: {name})" in shown(provider.prompts[0])
        assert len(provider.requests) == 2


def test_names_are_those_that_models_know() -> None:
    """f25, f26: in a list an agentic function appears under its ``name=``; integer keys are their digits; nameless functions are refused by name."""
    assert "nick(n: int)" in decision.render_options([renamed])
    assert '"call": "1"' in decision.render_options({1: "one"})
    with pytest.raises(ValueError, match="dict form"):
        decision.render_options([lambda: 1, lambda: 2])


def test_the_call_line_is_json_and_defaults_are_optional() -> None:
    """f27: quotes in a name are escaped; what has a default is shown with it and left out of the example."""
    text = decision.render_options({'say "hi"': named})
    assert r'Call: {"call": "say \"hi\"", "args": {"a": 0, "b": 0}}' in text
    assert 'say "hi"(a: int, b: int, c: int = 0)' in text
    assert "- c: optional" in text


def test_half_an_emoji_is_stored_shown_and_sent() -> None:
    """a44: the code unit becomes U+FFFD in the argument, and neither the store nor the next request fails."""
    runtime, provider = scripted(r'{"call": "write", "args": {"text": "ok \ud83d"}}', "fine \ud83d", "done")

    def write(text: str) -> str:
        return text

    @agentic_function
    def work(runtime: Runtime) -> list[str]:
        return [decision.make("Pick.", [write]), runtime.exec("Next."), runtime.exec("Last.")]

    with session("emoji") as record:
        assert work(runtime)[0] == "ok \ufffd"
        assert [node.status for node in record.nodes()] == ["completed"] * 4
    assert "Next." in shown(provider.prompts[2])


class Echo(Runtime):
    """Brings its own model, as the reference describes it."""

    def _call(self, content: list[dict[str, Any]], model: str = "default", response_format: dict[str, Any] | None = None) -> Any:
        assert content[-1]["text"].startswith("Options:")
        return _pick("analyze", {"text": "fine"}) if "message" in content[0]["text"] else "done"


def test_programs_of_the_reference_run() -> None:
    """The documented import paths, a subclass that overrides ``_call``, no ``if`` and no runtime passed on."""
    from openprogram.agentic_programming import agentic_function, decision
    from openprogram.agentic_programming.decision import DECISION_FINISH_INSTRUCTION, DecisionError, extract_action, make, parse_args, render_options
    from openprogram.agentic_programming.function import _current_runtime  # pyright: ignore[reportPrivateUsage] - a documented name
    from openprogram.agentic_programming.runtime import Runtime

    def analyze_sentiment(text: str) -> str:
        return f"analyzed {text}"

    @agentic_function
    def route_message(msg: str, runtime: Any = None) -> Any:
        assert _current_runtime.get() is runtime
        return decision.make(f"Pick one way to handle this message. {msg}", {"analyze": analyze_sentiment, "done": "CONVERSATION_OVER"})

    @agentic_function
    def handle_ticket(ticket: str, runtime: Any = None) -> Any:
        return runtime.exec(f"Handle this ticket: {ticket}", choices={"refund": analyze_sentiment, "done": {"status": "closed"}})

    assert issubclass(Echo, Runtime) and issubclass(DecisionError, ValueError)
    assert make is decision.make and parse_args is decision.parse_args and render_options is decision.render_options
    assert extract_action('```json\n{"tool": "a"}\n```') == {"call": "a", "args": {}}
    assert "JSON" in DECISION_FINISH_INSTRUCTION
    assert route_message("hello", runtime=Echo()) == "analyzed fine"
    assert handle_ticket("hello", runtime=Echo()) == {"status": "closed"}
