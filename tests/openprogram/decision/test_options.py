"""What may stand in a menu, and what is refused at once."""

from __future__ import annotations

import enum
import functools
import threading
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from openprogram import agentic_function, decision
from openprogram.agentic_programming.decision.options import Option, build_menu


def greet(name: str) -> str:
    """Say hello."""
    return f"hello {name}"


@agentic_function(name="nick", description="By another name.")
def original(n: int) -> int:
    return n


class Desk:
    def refund(self, order: int) -> int:
        """Pay back."""
        return order

    def __call__(self, order: int) -> int:
        """Handle it."""
        return order


class Way(enum.StrEnum):
    """Names as an enum."""

    OUT = "out"


class Color(enum.Enum):
    RED = "red"


@dataclass
class Signal:
    n: int = 1


def only(options: Any) -> Option:
    """The one option of a menu."""
    (option,) = build_menu(options).options.values()
    return option


SHAPES: list[tuple[Any, str, str, str, Any]] = [
    ({"a": greet}, "a", "function", "Say hello.", greet),
    ({"a": (greet, "Mine.")}, "a", "function", "Mine.", greet),
    ({"a": original}, "a", "function", "By another name.", original),
    ({"a": "SKIPPED"}, "a", "value", "", "SKIPPED"),
    ({"a": ("SKIPPED", "when stuck")}, "a", "value", "when stuck", "SKIPPED"),
    ({"a": (Signal(), "when stuck")}, "a", "value", "when stuck", Signal()),
    ({"a": None}, "a", "value", "", None),
    ({"a": {"status": "closed"}}, "a", "value", "", {"status": "closed"}),
    ({"a": [1, 2]}, "a", "value", "", [1, 2]),
    ({"a": decision.value((1, 2))}, "a", "value", "", (1, 2)),
    ({"a": decision.value(greet, "as it is")}, "a", "value", "as it is", greet),
    ({"a": decision.value(Signal)}, "a", "value", "", Signal),
    ({"a": (decision.value(greet), "outside")}, "a", "value", "outside", greet),
    ({"a": ("Plan.", {"steps": [str]})}, "a", "schema", "Plan.", {"steps": [str]}),
    ({"a": ("Nothing more.", {})}, "a", "schema", "Nothing more.", {}),
    ({7: greet}, "7", "function", "Say hello.", greet),
    ({Way.OUT: "x"}, "out", "value", "", "x"),
    ({Color.RED: "x"}, "red", "value", "", "x"),
    ({" a ": "x"}, "a", "value", "", "x"),
    ([greet], "greet", "function", "Say hello.", greet),
    ([original], "nick", "function", "By another name.", original),
    ([(greet, "Mine.")], "greet", "function", "Mine.", greet),
    (["stop"], "stop", "value", "", "stop"),
    ([("stop", "when done")], "stop", "value", "when done", "stop"),
    ([("plan", "Plan.", {"n": int})], "plan", "schema", "Plan.", {"n": int}),
    ([decision.value("stop", "when done")], "stop", "value", "when done", "stop"),
    ((greet,), "greet", "function", "Say hello.", greet),
    ([functools.partial(greet, name="x")], "greet", "function", "Say hello.", None),
    ([Desk().refund], "refund", "function", "Pay back.", None),
    ({"a": Desk()}, "a", "function", "Handle it.", None),
    ({"a": lambda: 1}, "a", "function", "", None),
]


@pytest.mark.parametrize(("options", "name", "kind", "description", "handler"), SHAPES)
def test_a_shape_becomes_an_option(options: Any, name: str, kind: str, description: str, handler: Any) -> None:
    """Each documented shape of the dict and list form gives the option that it stands for."""
    option = only(options)
    assert (option.name, option.kind, option.description) == (name, kind, description)
    if handler is not None or kind == "value":
        assert option.handler == handler


