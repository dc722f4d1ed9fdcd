"""Signatures as JSON Schema, and a model's arguments as the annotated types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import logging
import pathlib
import threading
import typing
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, Required

import jsonschema
import pytest
import typing_extensions
from pydantic import BaseModel, Field

from openprogram import agentic_function
from openprogram.errors import ArgumentError
from openprogram.functions.schema import convert_arguments, hoist, parameters_of, parameters_schema


class Color(enum.Enum):
    RED = "red"
    TWO = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Order(BaseModel):
    number: int
    lines: list[Point] = []


class Node(BaseModel):
    name: str
    next: Node | None = None


class Inner(typing.TypedDict):
    """What typing's own TypedDict is to pydantic before 3.12: refused."""

    when: dt.date
    model_x: NotRequired[int]


class Outer(typing.TypedDict, total=False):
    inner: Required[list[Inner]]
    other: Inner | None


class Selfish(typing.TypedDict):
    again: list[Selfish]


class Modern(typing_extensions.TypedDict):
    n: int


def taking(annotation: Any) -> Callable[..., Any]:
    """A function whose one parameter has that annotation."""

    def function(x: Any) -> Any:
        return x

    function.__annotations__["x"] = annotation
    return function


CONVERSIONS: list[tuple[Any, Any, Any]] = [
    (int, "3", 3),
    (int | None, None, None),
    (typing.Optional[int], 3.0, 3),  # noqa: UP045 - the old spelling is what is tested
    (int | str, "007", "007"),
    (Literal["a", 1], 1, 1),
    (Color, "red", Color.RED),
    (Color, 2, Color.TWO),
    (Point, {"x": "1", "z": 3}, Point(1)),
    (Order, {"number": 1, "lines": [{"x": 2}]}, Order(number=1, lines=[Point(2)])),
    (Node, {"name": "a", "next": {"name": "b"}}, Node(name="a", next=Node(name="b"))),
    (Modern, {"n": "1", "m": 2}, {"n": 1}),
    (Inner, {"when": "2024-02-29", "x": 1}, {"when": dt.date(2024, 2, 29)}),
    (Inner, {"when": "2024-02-29", "model_x": "3"}, {"when": dt.date(2024, 2, 29), "model_x": 3}),
    (Outer, {"inner": [{"when": "2024-02-29"}]}, {"inner": [{"when": dt.date(2024, 2, 29)}]}),
    (Outer, {"inner": [], "other": None}, {"inner": [], "other": None}),
    (list[Inner], [{"when": "2024-02-29"}], [{"when": dt.date(2024, 2, 29)}]),
    (dict[str, Inner | None], {"a": None}, {"a": None}),
    (typing.List[Inner], [], []),  # noqa: UP006 - the old spelling is what is tested
    (Annotated[Inner, "note"], {"when": "2024-02-29"}, {"when": dt.date(2024, 2, 29)}),
    (Annotated[int, Field(gt=0)], 3, 3),
    (list[int], ["1", 2.0], [1, 2]),
    (set[int], [1, 1], {1}),
    (tuple[int, str], ["1", "a"], (1, "a")),
    (dict[str, int], {"a": "1"}, {"a": 1}),
    (dt.datetime, "2024-02-29T10:00:00", dt.datetime(2024, 2, 29, 10)),
    (dt.timedelta, "PT1H", dt.timedelta(hours=1)),
    (uuid.UUID, "12345678123456781234567812345678", uuid.UUID("12345678123456781234567812345678")),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (decimal.Decimal, "0.10", decimal.Decimal("0.10")),
    (bytes, "ab", b"ab"),
    (Any, {"a": [1]}, {"a": [1]}),
    (object, [1], [1]),
    ("Point", {"x": 1}, Point(1)),
    ("list['Point']", [{"x": 1}], [Point(1)]),
    ("NoSuchName", "anything", "anything"),
    ("a note, not a type", 3, 3),
    (3, "anything", "anything"),
]


