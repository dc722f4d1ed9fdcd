"""A model's JSON values against a JSON Schema: fitted without loss, or a `Misfit` that says where and why.

``"3"`` and ``3.0`` pass for an integer, ``"true"`` for a boolean, an object's JSON text for the object; nothing is rounded, no text is decoded where the schema
says string, and keys that the schema does not name are dropped at every depth. What comes out is strict JSON: finite numbers, no lone surrogates.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, cast

Schema = dict[str, Any]

DEEPEST = 100
_INTEGER = re.compile(r"[+-]?\d{1,4000}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_EXACT = 2**53


class Misfit(ValueError):
    """A value that does not fit its schema. ``kind`` is ``type_mismatch``, ``enum_violation``, ``missing_required`` or ``bad_args``; ``path`` a JSON path."""

    def __init__(self, kind: str, path: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.path = path


def fit(value: Any, schema: Schema, *, path: str = "$", root: Schema | None = None, depth: int = 0) -> Any:
    """``value`` fitted to a JSON Schema; ``$ref`` is looked up in ``root``. Raises Misfit."""
    root = schema if root is None else root
    if depth > DEEPEST:
        raise Misfit("bad_args", path, f"{_shortened(path)} is nested over {DEEPEST} levels deep")
    if reference := schema.get("$ref"):
        return fit(value, definition(root, reference), path=path, root=root, depth=depth + 1)
    if "const" in schema or "enum" in schema:
        return _fit_enum(value, schema.get("enum", [schema.get("const")]), schema, path)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return _fit_any(value, branches, path, root, depth)
    if len(schema.get("allOf", ())) == 1:
        return fit(value, schema["allOf"][0], path=path, root=root, depth=depth + 1)
    kind = schema.get("type", "")
    if isinstance(kind, list):
        return _fit_any(value, [{**schema, "type": item} for item in cast("list[str]", kind)], path, root, depth)
    fitter = _FITTERS.get(kind, _fit_anything)
    return fitter(value, schema, path, root, depth)


def definition(root: Schema, reference: str) -> Schema:
    """What a ``#/$defs/…`` reference stands for."""
    return cast("Schema", root.get("$defs", {}).get(reference.rpartition("/")[2], {}))


def same(a: Any, b: Any) -> bool:
    """Equality by JSON type: ``1`` is ``1.0`` but neither ``"1"`` nor ``true``."""
    if is_number(a) and is_number(b):
        return a == b
    return type(a) is type(b) and a == b


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number, which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fit_enum(value: Any, allowed: list[Any], schema: Schema, path: str) -> Any:
    candidates = [value]
    if schema.get("type") in ("integer", "number", "boolean") and isinstance(value, str):
        candidates.append(fit(value, {"type": schema["type"]}, path=path))
    for candidate in candidates:
        for item in allowed:
            if same(item, candidate):
                return item
    raise Misfit("enum_violation", path, f"{path} is {short(value)}; allowed: {', '.join(short(item) for item in allowed)}")


def _fit_any(value: Any, branches: list[Schema], path: str, root: Schema, depth: int) -> Any:
    """A branch that takes the value as it is comes before one that must coerce it: "00420" for int | str stays text."""
    problems: list[Misfit] = []
    coerced: list[Any] = []
    for branch in branches:
        try:
            fitted = fit(value, branch, path=path, root=root, depth=depth + 1)
        except Misfit as problem:
            problems.append(problem)
            continue
        if type(fitted) is type(value) and fitted == value:
            return fitted
        coerced.append(fitted)
    if coerced:
        return coerced[0]
    deepest = max(problems, key=lambda problem: len(problem.path))
    if len(deepest.path) > len(path) or len(problems) == 1:
        raise deepest
    kind = "type_mismatch" if any(problem.kind == "type_mismatch" for problem in problems) else deepest.kind
    raise Misfit(kind, path, " or ".join(dict.fromkeys(str(problem) for problem in problems)))


def _fit_anything(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> Any:
    """Any JSON value, made strict."""
    if depth > DEEPEST:
        raise Misfit("bad_args", path, f"{_shortened(path)} is nested over {DEEPEST} levels deep")
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Misfit("type_mismatch", path, f"{path} is {value}, which is no finite number")
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_fit_anything(item, schema, f"{path}[{index}]", root, depth + 1) for index, item in enumerate(items)]
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        return {_clean(name): _fit_anything(item, schema, f"{path}.{name}", root, depth + 1) for name, item in mapping.items()}
    return value


