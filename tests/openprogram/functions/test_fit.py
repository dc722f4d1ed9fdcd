"""A model's JSON values against a schema: fitted without loss, or refused with a place and a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openprogram.functions.fit import Misfit, fit, short

INTEGER, NUMBER, STRING, BOOLEAN, NULL, ARRAY, OBJECT = ({"type": kind} for kind in ("integer", "number", "string", "boolean", "null", "array", "object"))
POINT: dict[str, Any] = {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x"]}
TREE: dict[str, Any] = {"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {"t": {"anyOf": [{"$ref": "#/$defs/T"}, NULL]}}}}}

FITS: list[tuple[Any, dict[str, Any], Any]] = [
    (3, INTEGER, 3),
    (3.0, INTEGER, 3),
    (" 3 ", INTEGER, 3),
    ("+3", INTEGER, 3),
    ("3.0", INTEGER, 3),
    ("1e3", INTEGER, 1000),
    (10**30, INTEGER, 10**30),
    (str(10**30), INTEGER, 10**30),
    (3, NUMBER, 3.0),
    ("0.5", NUMBER, 0.5),
    ("-.5e1", NUMBER, -5.0),
    (2**53 + 1, NUMBER, 2**53 + 1),
    ("true", BOOLEAN, True),
    ("False", BOOLEAN, False),
    ("3", STRING, "3"),
    ("\ud83d!", STRING, "\ufffd!"),
    (None, NULL, None),
    ([1, "2"], {"type": "array", "items": INTEGER}, [1, 2]),
    ("[1]", {"type": "array", "items": INTEGER}, [1]),
    ([1, "a"], {"type": "array", "prefixItems": [STRING | INTEGER, STRING]}, [1, "a"]),
    (["1", "2", 3], {"type": "array", "prefixItems": [INTEGER], "items": STRING | INTEGER}, [1, 2, 3]),
    (["1"], {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": False}, [1]),
    ({"x": "1", "z": 2}, POINT, {"x": 1}),
    ('{"x": 1}', POINT, {"x": 1}),
    ({"x": 1, "y": None}, POINT, {"x": 1}),
    ({"a": "1"}, {"type": "object", "additionalProperties": INTEGER}, {"a": 1}),
    ({"a": 1}, OBJECT, {"a": 1}),
    ({"a": 1}, {**OBJECT, "additionalProperties": False}, {}),
    ({"x": 1, "z": "2"}, {**POINT, "additionalProperties": INTEGER}, {"x": 1, "z": 2}),
    ("00420", {"anyOf": [INTEGER, STRING]}, "00420"),
    (420, {"anyOf": [STRING, INTEGER]}, 420),
    (3, {"anyOf": [NUMBER, INTEGER]}, 3),
    ("3", {"anyOf": [INTEGER, NULL]}, 3),
    (None, {"anyOf": [INTEGER, NULL]}, None),
    ("3", {"type": ["integer", "null"]}, 3),
    ({"x": 1}, {"oneOf": [STRING, POINT]}, {"x": 1}),
    ({"x": 1}, {"allOf": [POINT]}, {"x": 1}),
    ("a", {"const": "a"}, "a"),
    (1.0, {"enum": [1, 2]}, 1),
    ("2", {**INTEGER, "enum": [1, 2]}, 2),
    ({"t": {"t": None}}, TREE, {"t": {"t": None}}),
    ([{"a": ["\ud800"]}], {}, [{"a": ["\ufffd"]}]),
]


@pytest.mark.parametrize(("value", "schema", "fitted"), FITS)
def test_a_value_is_fitted_without_loss(value: Any, schema: dict[str, Any], fitted: Any) -> None:
    """Coercions that lose nothing, unknown keys dropped, nothing else changed; true is never 1."""
    result = fit(value, schema)
    assert (result, type(result)) == (fitted, type(fitted))


MISFITS: list[tuple[Any, dict[str, Any], str, str]] = [
    (3.7, INTEGER, "type_mismatch", "$"),
    (True, INTEGER, "type_mismatch", "$"),
    ("3.7", INTEGER, "type_mismatch", "$"),
    ("three", INTEGER, "type_mismatch", "$"),
    ("", INTEGER, "type_mismatch", "$"),
    ("٣", INTEGER, "type_mismatch", "$"),
    ("1_000", INTEGER, "type_mismatch", "$"),
    ("9" * 5000, INTEGER, "type_mismatch", "$"),
    (1e300, INTEGER, "type_mismatch", "$"),
    (float("inf"), INTEGER, "type_mismatch", "$"),
    (None, INTEGER, "type_mismatch", "$"),
    (float("nan"), NUMBER, "type_mismatch", "$"),
    ("nan", NUMBER, "type_mismatch", "$"),
    ("1e999", NUMBER, "type_mismatch", "$"),
    ("1,5", NUMBER, "type_mismatch", "$"),
    (False, NUMBER, "type_mismatch", "$"),
    (1, BOOLEAN, "type_mismatch", "$"),
    ("yes", BOOLEAN, "type_mismatch", "$"),
    (3, STRING, "type_mismatch", "$"),
    ({"a": 1}, STRING, "type_mismatch", "$"),
    ("null", NULL, "type_mismatch", "$"),
    ("a", ARRAY, "type_mismatch", "$"),
    ('{"a": 1}', ARRAY, "type_mismatch", "$"),
    ([1, "x"], {"type": "array", "items": INTEGER}, "type_mismatch", "$[1]"),
    ([], OBJECT, "type_mismatch", "$"),
    ({}, POINT, "missing_required", "$.x"),
    ({"x": None}, POINT, "missing_required", "$.x"),
    ({"x": "a"}, POINT, "type_mismatch", "$.x"),
    ("b", {"enum": ["a"]}, "enum_violation", "$"),
    (True, {"enum": [1]}, "enum_violation", "$"),
    ("1", {"enum": [1]}, "enum_violation", "$"),
    (None, {"const": "a"}, "enum_violation", "$"),
    ("x", {"anyOf": [INTEGER, NULL]}, "type_mismatch", "$"),
    ({"x": "a"}, {"anyOf": [NULL, POINT]}, "type_mismatch", "$.x"),
    ([1, [float("nan")]], {}, "type_mismatch", "$[1][0]"),
]


@pytest.mark.parametrize(("value", "schema", "kind", "path"), MISFITS)
def test_what_does_not_fit_is_named(value: Any, schema: dict[str, Any], kind: str, path: str) -> None:
    """The kind, the JSON path of the value at fault, and a message that is short and can be sent to a model."""
    with pytest.raises(Misfit) as caught:
        fit(value, schema)
    assert (caught.value.kind, caught.value.path) == (kind, path)
    assert len(str(caught.value).encode()) < 300


@pytest.mark.parametrize("schema", [{}, TREE, OBJECT, {"type": "object", "additionalProperties": INTEGER}, STRING])
def test_depth_is_bounded(schema: dict[str, Any]) -> None:
    """A value nested beyond reason is a misfit and no RecursionError."""
    deep: Any = None
    for _ in range(5000):
        deep = {"t": deep}
    with pytest.raises(Misfit):
        fit(deep, schema)
    assert "too large" in short(deep)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
SCHEMAS = st.sampled_from([row[1] for row in FITS])


@settings(deadline=None)
@given(value=JSON, schema=SCHEMAS)
def test_fitting_twice_changes_nothing(value: Any, schema: dict[str, Any]) -> None:
    """What was fitted fits as it is, and is strict JSON that any wire can carry."""
    try:
        fitted = fit(value, schema)
    except Misfit as misfit:
        assert misfit.path.startswith("$")
        return
    assert repr(fit(fitted, schema)) == repr(fitted)
    json.dumps(fitted, allow_nan=False, ensure_ascii=False).encode()