@pytest.mark.parametrize(("annotation", "given", "wanted"), CONVERSIONS)
def test_an_argument_arrives_as_the_annotated_type(annotation: Any, given: Any, wanted: Any) -> None:
    """f24: schema, validation and conversion; the schema is valid and admits what was converted without coercion."""
    function = taking(annotation)
    result = convert_arguments(function, {"x": given, "unknown": 1})
    assert result == {"x": wanted}
    assert type(result["x"]) is type(wanted)
    validator: Any = jsonschema.Draft202012Validator(parameters_schema(function))
    validator.check_schema(validator.schema)


@pytest.mark.parametrize(
    ("annotation", "given", "place"),
    [
        (int, "x", "x"),
        (Color, "RED", "x"),
        (Literal["a"], "b", "x"),
        (Point, {"y": 1}, "x.x"),
        (Order, {"number": 1, "lines": [{"x": "a"}]}, "x.lines[0].x"),
        (Inner, {}, "x.when"),
        (Inner, {"when": "soon"}, "x.when"),
        (Outer, {}, "x.inner"),
        (dt.date, "2023-02-29", "x"),
        (Annotated[int, Field(gt=0)], 0, "x"),
        (uuid.UUID, "x", "x"),
        (tuple[int, str], [1], "x[1]"),
    ],
)
def test_an_argument_of_another_type_is_named(annotation: Any, given: Any, place: str) -> None:
    """An ArgumentError with the place of the value at fault."""
    with pytest.raises(ArgumentError) as caught:
        convert_arguments(taking(annotation), {"x": given})
    assert caught.value.parameter == place
    assert "function" in str(caught.value)


def test_a_typed_dict_is_shown_like_any_object() -> None:
    """The schema of typing's TypedDict: its keys, which of them are required, its docstring, and no default that nobody gave."""
    schema = parameters_schema(taking(Inner))["properties"]["x"]
    assert schema["required"] == ["when"]
    assert schema["properties"].keys() == {"when", "model_x"}
    assert "default" not in schema["properties"]["model_x"]
    assert schema["title"] == "Inner"


def test_a_typed_dict_that_holds_itself_is_refused_with_a_way_out() -> None:
    """Before Python 3.12 the reason names the class to use; from then on pydantic reads it."""
    (parameter,) = parameters_of(taking(Selfish))
    assert parameter.schema or "typing_extensions" in parameter.unfillable


def test_one_annotation_that_cannot_be_resolved_degrades_only_its_own_parameter(caplog: pytest.LogCaptureFixture) -> None:
    """The others keep their types; the log says which and why."""

    def function(a: Any, b: int, c: Any) -> None: ...

    function.__annotations__ |= {"a": "NoSuchName", "c": "NoSuchName | Point"}
    with caplog.at_level(logging.WARNING):
        schema = parameters_schema(function)
    assert schema["properties"]["b"] == {"type": "integer"}
    assert schema["properties"]["a"] == {}
    assert schema["required"] == ["a", "b", "c"]
    assert "NoSuchName" in caplog.text


def test_a_name_that_the_function_closes_over_is_found() -> None:
    """Postponed annotations may name a local class that the body uses."""

    class Local(BaseModel):
        n: int

    def function(x: Local) -> Any:
        return Local

    assert convert_arguments(function, {"x": {"n": "1"}}) == {"x": Local(n=1)}


def test_a_type_beyond_json_can_only_be_left_out() -> None:
    """With a default it is left to the default, without one it is marked as what no model can supply."""

    def function(to: threading.Thread, call: Callable[[], None] = print, n: int = 0) -> None: ...

    by_name = {item.name: item for item in parameters_of(function)}
    assert by_name["to"].unfillable
    assert (by_name["call"].source, by_name["n"].source) == ("default", "llm")
    assert convert_arguments(function, {"to": 1, "call": "evil", "n": 2}) == {"to": 1, "n": 2}


