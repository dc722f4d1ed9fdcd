"""Which JSON Schemas a provider can hold its output to. Pure data in, answers out.

A dialect is what one family of providers documents: ``openai`` (strict mode), ``anthropic``, ``gemini``; the empty one takes any schema. A schema outside its
dialect is refused with a 400 or, worse, half obeyed, so that nobody may claim it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from openprogram.providers.base import Profile

_REFUSED = {
    "anthropic": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems", "uniqueItems", "oneOf", "not"}
        | {"if", "then", "else", "patternProperties", "dependentRequired", "dependentSchemas", "prefixItems", "contains", "propertyNames", "minProperties"}
    ),
    "openai": frozenset(
        {"oneOf", "allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "prefixItems", "contains", "uniqueItems"}
        | {"propertyNames", "minProperties", "maxProperties", "unevaluatedItems", "unevaluatedProperties"}
    ),
    "gemini": frozenset(
        {"not", "if", "then", "else", "patternProperties", "dependentRequired", "dependentSchemas", "contains", "propertyNames", "uniqueItems"}
    ),
}
_CLOSED = frozenset({"anthropic", "openai"})


def is_supported(profile: Profile, schema: Any) -> bool:
    """Whether a model of that profile can be held to the schema without loss."""
    if not profile.schema or not isinstance(schema, dict):
        return False
    if not profile.schema_dialect:
        return True
    return is_within(profile.schema_dialect, cast("dict[str, Any]", schema))


def is_within(dialect: str, schema: dict[str, Any]) -> bool:
    """Whether the schema is of that dialect."""
    if dialect in _CLOSED and schema.get("type") != "object":
        return False
    return all(_fits(dialect, part) for part in _parts(schema))


def _fits(dialect: str, part: dict[str, Any]) -> bool:
    if part.keys() & _REFUSED[dialect] or not str(part.get("$ref", "#")).startswith("#"):
        return False
    if dialect not in _CLOSED or not (part.get("type") == "object" or "properties" in part):
        return bool(part) or dialect not in _CLOSED
    closed = part.get("additionalProperties") is False
    return closed and (dialect != "openai" or set(part.get("properties") or ()) == set(part.get("required") or ()))


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every schema inside it; data such as ``enum`` and ``default`` is not looked into."""
    if not isinstance(schema, dict):
        return
    fields = cast("dict[str, Any]", schema)
    yield fields
    for key, value in fields.items():
        if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(value, dict):
            for inner in cast("dict[str, Any]", value).values():
                yield from _parts(inner)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
            for inner in cast("list[Any]", value):
                yield from _parts(inner)
        elif key in ("items", "additionalProperties", "not"):
            yield from _parts(value)
