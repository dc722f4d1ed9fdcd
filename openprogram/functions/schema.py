"""Python signature → JSON Schema, and a model's arguments → Python values.

Each parameter is resolved by itself, so that one annotation that cannot be resolved degrades only its own parameter to "any value". Arguments are first fitted
to the JSON Schema without loss (`fit`), then converted by pydantic to the annotated types.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from openprogram.errors import ArgumentError
from openprogram.functions.annotations import Schema, adapter_for, is_any, schema_or_reason
from openprogram.functions.docstrings import parameter_notes
from openprogram.functions.fit import Misfit, fit
from openprogram.functions.options import RUNTIME_NAMES
from openprogram.functions.signatures import signature_of

__all__ = [
    "RUNTIME_PARAMETERS",
    "Further",
    "Parameter",
    "Schema",
    "adapter_for",
    "convert_arguments",
    "fitted_values",
    "further_of",
    "hoist",
    "object_schema",
    "parameters_of",
    "parameters_schema",
    "placed",
    "taken_by",
    "to_python",
    "with_options",
]

logger = logging.getLogger("openprogram.schema")

RUNTIME_PARAMETERS = frozenset(RUNTIME_NAMES)


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a function as a model sees it.

    ``source`` is ``llm`` (the model supplies it), ``context`` or ``runtime`` (filled for it) or ``default`` (never supplied: bound by a partial, or of a type
    that JSON cannot carry). ``unfillable`` says why a required parameter can never come from a model.
    """

    name: str
    schema: Schema
    required: bool
    source: str = "llm"
    annotation: Any = Any
    keyword: bool = True
    default: Any = None
    unfillable: str = ""


class Further(msgspec.Struct, frozen=True, kw_only=True):
    """What ``**kwargs`` takes: the schema and annotation of each value, and the names that it may not carry."""

    schema: Schema
    annotation: Any
    taken: frozenset[str]


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a callable in order; ``*args`` and ``**kwargs`` left out. Raises ValueError when it has no signature to read."""
    return _parameters(function, _signature(function))


def further_of(function: Callable[..., Any]) -> Further | None:
    """What the callable's ``**kwargs`` takes; None when it has none."""
    return _further(function, _signature(function))


def taken_by(function: Callable[..., Any]) -> tuple[tuple[Parameter, ...], Further | None]:
    """`parameters_of` and `further_of` at once, for what is asked at every decision."""
    signature = _signature(function)
    return _parameters(function, signature), _further(function, signature)


def _parameters(function: Any, signature: inspect.Signature) -> tuple[Parameter, ...]:
    inner = _innermost(function)
    meta: Mapping[str, Any] = getattr(function, "input_meta", None) or getattr(inner, "input_meta", None) or {}
    scope = _scope(inner)
    bound: Mapping[str, Any] = function.keywords if isinstance(function, functools.partial) else {}
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = [item for item in signature.parameters.values() if item.kind not in skipped]
    notes = parameter_notes((inner if hasattr(inner, "__name__") else cast("Any", type(inner))).__doc__)
    return tuple(_parameter(item, _resolved(item, *scope), meta.get(item.name, {}), notes.get(item.name, ""), item.name in bound) for item in wanted)


def _further(function: Any, signature: inspect.Signature) -> Further | None:
    parameters = signature.parameters.values()
    open_ended = next((item for item in parameters if item.kind is inspect.Parameter.VAR_KEYWORD), None)
    if open_ended is None:
        return None
    annotation = _resolved(open_ended, *_scope(_innermost(function)))
    # A positional-only parameter leaves its name free, but a model that says that name means the parameter.
    taken = RUNTIME_PARAMETERS | {item.name for item in parameters}
    return Further(schema=schema_or_reason(annotation)[0], annotation=annotation, taken=frozenset(taken))


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return signature_of(function)
    except (TypeError, ValueError):
        raise ValueError(f"{function!r} has no signature to read; wrap it in a function whose parameters are declared") from None


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = cast("Any", function.func)
    return function