@dataclasses.dataclass
class Shop:
    @agentic_function
    def sell(self, what: str, n: int = 1, *args: Any, runtime: Any = None, **more: float) -> None: ...

    @classmethod
    def open(cls, at: dt.date = dt.date(2024, 1, 1)) -> None: ...

    def __call__(self, x: Color = Color.RED) -> None: ...


SHOWN: list[tuple[Any, list[str], list[str], Any]] = [
    (Shop().sell, ["what", "n"], ["what"], {"type": "number"}),
    (Shop.open, ["at"], [], False),
    (Shop(), ["x"], [], False),
    (functools.partial(taking(int)), ["x"], ["x"], False),
    (functools.partial(taking(int), 3), [], [], False),
    (functools.partial(taking(int), x=3), [], [], False),
    (lambda a, /, *b, c=1, **d: 0, ["a", "c"], ["a"], True),  # pyright: ignore[reportUnknownLambdaType]
]


@pytest.mark.parametrize(("function", "names", "required", "extra"), SHOWN)
def test_a_model_is_shown_what_it_may_fill(function: Any, names: list[str], required: list[str], extra: Any) -> None:
    """f23, f28: no self, no runtime, no ``*args``, nothing that a partial has bound; ``**kwargs`` is open for its type."""
    schema = parameters_schema(function)
    assert (list(schema["properties"]), schema["required"], schema["additionalProperties"]) == (names, required, extra)


def test_defaults_are_shown_as_json() -> None:
    """An enum's value, a date's text; a default that JSON cannot hold is not shown, and makes the parameter optional all the same."""

    def function(a: Color = Color.TWO, b: dt.date = dt.date(2024, 1, 1), c: Any = object, d: float = float("inf"), e: Point | None = Point(1)) -> None: ...  # noqa: B008

    schema = parameters_schema(function)
    assert {name: item.get("default", "none") for name, item in schema["properties"].items()} == {
        "a": 2,
        "b": "2024-01-01",
        "c": "none",
        "d": "none",
        "e": {"x": 1, "y": 0},
    }
    assert schema["required"] == []


def test_a_builtin_without_a_signature_is_refused() -> None:
    """The reason says what to do."""
    with pytest.raises(ValueError, match="wrap it"):
        parameters_of(max)


def test_metadata_is_part_of_the_schema() -> None:
    """Descriptions and options of ``input``; the options of a list are those of its items; hidden parameters are left out, also through a partial."""

    @agentic_function(input={"a": {"description": "which", "options": ["x", "y"]}, "b": {"options": ["x"]}, "c": {"hidden": True}})
    def function(a: str, b: list[str], c: int, d: int) -> None: ...

    for callable_ in (function, functools.partial(function, d=1)):
        properties = parameters_schema(callable_)["properties"]
        assert properties["a"] == {"type": "string", "description": "which", "enum": ["x", "y"]}
        assert properties["b"]["items"] == {"type": "string", "enum": ["x"]}
        assert "c" not in properties


@pytest.mark.parametrize("second", [{"A": {"type": "integer"}}, {"A": {"$ref": "#/$defs/B"}, "B": {"type": "integer"}}])
def test_hoisting_keeps_definitions_apart(second: dict[str, Any]) -> None:
    """What stands for something else under the same name gets another name, and so does all that refers to it; what is the same is kept once."""
    first = {"A": {"$ref": "#/$defs/B"}, "B": {"type": "string"}}
    definitions: dict[str, Any] = {}
    kept = hoist({"$ref": "#/$defs/A", "$defs": first}, definitions)
    moved = hoist({"$ref": "#/$defs/A", "$defs": second}, definitions)
    again = hoist({"$ref": "#/$defs/A", "$defs": first}, definitions)
    assert kept == again != moved

    def admits(schema: dict[str, Any], value: Any) -> bool:
        validator: Any = jsonschema.Draft202012Validator({**schema, "$defs": definitions})
        return validator.is_valid(value)

    assert (admits(kept, "text"), admits(kept, 3), admits(moved, "text"), admits(moved, 3)) == (True, False, False, True)
