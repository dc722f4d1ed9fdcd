"""Reported situations about the schemas and values of parameters of functions as tools. Each test carries the id of its case."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import uuid
from typing import Annotated, Any, Literal, Optional, Union

import jsonschema
import pytest
from pydantic import BaseModel, Field
from typing_extensions import Doc

from openprogram import agentic_function
from openprogram.errors import ArgumentError
from tests.openprogram.tools import calling, result_of, results, scripted


def test_b14_defaults_that_are_no_json_make_no_schema_fail() -> None:
    """b14: the spec is strict JSON, the parameters are optional, and the real defaults are used."""
    marker = object()

    @agentic_function
    def f(p: pathlib.Path = pathlib.Path("/tmp"), s: frozenset[str] = frozenset(), cb: Any = print, x: object = marker, r: float = float("nan")) -> Any:
        return [p, s, cb, x, r]

    json.dumps(f.spec, allow_nan=False)
    assert f.spec["parameters"]["required"] == []
    p, s, cb, x, r = f.execute()
    assert (p, s, cb, x, math.isnan(r)) == (pathlib.Path("/tmp"), frozenset(), print, marker, True)


@pytest.mark.parametrize("given", [{}, {"a": None, "b": None, "c": None}])
def test_b15_null_and_absent_are_the_same_for_an_optional(given: dict[str, Any]) -> None:
    """b15: both give the default."""

    @agentic_function
    def f(a: Optional[int] = None, b: Union[int, str] = 0, c: "list[str] | None" = None) -> Any:  # noqa: UP007, UP037, UP045 - the old spellings are what is tested
        return [a, b, c]

    assert f.execute(**given) == [None, 0, None]


class Node(BaseModel):
    v: int
    children: list[Node] = []


@dataclasses.dataclass
class Left:
    right: Right | None = None


@dataclasses.dataclass
class Right:
    left: Left | None = None


def test_b16_recursive_types_keep_every_tool_usable() -> None:
    """b16: the schemas are finite and valid, and a nested value arrives as instances."""

    def walk(root: Node, left: Left) -> int:
        return root.v + root.children[0].v

    def ping() -> str:
        return "pong"

    runtime, provider = scripted(calling(("walk", {"root": {"v": 1, "children": [{"v": 2}]}, "left": {"right": {"left": {}}}}), ("ping", {})), "done")
    runtime.exec("?", tools=[walk, ping])
    assert [block["text"] for block in results(provider.requests[1])] == ["3", "pong"]
    for tool in provider.requests[0].tools:
        jsonschema.Draft202012Validator.check_schema(tool.parameters)


class P(enum.IntEnum):
    LOW = 1
    HIGH = 2


def test_b18_enums_arrive_as_members() -> None:
    """b18: alone, in a list, optional; the schema lists the values, and another value is an error that the model is told."""

    @agentic_function
    def f(p: P, more: list[P] = [], opt: Optional[P] = None) -> Any:  # noqa: B006, UP045 - what is tested
        return [p.name, [item.name for item in more], opt]

    assert f.execute(p=2, more=[1], opt=None) == ["HIGH", ["LOW"], None]
    (shown,) = f.spec["parameters"]["$defs"].values()
    assert (shown["enum"], shown["type"]) == ([1, 2], "integer")
    with pytest.raises(ArgumentError):
        f.execute(p=3)
    assert result_of(f, {"p": 3})["is_error"] is True


def test_b19_standard_types_are_converted_exactly() -> None:
    """b19: dates, UUID, path, decimal and bytes; a value that is none is an error for the model, and the node stays JSON."""

    @agentic_function
    def f(at: dt.datetime, d: dt.date, u: uuid.UUID, p: pathlib.Path, amt: decimal.Decimal, blob: bytes) -> str:
        return repr([at.year, d.year, u.int, p.name, amt, blob])

    given = {"at": "2024-05-01T10:00:00Z", "d": "2024-05-01", "u": str(uuid.UUID(int=7)), "p": "/tmp/x", "amt": "0.10", "blob": "aGk="}
    assert f.execute(**given) == "[2024, 2024, 7, 'x', Decimal('0.10'), b'aGk=']"
    block = result_of(f, {**given, "at": "tomorrow"})
    assert block["is_error"]
    assert "at" in block["text"]


@dataclasses.dataclass
class Pt:
    x: int
    y: int = 0


class Box(BaseModel):
    a: Pt


def test_b20_models_arrive_as_instances_at_every_depth() -> None:
    """b20: nested, in lists, dicts and optional; what is missing is told with its path."""

    @agentic_function
    def f(b: Box, pts: list[Pt], m: dict[str, Pt], o: Optional[Pt] = None) -> int:  # noqa: UP045 - the old spelling is what is tested
        return b.a.x + pts[0].x + m["k"].y

    assert f.execute(b={"a": {"x": 1}}, pts=[{"x": 2}], m={"k": {"x": 0, "y": 3}}) == 6
    with pytest.raises(ArgumentError, match=r"pts\[0\].*x"):
        f.execute(b={"a": {"x": 1}}, pts=[{"y": 2}], m={})


MEMBERS: list[tuple[dict[str, Any], list[Any]]] = [
    ({"r": 2, "v": [1], "w": "a"}, [2.0, [1], "a"]),
    ({"r": 2, "v": 1, "w": 1}, [2.0, 1, 1]),
    ({"r": 2.5, "v": 1, "w": True}, [2.5, 1, True]),
    ({"r": 0, "v": [], "w": None}, [0.0, [], None]),
]


@pytest.mark.parametrize(("given", "wanted"), MEMBERS)
def test_b26_numbers_and_members_of_unions_are_taken(given: dict[str, Any], wanted: list[Any]) -> None:
    """b26: an int for a float, members keep their type, a literal tells 1 from True and takes null."""

    @agentic_function
    def f(r: float, v: Union[int, list[int]], w: Literal[1, "a", True, None]) -> Any:  # noqa: UP007 - the old spelling is what is tested
        return [r, v, w]

    result = f.execute(**given)
    assert result == wanted
    assert [type(item) for item in result] == [type(item) for item in wanted]


class Unknown:
    """Metadata that nobody knows."""


STYLES = {
    "google": "Summary.\n\nArgs:\n    n (int): count\n        second line\n    z: zed",
    "sphinx": "Summary.\n\n:param int n: count\n    second line\n:param z: zed",
    "numpy": "Summary.\n\nParameters\n----------\nn : int\n    count\n    second line\nz\n    zed\n\nReturns\n-------\nint",
    "blank": "   ",
    "none": None,
    "torn": "Args:\n\nArgs:\n  :\n(:\nParameters\n---",
}


@pytest.mark.parametrize("style", STYLES)
def test_b27_annotated_notes_and_docstrings_describe_parameters(style: str) -> None:
    """b27: the text of Annotated, else that of the docstring; limits are in the schema, unknown metadata is ignored, no docstring breaks anything."""

    def f(n: Annotated[int, Field(ge=1, le=5)], z: int, m: Annotated[int, "how many", Unknown()], q: Annotated[Optional[str], Doc("query")] = None) -> None: ...  # noqa: UP045

    f.__doc__ = STYLES[style]
    properties = agentic_function(f).spec["parameters"]["properties"]
    described = style in ("google", "sphinx", "numpy")
    assert properties["n"].get("description") == ("count second line" if described else None)
    assert properties["z"].get("description") == ("zed" if described else None)
    assert (properties["n"]["minimum"], properties["n"]["maximum"]) == (1, 5)
    assert properties["m"] == {"type": "integer", "description": "how many"}
    assert properties["q"]["description"] == "query"
