"""Schemas of any annotations: never a crash, always valid, and what does not resolve spoils only itself."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import logging
import pathlib
import typing
import uuid
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from openprogram import agentic_function
from openprogram.errors import ArgumentError


class Kind(enum.Enum):
    ONE = 1
    TWO = "two"


@dataclasses.dataclass
class Record:
    n: int
    more: list[Record] = dataclasses.field(default_factory=lambda: [])  # noqa: PIE807 - typed


class Model(BaseModel):
    at: dt.date
    record: Record | None = None


LEAVES: list[Any] = [
    *(str, int, float, bool, bytes, list, dict, tuple, set, object, Any, None, dt.datetime, dt.timedelta, decimal.Decimal, uuid.UUID, pathlib.Path),
    *(Kind, Record, Model, Literal["a", 1, None], Annotated[int, "note", Field(ge=0)], type, print, object(), 3, "int", "list[int]"),
]
JUNK = st.text(alphabet="ab_.[],|'\"1 ()*", max_size=12)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generic types of what is given, where Python lets them be made."""

    def made(pair: tuple[str, Any]) -> Any:
        shape, item = pair
        try:
            return {
                "list": lambda: list[item],
                "dict": lambda: dict[str, item],
                "tuple": lambda: tuple[item, int],
                "set": lambda: set[item],
                "optional": lambda: typing.Optional[item],  # noqa: UP045 - a union by | needs types
                "union": lambda: typing.Union[item, int, str],  # noqa: UP007
                "annotated": lambda: Annotated[item, object()],
            }[shape]()
        except (TypeError, SyntaxError, IndexError, AttributeError):
            return item

    return st.tuples(st.sampled_from(["list", "dict", "tuple", "set", "optional", "union", "annotated"]), inner).map(made)


annotations = st.recursive(st.one_of(st.sampled_from(LEAVES), JUNK), _nested, max_leaves=4)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(annotation=annotations, has_default=st.booleans(), default=st.one_of(values, st.sampled_from([object(), Kind.ONE, print])), value=values)
def test_any_annotation_gives_a_valid_schema(annotation: Any, has_default: bool, default: Any, value: Any) -> None:
    """Strict JSON, valid Draft 2020-12; the parameter beside it keeps its type; any value is taken or refused with an ArgumentError."""

    def function(x: Any = None, n: int = 0) -> Any:
        return x

    function.__annotations__["x"] = annotation
    function.__defaults__ = (default if has_default else None, 0)
    made = agentic_function(function)
    logging.getLogger("openprogram.schema").setLevel(logging.CRITICAL)
    try:
        spec = made.spec
        json.dumps(spec, allow_nan=False)
        jsonschema.Draft202012Validator.check_schema(spec["parameters"])
        assert spec["parameters"]["properties"]["n"] == {"type": "integer", "default": 0}
        try:
            made.execute(x=value, n="3")
        except ArgumentError as error:
            assert str(error).startswith("function: ")
    finally:
        logging.getLogger("openprogram.schema").setLevel(logging.NOTSET)


@pytest.mark.parametrize("doc", ["Args:", ":param", "Parameters\n---\n", "Args:\n  x" * 2000, ":param x:" * 5000, "\x00", "Args:\n" + "  x: y\n" * 20000])
def test_no_docstring_breaks_a_schema(doc: str) -> None:
    """Whatever it looks like, and however long it is."""

    def function(x: int) -> None: ...

    function.__doc__ = doc
    json.dumps(agentic_function(function).spec, allow_nan=False)