def duplicate() -> Any:
    def greet() -> None: ...

    return greet


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no options": ({}, ValueError, "empty"),
    "no items": ([], ValueError, "empty"),
    "no container": ("stop", TypeError, "dict"),
    "None": (None, TypeError, "dict"),
    "a set": ({"stop"}, TypeError, "dict"),
    "the same name twice": (["stop", "stop"], ValueError, "'stop'"),
    "two functions of one name": ([greet, duplicate()], ValueError, "'greet'"),
    "a number and its text": ({1: "a", "1": "b"}, ValueError, "'1'"),
    "a lambda in a list": ([lambda: 1], ValueError, "dict form"),
    "two lambdas in a list": ([lambda: 1, lambda: 2], ValueError, "dict form"),
    "an instance without a name in a list": ([Desk()], ValueError, "dict form"),
    "an empty name": ({"": greet}, TypeError, "non-empty"),
    "a blank name": (["  "], TypeError, "non-empty"),
    "a name of two lines": ({"a\nb": greet}, ValueError, "one line"),
    "None as a name": ({None: greet}, TypeError, "None"),
    "a boolean as a name": ({True: greet}, TypeError, "True"),
    "a tuple of three": ({"a": (1, 2, 3)}, TypeError, "decision.value"),
    "a tuple of one": ({"a": (1,)}, TypeError, "decision.value"),
    "a literal pair": ({"a": (1, 2)}, TypeError, "decision.value"),
    "a function and a schema": ({"a": (greet, {"n": int})}, TypeError, "description"),
    "a number in a list": ([3], TypeError, "option 1"),
    "a dict in a list": ([greet, {"a": 1}], TypeError, "option 2"),
    "an empty tuple in a list": ([()], TypeError, "option 1"),
    "a tuple of four in a list": ([("a", "b", {}, 1)], TypeError, "option 1"),
    "a marked function in a list": ([decision.value(greet)], TypeError, "option 1"),
    "a class": ({"a": Signal}, TypeError, "decision.value"),
    "a generic alias": ({"a": list[int]}, TypeError, "decision.value"),
    "an alias of typing": ({"a": typing.List}, TypeError, "decision.value"),  # noqa: UP006
    "a method without its object": ([Desk.refund], TypeError, "bound"),
    "a builtin without a signature": ({"a": max}, ValueError, "signature"),
    "a schema with two item templates": ({"a": ("d", {"x": [str, int]})}, TypeError, "exactly one"),
    "a schema with no item template": ({"a": ("d", {"x": []})}, TypeError, "exactly one"),
    "two item templates deep inside": ({"a": ("d", {"x": {"y": [{"z": [str, int]}]}})}, TypeError, "field 'z'"),
    "a field called decision": ({"a": ("d", {"decision": str})}, ValueError, "decision"),
    "an empty field name": ({"a": ("d", {"": str})}, TypeError, "non-empty"),
    "a nested object that reads as a meta-spec": ({"a": ("d", {"x": {"type": str, "description": str}})}, TypeError, "'fields'"),
    "a field name that is no text": ({"a": ("d", {1: str})}, TypeError, "field name"),
    "a field that is no type": ({"a": ("d", {"x": 3})}, TypeError, "field 'x'"),
    "a field of a type beyond JSON": ({"a": ("d", {"x": threading.Thread})}, TypeError, "JSON"),
    "an unknown type name": ({"a": ("d", {"x": {"type": "string"}})}, TypeError, "'string'"),
    "empty options": ({"a": ("d", {"x": {"options": []}})}, ValueError, "empty"),
    "options that are a text": ({"a": ("d", {"x": {"options": "abc"}})}, TypeError, "options"),
    "options of another type": ({"a": ("d", {"x": {"type": int, "options": ["a"]}})}, ValueError, "'a'"),
    "options beyond JSON": ({"a": ("d", {"x": {"options": [greet]}})}, ValueError, "greet"),
    "fields that are no dict": ({"a": ("d", {"x": {"fields": [str]}})}, TypeError, "fields"),
    "fields of a list": ({"a": ("d", {"x": {"type": list, "fields": {"y": str}}})}, TypeError, "list"),
    "items of a dict": ({"a": ("d", {"x": {"type": "dict", "items": str}})}, TypeError, "dict"),
    "fields and items": ({"a": ("d", {"x": {"fields": {}, "items": str}})}, TypeError, "one of them"),
    "a description that is no text": ({"a": ("d", {"x": {"type": str, "description": 3}})}, TypeError, "description"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_menu_is_refused_with_a_reason(case: str) -> None:
    """A bad menu is a ValueError or TypeError that says what is wrong, and never a DecisionError."""
    options, kind, reason = REFUSED[case]
    with pytest.raises(kind, match=reason) as caught:
        build_menu(options)
    assert not isinstance(caught.value, decision.DecisionError)


def test_a_parameter_that_no_model_can_supply_is_refused() -> None:
    """A required parameter of a type beyond JSON is named; with a default it is left out, and filled from context it is no matter."""

    def log(to: threading.Thread) -> None: ...

    def tell(to: Callable[[str], None]) -> None: ...

    def quiet(n: int, to: threading.Thread | None = None) -> None: ...

    @agentic_function(input={"to": {"source": "context"}})
    def filled(to: threading.Thread) -> None: ...

    for function in (log, tell):
        with pytest.raises(TypeError, match="'to'"):
            build_menu([function])
    assert list(only([quiet]).properties) == ["n"]
    assert only([filled]).properties == {}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        (str, STRING),
        (int, INTEGER),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        ({}, {"type": "object"}),
        ("why", {"type": "string", "description": "why"}),
        ([int], {"type": "array", "items": INTEGER}),
        ([["why"]], {"type": "array", "items": {"type": "array", "items": {"type": "string", "description": "why"}}}),
        ({"x": int}, {"type": "object", "properties": {"x": INTEGER}, "required": ["x"], "additionalProperties": False}),
        ({"type": str, "x": int}, {"type": "object", "properties": {"type": STRING, "x": INTEGER}, "required": ["type", "x"], "additionalProperties": False}),
        ({"type": int}, INTEGER),
        ({"type": "int", "description": "how many"}, {**INTEGER, "description": "how many"}),
        ({"description": "why"}, {**STRING, "description": "why"}),
        ({"options": ["a", 1]}, {"enum": ["a", 1]}),
        ({"type": "str", "options": ("a", "b")}, {**STRING, "enum": ["a", "b"]}),
        ({"items": int}, {"type": "array", "items": INTEGER}),
        ({"type": list, "items": {"options": ["a"]}}, {"type": "array", "items": {"enum": ["a"]}}),
        ({"type": list, "options": ["a"]}, {"type": "array", "items": {"enum": ["a"]}}),
        ({"items": str, "options": ["a"]}, {"type": "array", "items": {**STRING, "enum": ["a"]}}),
        ({"fields": {"x": int}}, {"type": "object", "properties": {"x": INTEGER}, "required": ["x"], "additionalProperties": False}),
        ({"type": [int]}, {"type": "array", "items": INTEGER}),
        (int | None, {"anyOf": [INTEGER, {"type": "null"}]}),
    ],
)
def test_a_field_becomes_a_schema(field: Any, schema: dict[str, Any]) -> None:
    """Types, descriptions, lists, nested dicts and meta-specs say what they are documented to say; every field is required."""
    option = only({"a": ("d", {"x": field})})
    assert option.schema == {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}


def test_bound_and_hidden_parameters_are_not_in_the_menu() -> None:
    """What a partial has bound, what is hidden or comes from context, and runtimes are not the model's to choose; also through a partial."""

    @agentic_function(input={"key": {"hidden": True}, "desk": {"source": "context"}})
    def pay(amount: int, key: str, desk: str, account: str, runtime: Any = None) -> None: ...

    for option in (only({"pay": pay}), only({"pay": functools.partial(pay, account="a")})):
        assert set(option.properties) - {"account"} == {"amount"}
    assert list(only({"pay": functools.partial(pay, account="a")}).properties) == ["amount"]
