"""Python signature → JSON Schema, and a model's arguments → Python values.

Each parameter is resolved by itself, so that one annotation that cannot be resolved degrades only its own parameter to "any value". Arguments are first fitted to the JSON
Schema without loss (`fit`), then converted by pydantic to the annotated types.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from openprogram.errors import ArgumentError

logger = logging.getLogger("openprogram.schema")

Schema = dict[str, Any]
RUNTIME_PARAMETERS = frozenset({"runtime", "exec_runtime", "review_runtime"})
_INTEGER = re.compile(r"[+-]?\d{1,4000}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")


class Misfit(ValueError):
    """A value that does not fit its schema. ``kind`` is ``type_mismatch``, ``enum_violation``, ``missing_required`` or ``bad_args``; ``path`` a JSON path."""

    def __init__(self, kind: str, path: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.path = path


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a function as a model sees it. ``source`` is ``llm`` (the model supplies it), ``context`` or ``runtime`` (filled for it)."""

    name: str
    schema: Schema
    required: bool
    source: str = "llm"
    annotation: Any = Any
    keyword: bool = True
    has_default: bool = False


@functools.lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)


def adapter_for(annotation: Any) -> Any:
    """A pydantic TypeAdapter; kept, since building one costs milliseconds."""
    try:
        return _adapter(annotation)
    except TypeError:  # an unhashable annotation
        return _adapter.__wrapped__(annotation)


def annotation_schema(annotation: Any) -> Schema:
    """The JSON Schema (2020-12) of an annotation; ``{}`` where pydantic knows none."""
    if annotation is Any or annotation is inspect.Parameter.empty:
        return {}
    from pydantic import PydanticUserError
    from pydantic_core import PydanticOmit

    try:
        return cast("Schema", adapter_for(annotation).json_schema())
    except (PydanticUserError, PydanticOmit, TypeError, NameError, AttributeError) as error:
        logger.warning("no JSON Schema for %r, any value is accepted: %s", annotation, str(error).splitlines()[0] if str(error) else type(error).__name__)
        return {}


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a callable in order; ``*args`` left out. Raises ValueError when it has no signature to read."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise ValueError(f"{function!r} has no signature to read; wrap it in a function whose parameters are declared") from None
    meta: Mapping[str, Any] = getattr(function, "input_meta", None) or {}
    resolve = _resolver(function)
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(_parameter(item, resolve(item), meta.get(item.name, {})) for item in signature.parameters.values() if item.kind not in skipped)


def _parameter(item: inspect.Parameter, annotation: Any, meta: Mapping[str, Any]) -> Parameter:
    has_default = item.default is not inspect.Parameter.empty
    source = "runtime" if item.name in RUNTIME_PARAMETERS else "context" if meta.get("hidden") or meta.get("source") == "context" else "llm"
    schema: Schema = {} if source == "runtime" else dict(annotation_schema(annotation))
    if description := meta.get("description"):
        schema["description"] = description
    if options := meta.get("options"):
        schema["enum"] = list(options)
    if has_default and _is_json(item.default):
        schema["default"] = item.default
    return Parameter(
        name=item.name,
        schema=schema,
        required=not has_default,
        source=source,
        annotation=annotation,
        keyword=item.kind is not inspect.Parameter.POSITIONAL_ONLY,
        has_default=has_default,
    )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(value, str | int | float | bool | list | dict | None)


def _resolver(function: Callable[..., Any]) -> Callable[[inspect.Parameter], Any]:
    """Annotations as objects: strings are evaluated one by one, in the function's globals and closure."""
    plain = inspect.unwrap(function)
    if isinstance(plain, functools.partial):
        plain = inspect.unwrap(plain.func)
    plain = getattr(plain, "__func__", plain)
    code, cells = getattr(plain, "__code__", None), getattr(plain, "__closure__", None)
    scope: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # a closure variable that is not assigned yet
            continue

    def resolve(item: inspect.Parameter) -> Any:
        annotation = item.annotation
        if annotation is inspect.Parameter.empty:
            return Any
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, getattr(plain, "__globals__", {}), scope)  # noqa: S307 - what typing.get_type_hints does, for one parameter
        except Exception as error:
            logger.warning("the annotation %r of parameter %r cannot be resolved, any value is accepted: %s", annotation, item.name, error)
            return Any

    return resolve


def object_schema(parameters: tuple[Parameter, ...]) -> Schema:
    """The JSON Schema of the arguments that a model supplies; definitions are hoisted to its root."""
    properties: Schema = {}
    definitions: Schema = {}
    for parameter in parameters:
        if parameter.source == "llm":
            schema = dict(parameter.schema)
            definitions.update(schema.pop("$defs", {}))
            properties[parameter.name] = schema
    required = [parameter.name for parameter in parameters if parameter.source == "llm" and parameter.required]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {**schema, "$defs": definitions} if definitions else schema


def parameters_schema(function: Callable[..., Any]) -> Schema:
    """The JSON Schema of what a model may pass to a callable."""
    return object_schema(parameters_of(function))


def convert_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A model's arguments as keyword arguments of the annotated types; unknown ones are dropped. Raises ArgumentError naming the parameter."""
    parameters = parameters_of(function)
    name = getattr(function, "tool_name", None) or getattr(function, "__name__", "function")
    try:
        fitted = fit(dict(arguments), object_schema(parameters))
        return {item.name: to_python(item, fitted[item.name]) for item in parameters if item.name in fitted}
    except Misfit as error:
        raise ArgumentError(f"{name}: {error}", parameter=error.path.removeprefix("$.")) from None