def _scope(function: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The globals of a callable's body, and what it closes over."""
    plain: Any = _innermost(inspect.unwrap(function))
    if not hasattr(plain, "__code__") and not hasattr(plain, "__func__"):
        plain = getattr(cast("Any", type(plain)), "__call__", plain)  # noqa: B004 - it is the method that is wanted
    plain = inspect.unwrap(getattr(plain, "__func__", plain))
    code, cells = getattr(plain, "__code__", None), getattr(plain, "__closure__", None)
    closed: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        try:
            closed[name] = cell.cell_contents
        except ValueError:  # a closure variable that is not assigned yet
            continue
    return getattr(plain, "__globals__", {}), closed


def _resolved(item: inspect.Parameter, variables: dict[str, Any], closed: dict[str, Any]) -> Any:
    """A parameter's annotation as an object, names in it looked up where the function was written."""
    if item.annotation is inspect.Parameter.empty:
        return Any

    def probe() -> None: ...

    probe.__annotations__ = {"it": item.annotation}
    try:
        return typing.get_type_hints(probe, {**variables, **closed}, include_extras=True)["it"]
    except Exception as error:  # whatever the evaluation of an annotation raises
        logger.warning("the annotation %r of parameter %r cannot be resolved, any value is accepted: %s", item.annotation, item.name, error)
        return Any


def _parameter(item: inspect.Parameter, annotation: Any, meta: Mapping[str, Any], note: str, bound: bool) -> Parameter:
    has_default = item.default is not inspect.Parameter.empty
    source = "llm"
    if item.name in RUNTIME_PARAMETERS:
        source = "runtime"
    elif meta.get("hidden") or meta.get("source") == "context":
        source = "context"
    elif bound:
        source = "default"
    schema, reason = schema_or_reason(annotation) if source == "llm" else ({}, "")
    if reason and not _is_type(annotation):
        logger.warning("the annotation %r of parameter %r is no type, any value is accepted: %s", annotation, item.name, reason)
        annotation, reason = Any, ""
    if reason and has_default:
        source, reason = "default", ""
    schema = dict(schema)
    if options := meta.get("options"):
        schema = with_options(schema, list(options))
    if description := meta.get("description") or _noted(annotation) or ("" if "description" in schema else note):
        schema["description"] = description
    if has_default and source == "llm":
        schema |= shown_default(item.default, annotation)
    return Parameter(
        name=item.name,
        schema=schema,
        required=not has_default,
        source=source,
        annotation=annotation,
        keyword=item.kind is not inspect.Parameter.POSITIONAL_ONLY,
        default=item.default if has_default else None,
        unfillable=reason,
    )


def _noted(annotation: Any) -> str:
    """The text that ``Annotated`` carries: a plain string, or a ``Doc``."""
    notes = typing.get_args(annotation)[1:] if typing.get_origin(annotation) is typing.Annotated else ()
    texts = [note if isinstance(note, str) else getattr(note, "documentation", None) for note in notes]
    return next((text for text in texts if isinstance(text, str)), "")


def _is_type(annotation: Any) -> bool:
    return isinstance(annotation, type) or typing.get_origin(annotation) is not None


def with_options(schema: Schema, allowed: list[Any]) -> Schema:
    """A schema whose values are restricted to the allowed ones; those of a list by its items."""
    if schema.get("type") == "array":
        return {**schema, "items": {**schema.get("items", {}), "enum": allowed}}
    return {**schema, "enum": allowed}


def shown_default(default: Any, annotation: Any) -> Schema:
    """The default as JSON, ``{}`` where it has no JSON form."""
    try:
        shown = default if is_any(annotation) else adapter_for(annotation).dump_python(default, mode="json", warnings=False)
        json.dumps(shown, allow_nan=False)
    except Exception:  # pydantic raises many kinds for a default of another type than its annotation; it is not shown then
        return {}
    return {"default": shown}


def hoist(schema: Schema, definitions: Schema) -> Schema:
    """A schema without its own ``$defs``, which move to ``definitions``; all get other names when one of theirs stands for something else there."""
    own: Schema = schema.get("$defs", {})
    if not own:
        return schema
    suffix = ""
    if any(definitions.get(name, body) != body for name, body in own.items()):
        number = 2
        while any(f"{name}_{number}" in definitions for name in own):
            number += 1
        suffix = f"_{number}"
    names = {f"#/$defs/{name}": f"#/$defs/{name}{suffix}" for name in own} if suffix else {}
    definitions |= {f"{name}{suffix}": _renamed(body, names) for name, body in own.items()}
    return cast("Schema", _renamed({key: value for key, value in schema.items() if key != "$defs"}, names))


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    mapping = cast("Schema", value)
    return {key: names.get(item, item) if key == "$ref" and isinstance(item, str) else _renamed(item, names) for key, item in mapping.items()}


def object_schema(parameters: tuple[Parameter, ...], further: Further | None = None) -> Schema:
    """The JSON Schema of the arguments that a model supplies; definitions are hoisted to its root."""
    definitions: Schema = {}
    properties: Schema = {item.name: hoist(item.schema, definitions) for item in parameters if item.source == "llm"}
    required = [item.name for item in parameters if item.source == "llm" and item.required]
    extra = False if further is None else hoist(further.schema, definitions) or True
    schema: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": extra}
    return {**schema, "$defs": definitions} if definitions else schema


def parameters_schema(function: Callable[..., Any]) -> Schema:
    """The JSON Schema of what a model may pass to a callable."""
    return object_schema(parameters_of(function), further_of(function))


def placed(parameters: tuple[Parameter, ...], arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by name as a call passes them: positional-only ones by position, where one that is left out holds its place with its default."""
    keywords = dict(arguments)
    return [keywords.pop(item.name, item.default) for item in parameters if not item.keyword], keywords


def convert_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], *, hidden: bool = False) -> dict[str, Any]:
    """A model's arguments as keyword arguments of the annotated types; unknown ones are dropped. Raises ArgumentError naming the parameter.

    ``hidden``: a program or a person gave them, who may fill what models are not offered.
    """
    parameters, further = parameters_of(function), further_of(function)
    if hidden:
        parameters = tuple(msgspec.structs.replace(item, source="llm") if item.source == "context" else item for item in parameters)
    name = getattr(function, "tool_name", None) or getattr(function, "__name__", "function")
    try:
        return fitted_values(dict(arguments), object_schema(parameters, further), parameters, further)[1]
    except Misfit as error:
        raise ArgumentError(f"{name}: {error}", parameter=error.path.removeprefix("$.")) from None


def fitted_values(
    arguments: Mapping[str, Any], schema: Schema, parameters: tuple[Parameter, ...], further: Further | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model's arguments fitted to their ``schema``, as JSON and as the annotated types. Raises Misfit.

    What would reach a parameter that the model does not see is stripped, though ``**kwargs`` would take it.
    """
    offered: Schema = schema["properties"]
    given = {name: item for name, item in arguments.items() if name in offered or further is None or name not in further.taken}
    fitted = fit(given, schema)
    annotations = {item.name: item.annotation for item in parameters if item.name in offered}
    others = Any if further is None else further.annotation
    return fitted, {name: to_python(name, annotations.get(name, others), item) for name, item in fitted.items()}


def to_python(name: str, annotation: Any, value: Any) -> Any:
    """A fitted value as the annotated type. Raises Misfit."""
    if is_any(annotation):
        return value
    from pydantic import PydanticUserError, ValidationError

    try:
        return adapter_for(annotation).validate_python(value)
    except ValidationError as error:
        issue = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in issue["loc"])
        raise Misfit("type_mismatch", f"$.{name}{path}", f"{name}{path}: {issue['msg']}") from None
    except (PydanticUserError, TypeError, NameError):
        return value
