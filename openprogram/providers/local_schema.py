"""A JSON Schema as a grammar that a small model can always finish.

A small model writes on in whatever has no end: a text, a list, the digits of a number, a type that holds itself. So everything gets an end that the author did
not give it, and references are written out. What the grammar engine cannot enforce is replaced by what it can (of an unknown keyword it would drop the whole
grammar, silently), and by a narrower form where one is always valid: any map holds one entry, since a grammar cannot keep keys apart.
"""

from __future__ import annotations

import json
from typing import Any, cast

Schema = dict[str, Any]

LONGEST_TEXT = 160  # characters
LONGEST_INNER_TEXT = 60  # of texts inside a list
LONGEST_LISTS = (12, 3, 2)  # at the top, inside one list, deeper
DEEPEST_RECURSION = 2
LARGEST = 10**12
DECIMALS = 0.0001
# JSON on one line, as it stands in prompts: half the tokens of indented text.
_STYLE = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}

_SCALARS: list[Schema] = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]
_DATE = r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"  # days that every month has
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_OCTET = r"(1[0-9]{2}|[1-9]?[0-9])"
_WORD = r"[a-z0-9]{1,16}"
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}Z",
    "duration": r"P[0-9]{1,3}D|PT[0-9]{1,3}[HMS]",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "email": rf"{_WORD}@{_WORD}\.(com|org|net)",
    "idn-email": rf"{_WORD}@{_WORD}\.(com|org|net)",
    "uri": rf"https://{_WORD}\.(com|org|net)/[a-z0-9/._-]{{0,40}}",
    "ipv4": rf"({_OCTET}\.){{3}}{_OCTET}",
}
_KEPT = {
    "string": ("minLength", "maxLength", "pattern"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def grammar_of(schema: Schema) -> str | None:
    """The grammar of a schema; None when nothing that ends could fit it."""
    bounded = _Bounds(schema).of(schema)
    if bounded is None:
        return None
    return f"%llguidance {{}}\nstart: %json {json.dumps({**bounded, 'x-guidance': _STYLE})}"


def bounded(schema: Schema) -> Schema | None:
    """The schema, narrowed to what ends; None when nothing would be left."""
    return _Bounds(schema).of(schema)


class _Bounds:
    def __init__(self, root: Schema) -> None:
        self._definitions: Schema = root.get("$defs", {})

    def of(self, schema: Any, depth: int = 0, inside: tuple[str, ...] = ()) -> Schema | None:
        """``depth`` counts the lists around, ``inside`` names the definitions that are being written out."""
        if not isinstance(schema, dict) or not (given := cast("Schema", schema)):
            return self._any(_SCALARS, depth, inside)
        if "$ref" in given:
            name = str(given["$ref"]).rpartition("/")[2]
            known = name in self._definitions and inside.count(name) < DEEPEST_RECURSION
            return self.of(self._definitions[name], depth, (*inside, name)) if known else None
        if "const" in given or "enum" in given:
            return {"enum": given.get("enum", [given.get("const")])}
        if branches := given.get("anyOf") or given.get("oneOf"):
            return self._any(branches, depth, inside)
        if len(given.get("allOf", ())) == 1:
            return self.of(given["allOf"][0], depth, inside)
        kind = given.get("type")
        if isinstance(kind, list):
            return self._any([{**given, "type": item} for item in cast("list[str]", kind)], depth, inside)
        return self._typed(str(kind), given, depth, inside)

    def _typed(self, kind: str, schema: Schema, depth: int, inside: tuple[str, ...]) -> Schema | None:
        match kind:
            case "object":
                return self._object(schema, depth, inside)
            case "array":
                return self._array(schema, depth, inside)
            case "string":
                return _text(schema, depth)
            case "integer" | "number":
                return _number(kind, schema)
            case "boolean" | "null":
                return {"type": kind}
            case _:
                return self._any(_SCALARS, depth, inside)

    def _any(self, branches: list[Any], depth: int, inside: tuple[str, ...]) -> Schema | None:
        # Without its pattern a text could be any: where there are other branches, they are sure to be valid.
        sure = [item for item in branches if not _looks_around(item)] or branches
        left = [branch for item in sure if (branch := self.of(item, depth, inside)) is not None]
        return None if not left else left[0] if len(left) == 1 else {"anyOf": left}

    def _object(self, schema: Schema, depth: int, inside: tuple[str, ...]) -> Schema | None:
        properties: Schema = {}
        required: list[str] = schema.get("required", [])
        for name, item in schema.get("properties", {}).items():
            inner = self.of(item, depth, inside)
            if inner is not None:
                properties[name] = inner
            elif name in required:
                return None
        extra = schema.get("additionalProperties", not properties)
        value = None if properties or extra is False else self.of(extra, depth + 1, inside)
        if value is None:
            return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {"type": "object", "additionalProperties": value, "maxProperties": 1}

    def _array(self, schema: Schema, depth: int, inside: tuple[str, ...]) -> Schema | None:
        leading = [self.of(item, depth + 1, inside) for item in schema.get("prefixItems", [])]
        if None in leading:
            return None
        least, most = schema.get("minItems", 0), schema.get("maxItems", LONGEST_LISTS[min(depth, 2)])
        rest = None if leading and most == len(leading) else self.of(schema.get("items", {}), depth + 1, inside)
        if rest is None and least > len(leading):
            return None
        limits = {"minItems": least, "maxItems": max(most, least) if rest is not None else len(leading)}
        shape = {"prefixItems": leading} if leading else {}
        return {"type": "array", **shape, "items": rest if rest is not None else {"type": "null"}, **limits}


def _looks_around(schema: Any) -> bool:
    """Whether the pattern of a text is beyond a grammar."""
    return isinstance(schema, dict) and "(?" in str(cast("Schema", schema).get("pattern", ""))


def _text(schema: Schema, depth: int) -> Schema:
    kept: Schema = {key: schema[key] for key in _KEPT["string"] if key in schema}
    if "pattern" not in kept and (known := _FORMATS.get(schema.get("format", ""))):
        return {"type": "string", "pattern": f"^({known})$"}
    if _looks_around(schema):
        del kept["pattern"]
    least = kept.get("minLength", 0)
    return {"type": "string", "maxLength": max(LONGEST_INNER_TEXT if depth else LONGEST_TEXT, least), **kept}


def _number(kind: str, schema: Schema) -> Schema:
    kept: Schema = {key: schema[key] for key in _KEPT[kind] if key in schema}
    lower = {} if kept.keys() & {"minimum", "exclusiveMinimum"} else {"minimum": -LARGEST}
    upper = {} if kept.keys() & {"maximum", "exclusiveMaximum"} else {"maximum": LARGEST}
    return {"type": kind, **lower, **upper, **({} if kind == "integer" else {"multipleOf": DECIMALS}), **kept}