def to_python(parameter: Parameter, value: Any) -> Any:
    """A fitted value as the parameter's annotated type. Raises Misfit."""
    if parameter.annotation is Any:
        return value
    from pydantic import PydanticUserError, ValidationError

    try:
        return adapter_for(parameter.annotation).validate_python(value)
    except ValidationError as error:
        issue = error.errors(include_url=False, include_context=False)[0]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in issue["loc"])
        raise Misfit("type_mismatch", f"$.{parameter.name}{path}", f"{parameter.name}{path}: {issue['msg']}") from None
    except (PydanticUserError, TypeError, NameError):
        return value


def fit(value: Any, schema: Schema, *, path: str = "$", root: Schema | None = None, depth: int = 0) -> Any:
    """``value`` fitted to a JSON Schema without loss: ``"3"`` and ``3.0`` for an integer, ``"true"`` for a boolean; unknown keys dropped. Raises Misfit."""
    root = schema if root is None else root
    if depth > 100:
        raise Misfit("bad_args", path, f"{path} is nested over 100 levels deep")
    if reference := schema.get("$ref"):
        return fit(value, _definition(root, reference), path=path, root=root, depth=depth + 1)
    if "const" in schema or "enum" in schema:
        return _fit_enum(value, schema.get("enum", [schema.get("const")]), schema, path)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return _fit_any(value, branches, path, root, depth)
    if len(schema.get("allOf", ())) == 1:
        return fit(value, schema["allOf"][0], path=path, root=root, depth=depth + 1)
    fitter = _FITTERS.get(schema.get("type", ""))
    if fitter is None:
        return _finite(value, path)
    return fitter(value, schema, path, root, depth)


def _definition(root: Schema, reference: str) -> Schema:
    return cast("Schema", root.get("$defs", {}).get(reference.rpartition("/")[2], {}))


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b or (_is_number(a) and _is_number(b) and a == b)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fit_enum(value: Any, allowed: list[Any], schema: Schema, path: str) -> Any:
    for item in allowed:
        if _same(item, value):
            return item
    if schema.get("type") in ("integer", "number", "boolean") and isinstance(value, str):
        value = fit(value, {"type": schema["type"]}, path=path)
        if value in allowed:
            return value
    raise Misfit("enum_violation", path, f"{path} is {_short(value)}; allowed: {', '.join(_short(item) for item in allowed)}")


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
    raise max(problems, key=lambda problem: len(problem.path))


def _finite(value: Any, path: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise Misfit("type_mismatch", path, f"{path} is {value}, which is no finite number")
    return value


def _mismatch(value: Any, wanted: str, path: str) -> Misfit:
    return Misfit("type_mismatch", path, f"{path} is {_short(value)}, expected {wanted}")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def _fit_integer(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    raise _mismatch(value, "an integer", path)


def _fit_number(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> float:
    if _is_number(value):
        return cast("float", _finite(value, path))
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return cast("float", _finite(float(value), path))
    raise _mismatch(value, "a number", path)


def _fit_boolean(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _mismatch(value, "true or false", path)


def _fit_string(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> str:
    if isinstance(value, str):
        return value
    raise _mismatch(value, "a string", path)


def _fit_null(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> None:
    if value is not None:
        raise _mismatch(value, "null", path)


def _fit_array(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> list[Any]:
    value = _decoded(value, list)
    if not isinstance(value, list):
        raise _mismatch(value, "a list", path)
    items = cast("list[Any]", value)
    return [fit(item, schema.get("items", {}), path=f"{path}[{index}]", root=root, depth=depth + 1) for index, item in enumerate(items)]


def _fit_object(value: Any, schema: Schema, path: str, root: Schema, depth: int) -> dict[str, Any]:
    value = _decoded(value, dict)
    if not isinstance(value, dict):
        raise _mismatch(value, "an object", path)
    given = cast("dict[str, Any]", value)
    properties: Schema = schema.get("properties", {})
    required = schema.get("required", [])
    missing = [name for name in required if name not in given or (given[name] is None and not _takes_null(properties[name]))]
    if missing:
        raise Misfit("missing_required", f"{path}.{missing[0]}", f"missing {', '.join(missing)}; required: {', '.join(required)}")
    extra = schema.get("additionalProperties", True)
    fitted: dict[str, Any] = {}
    for name, item in given.items():
        if name in properties:
            if item is None and name not in required and not _takes_null(properties[name]):
                continue  # null for an optional parameter means that its default is wanted
            fitted[name] = fit(item, properties[name], path=f"{path}.{name}", root=root, depth=depth + 1)
        elif not properties or extra is True or isinstance(extra, dict):
            if extra is not False:
                fitted[name] = fit(item, extra if isinstance(extra, dict) else {}, path=f"{path}.{name}", root=root, depth=depth + 1)
    return fitted


def _takes_null(schema: Schema) -> bool:
    if not schema.keys() - {"description", "default", "title"} or schema.get("type") == "null":
        return True
    return None in schema.get("enum", ()) or any(_takes_null(branch) for branch in schema.get("anyOf", ()))


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
