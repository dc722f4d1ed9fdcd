"""What the local provider makes of a schema: a narrower one, in which everything ends."""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, IPvAnyAddress, TypeAdapter

from openprogram.providers.base import Constraint, ModelRequest
from openprogram.providers.local import LocalProvider, with_defaults
from openprogram.providers.local_schema import _FORMATS, bounded, grammar_of  # pyright: ignore[reportPrivateUsage] - every row is checked

TEXT: dict[str, Any] = {"type": "string", "maxLength": 160}
INNER: dict[str, Any] = {"type": "string", "maxLength": 60}
WHOLE = {"type": "integer", "minimum": -(10**12), "maximum": 10**12}
NUMBER = {"type": "number", "minimum": -(10**12), "maximum": 10**12, "multipleOf": 0.0001}
SCALARS = {"anyOf": [TEXT, NUMBER, {"type": "boolean"}, {"type": "null"}]}
INNER_SCALARS = {"anyOf": [INNER, *SCALARS["anyOf"][1:]]}
NOTHING_ELSE: dict[str, Any] = {"required": [], "additionalProperties": False}


class Tree(BaseModel):
    name: str
    parts: list[Tree] = []
    root: Tree | None = None


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"type": "string"}, TEXT),
        ({"type": "string", "maxLength": 900}, {"type": "string", "maxLength": 900}),
        ({"type": "string", "minLength": 300}, {"type": "string", "maxLength": 300, "minLength": 300}),
        ({"type": "string", "format": "path", "title": "A"}, TEXT),
        ({"type": "string", "pattern": "^[0-9]{5}$"}, {**TEXT, "pattern": "^[0-9]{5}$"}),
        ({"type": "string", "pattern": "^(?!a)"}, TEXT),
        ({"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(?!a)"}]}, NUMBER),
        ({"type": "string", "enum": ["a"]}, {"enum": ["a"]}),
        ({"const": None, "default": {"type": "string"}}, {"enum": [None]}),
        ({"type": "integer"}, WHOLE),
        ({"type": "integer", "exclusiveMinimum": 3}, {"type": "integer", "maximum": 10**12, "exclusiveMinimum": 3}),
        ({"type": "number"}, NUMBER),
        ({"type": "number", "multipleOf": 5}, {**NUMBER, "multipleOf": 5}),
        ({}, SCALARS),
        ({"type": ["integer", "null"]}, {"anyOf": [WHOLE, {"type": "null"}]}),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, {"anyOf": [WHOLE, {"type": "null"}]}),
        ({"allOf": [{"type": "integer"}], "default": 3}, WHOLE),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": INNER, "minItems": 0, "maxItems": 12}),
        ({"type": "array", "items": {"type": "string"}, "minItems": 20}, {"type": "array", "items": INNER, "minItems": 20, "maxItems": 20}),
        ({"type": "array"}, {"type": "array", "items": INNER_SCALARS, "minItems": 0, "maxItems": 12}),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 1, "maxItems": 1},
            {"type": "array", "prefixItems": [WHOLE], "items": {"type": "null"}, "minItems": 1, "maxItems": 1},
        ),
        ({"type": "object"}, {"type": "object", "additionalProperties": INNER_SCALARS, "maxProperties": 1}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "object", "additionalProperties": WHOLE, "maxProperties": 1}),
        ({"type": "object", "properties": {"type": {"type": "string"}}}, {"type": "object", "properties": {"type": TEXT}, **NOTHING_ELSE}),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"type": "object", "properties": {}, **NOTHING_ELSE}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "boolean"}}}, {"type": "boolean"}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, None),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}}},
            None,
        ),
    ],
)
def test_everything_ends(given: dict[str, Any], sent: dict[str, Any] | None) -> None:
    """What has no limit gets one, the author's own limits stand, and what a grammar cannot hold to is left out; None when nothing that ends would fit."""
    assert bounded(given) == sent


def test_a_type_that_holds_itself_is_written_out_twice() -> None:
    """Deeper down its lists are empty and what may be left out is; nothing refers to anything any more."""
    schema = bounded(TypeAdapter(Tree).json_schema())
    assert schema is not None and "$ref" not in json.dumps(schema)
    inner = schema["properties"]["parts"]["items"]
    assert inner["properties"]["parts"] == {"type": "array", "items": {"type": "null"}, "minItems": 0, "maxItems": 0}
    assert inner["properties"]["root"] == {"type": "null"}


FORMATS: dict[str, Any] = {
    "date": dt.date,
    "time": dt.time,
    "date-time": dt.datetime,
    "duration": dt.timedelta,
    "uuid": uuid.UUID,
    "uri": AnyUrl,
    "ipv4": IPvAnyAddress,
}


@settings(max_examples=30, deadline=None)
@given(st.data())
@pytest.mark.parametrize("name", _FORMATS)
def test_a_format_is_replaced_by_one_that_is_always_valid(name: str, data: st.DataObject) -> None:
    """Whatever the grammar lets through for a date, a time or an address is one."""
    text = data.draw(st.from_regex(re.compile(_FORMATS[name], re.ASCII), fullmatch=True))
    if name in FORMATS:
        TypeAdapter(FORMATS[name]).validate_python(text)
    else:
        assert text.count("@") == 1


INSTANCES: list[tuple[Any, Any]] = [
    (Tree, {"name": "a", "parts": [{"name": "b", "parts": []}], "root": {"name": "c"}}),
    (dict[str, int], {"a": 1}),
    (list[tuple[int, str]], [[1, "a"]]),
]


@pytest.mark.parametrize(("annotation", "value"), INSTANCES)
def test_what_is_left_is_still_the_authors_type(annotation: Any, value: Any) -> None:
    """The narrower schema is valid JSON Schema and admits ordinary values, which the author's schema admits too."""
    original = TypeAdapter(annotation).json_schema()
    narrowed = bounded(original)
    assert narrowed is not None
    for schema in (original, narrowed):
        validator: Any = jsonschema.Draft202012Validator(schema)
        validator.check_schema(schema)
        assert validator.is_valid(value)


def test_a_schema_is_sent_as_a_grammar() -> None:
    """A constraint keeps its name; a grammar stays as it is, and so does a schema that nothing finite fits."""
    request = ModelRequest(model="smollm2-135m", new=(), constraint=Constraint(schema={"type": "integer"}, name="pick"))
    constraint = with_defaults(request).constraint
    assert constraint == Constraint(grammar=grammar_of({"type": "integer"}), name="pick")
    endless = Constraint(schema={"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})
    for unchanged in (Constraint(grammar='root ::= "a"'), endless):
        assert with_defaults(ModelRequest(model="smollm2-135m", new=(), constraint=unchanged)).constraint == unchanged
    assert LocalProvider().profile("smollm2-135m").schema