def _clean(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _mismatch(value: Any, wanted: str, path: str) -> Misfit:
    return Misfit("type_mismatch", path, f"{path} is {short(value)}, expected {wanted}")


def short(value: Any) -> str:
    """A JSON value in a message: at most 80 characters."""
    try:
        text = _clean(json.dumps(value, ensure_ascii=False, default=repr))
    except (RecursionError, ValueError):  # too deep, or a number of too many digits
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def _shortened(path: str) -> str:
    return path if len(path) <= 80 else f"{path[:60]}…"


def _fit_integer(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    # Beyond 2**53 the digits that were written are already lost.
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if isinstance(value, str):
        text = value.strip()
        if _INTEGER.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text) and (number := float(text)).is_integer() and abs(number) <= _EXACT:
            return int(number)
    raise _mismatch(value, "an integer", path)


def _fit_number(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if not is_number(value):
        raise _mismatch(value, "a number", path)
    if isinstance(value, int):
        return float(value) if abs(value) <= _EXACT else value
    return cast("float", _fit_anything(value, schema, path, root, depth))


def _fit_boolean(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _mismatch(value, "true or false", path)


def _fit_string(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> str:
    if isinstance(value, str):
        return _clean(value)
    raise _mismatch(value, "a string", path)


def _fit_null(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> None:
    if value is not None:
        raise _mismatch(value, "null", path)


def _fit_array(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> list[Any]:
    value = _decoded(value, list)
    if not isinstance(value, list):
        raise _mismatch(value, "a list", path)
    items = cast("list[Any]", value)
    leading: list[Schema] = schema.get("prefixItems", [])
    rest: Schema = schema.get("items") or {}
    schemas = [*leading[: len(items)], *[rest] * (len(items) - len(leading))]
    return [fit(item, each, path=f"{path}[{index}]", root=root, depth=depth + 1) for index, (item, each) in enumerate(zip(items, schemas, strict=True))]


def _fit_object(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> dict[str, Any]:
    value = _decoded(value, dict)
    if not isinstance(value, dict):
        raise _mismatch(value, "an object", path)
    given = cast("dict[str, Any]", value)
    properties: Schema = schema.get("properties", {})
    required: list[str] = schema.get("required", [])
    missing = [name for name in required if name not in given or (given[name] is None and not takes_null(properties.get(name, {}), root))]
    if missing:
        place = "" if path == "$" else f"{_shortened(path)}: "
        raise Misfit("missing_required", f"{path}.{missing[0]}", f"{place}missing {', '.join(missing)}; required: {', '.join(required)}")
    extra: Any = schema.get("additionalProperties", not properties)
    others: Schema | None = None if extra is False else cast("Schema", extra) if isinstance(extra, dict) else {}
    fitted: dict[str, Any] = {}
    for name, item in given.items():
        wanted = properties.get(name, others)
        if wanted is None or (item is None and name in properties and name not in required and not takes_null(wanted, root)):
            continue  # not asked for; or null for an optional one, which means that its default is wanted
        fitted[_clean(name)] = fit(item, wanted, path=f"{path}.{name}", root=root, depth=depth + 1)
    return fitted


def takes_null(schema: Schema, root: Schema) -> bool:
    """Whether null is a value of the schema."""
    for _ in range(20):
        if "$ref" not in schema:
            break
        schema = definition(root, schema["$ref"])
    if "enum" in schema or "const" in schema:
        return None in schema.get("enum", [schema.get("const", ...)])
    if branches := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return any(takes_null(branch, root) for branch in branches)
    kind = schema.get("type")
    return kind is None or kind == "null" or (isinstance(kind, list) and "null" in kind)


def _decoded(value: Any, wanted: type) -> Any:
    """A list or object that arrived as its JSON text."""
    if not isinstance(value, str):
        return value
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return decoded if isinstance(decoded, wanted) else value


_FITTERS: dict[str, Callable[[Any, Schema, str, Schema, int], Any]] = {
    "integer": _fit_integer,
    "number": _fit_number,
    "boolean": _fit_boolean,
    "string": _fit_string,
    "null": _fit_null,
    "array": _fit_array,
    "object": _fit_object,
}
