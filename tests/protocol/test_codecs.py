"""What crosses a process boundary comes out as it went in, for every method."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect
from openprogram_protocol import rpc
from openprogram_protocol.errors import ErrorCode, WireError
from openprogram_protocol.methods import METHODS
from openprogram_protocol.schema import json_schema, structs

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from(["class", "a-b", "_x", "type_name", "jsonrpc"]), inner, max_size=3),
    max_leaves=6,
)


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a type, as Python holds them."""
    if isinstance(kind, inspect.StructType):
        return instances(kind.cls)
    if isinstance(kind, inspect.UnionType):
        return json_values if any(isinstance(part, inspect.AnyType) for part in kind.types) else st.one_of(*(values(part) for part in kind.types))
    if isinstance(kind, inspect.ListType):
        return st.lists(values(kind.item_type), max_size=2)
    if isinstance(kind, inspect.TupleType):
        return st.tuples(*(values(item) for item in kind.item_types))
    if isinstance(kind, inspect.DictType):
        return st.dictionaries(texts, values(kind.value_type), max_size=2)
    if isinstance(kind, inspect.LiteralType):
        return st.sampled_from(kind.values)
    simple: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
        inspect.AnyType: json_values,
        inspect.NoneType: st.none(),
        inspect.BoolType: st.booleans(),
        inspect.IntType: st.integers(-(2**53), 2**53),
        inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
        inspect.StrType: texts,
        inspect.BytesType: st.binary(max_size=20),
    }
    return simple[type(kind)]


@functools.cache
def validator(name: str) -> Any:
    """What checks a value against a definition of the exported schema."""
    return jsonschema.Draft202012Validator({**json_schema(), "$ref": f"#/$defs/{name}"})


@functools.cache
def instances(struct: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    """Instances of a struct: required fields always, the others at times."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    required = {field.name: values(field.type) for field in info.fields if field.required}
    optional = {field.name: values(field.type) for field in info.fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: struct(**fields))


PAYLOADS = [pytest.param(kind, id=f"{name} {side}") for name, row in METHODS.items() for side, kind in row._asdict().items() if isinstance(kind, type)]


@pytest.mark.parametrize("kind", PAYLOADS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_payload_survives_the_wire_and_fits_its_schema(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    """Params and result of every method come back equal, ignore unknown fields, and are what the exported JSON Schema says."""
    value = data.draw(instances(kind))
    wire = msgspec.json.encode(value)
    assert msgspec.json.decode(wire, type=kind) == value
    written: dict[str, Any] = json.loads(wire)
    assert msgspec.json.decode(msgspec.json.encode({**written, "fromANewerPeer": 1}), type=kind) == value
    assert list(validator(kind.__name__).iter_errors(written)) == []


@pytest.mark.parametrize("struct", structs(), ids=lambda struct: struct.__name__)
def test_fields_are_camel_case_on_the_wire(struct: type[msgspec.Struct]) -> None:
    """No name with an underscore reaches an editor."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    assert [field.encode_name for field in info.fields if not re.fullmatch(r"[a-z][a-zA-Z0-9]*", field.encode_name)] == []


def test_struct_names_are_unique() -> None:
    """Two structs of one name would be one type in TypeScript."""
    names = [struct.__name__ for struct in structs()]
    assert sorted(names) == sorted(set(names))


def test_the_schema_is_valid() -> None:
    """The export is JSON Schema 2020-12 and every reference in it resolves."""
    schema = json_schema()
    for definition in schema["$defs"].values():
        jsonschema.Draft202012Validator.check_schema(definition)
    names = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert names == names & set(schema["$defs"])
    assert set(schema["methods"]) == set(METHODS)


ids = st.integers(0, 2**53) | texts | st.none()


@given(ids, texts, json_values)
def test_requests_and_replies_survive(id: int | str | None, method: str, payload: Any) -> None:
    """Messages come back equal whatever their ids, names and payloads are; what has no id has none on the wire."""
    request = rpc.Request(id=id, method=method, params=payload)
    notification = rpc.Request(method=method, params=payload)
    reply = rpc.Response(id=id, result=payload)
    for message, kind in ((request, rpc.Request), (notification, rpc.Request), (reply, rpc.Response)):
        assert msgspec.json.decode(rpc.encode(message), type=kind) == message
    assert json.loads(rpc.encode(request))["jsonrpc"] == "2.0"
    assert "id" not in json.loads(rpc.encode(notification))


@given(ids, st.sampled_from(ErrorCode), texts, st.dictionaries(texts, json_values, max_size=3))
def test_errors_survive(id: int | str | None, code: ErrorCode, message: str, data: dict[str, Any]) -> None:
    """An error reply comes back with its code, text and data."""
    reply = rpc.ErrorResponse(id=id, error=WireError(code=code, message=message, data=data))
    assert msgspec.json.decode(rpc.encode(reply), type=rpc.ErrorResponse) == reply


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), {"deep": [float("nan")]}])
def test_what_json_lacks_is_never_written(value: Any) -> None:
    """NaN and infinities leave valid JSON behind."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    json.loads(rpc.encode(rpc.Response(id=1, result=value)), parse_constant=refuse)


def test_error_codes_are_distinct_and_ours_are_in_our_range() -> None:
    """No two failures share a code; ours stay off those of JSON-RPC and LSP."""
    codes = [code.value for code in ErrorCode]
    assert len(set(codes)) == len(codes)
    standard = {-32700, -32600, -32601, -32602, -32603, -32002, -32800}
    assert all(-32099 <= code <= -32000 for code in set(codes) - standard)
