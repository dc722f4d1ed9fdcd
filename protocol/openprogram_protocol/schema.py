"""The protocol as JSON Schema 2020-12: every type that `METHODS` names under ``$defs``, and per method where its params and result are."""

from __future__ import annotations

import inspect
import types
import typing
from typing import Any

import msgspec

from openprogram_protocol.errors import WireError
from openprogram_protocol.methods import METHODS
from openprogram_protocol.rpc import PROTOCOL

REFERENCE = "#/$defs/{name}"


def structs() -> list[type[msgspec.Struct]]:
    """Every struct that crosses the wire, each after those that it is made of."""
    found: dict[type[msgspec.Struct], None] = {}
    for method in METHODS.values():
        for root in (method.params, method.result):
            if root is not None:
                _collect(root, found)
    _collect(WireError, found)
    return list(found)


def _collect(kind: Any, found: dict[type[msgspec.Struct], None]) -> None:
    if typing.get_origin(kind) is not None or isinstance(kind, types.UnionType):
        for part in typing.get_args(kind):
            _collect(part, found)
    elif inspect.isclass(kind) and issubclass(kind, msgspec.Struct) and kind not in found:
        for part in typing.get_type_hints(kind).values():
            _collect(part, found)
        found[kind] = None


def json_schema() -> dict[str, Any]:
    """The whole protocol as one document."""
    listed: list[Any] = list(structs())
    references, definitions = msgspec.json.schema_components(listed, ref_template=REFERENCE)
    where = dict(zip(listed, references, strict=True))
    methods = {
        name: {"direction": row.direction, "params": where[row.params], **({} if row.result is None else {"result": where[row.result]})}
        for name, row in METHODS.items()
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "protocol": PROTOCOL, "methods": methods, "$defs": definitions}
