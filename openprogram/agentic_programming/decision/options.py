"""Live options → `Menu`: names, descriptions and one JSON Schema of arguments per option, beside the live handlers.

A schema's fields, ``{field: type}`` as an author writes them, become JSON Schema here, and fitted values the annotated types; every declared field is required.
Everything that can be wrong with a menu is found here, before any model call, as a ValueError or TypeError that names the option and the rule.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

from openprogram.functions.annotations import is_any, schema_or_reason
from openprogram.functions.decorated import Decorated
from openprogram.functions.fit import Misfit, fit
from openprogram.functions.schema import (
    Further,
    Parameter,
    Schema,
    hoist,
    object_schema,
    taken_by,
    to_python,
    with_options,
)

Kind = Literal["function", "value", "schema"]
META_KEYS = frozenset({"type", "description", "options", "fields", "items"})
TYPE_NAMES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}
DEEPEST_FIELD = 40
_PLAIN = (str, int, float, bool, list, dict)
_ALLOWED = "str, int, float, bool, list, dict, a description, [item], a nested dict, or an annotation"


class Value(msgspec.Struct, frozen=True):
    """An option value marked as such, see `decision.value`."""

    value: Any
    description: str | None = None


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option: what the model sees (name, description, ``schema`` of its arguments) and what it stands for.

    ``handler`` is the function, the value, or the fields of a schema as they were written.
    """

    name: str
    kind: Kind
    description: str
    schema: Schema
    handler: Any
    parameters: tuple[Parameter, ...] = ()
    further: Further | None = None

    @property
    def properties(self) -> Schema:
        """The arguments that the model supplies, by name."""
        return cast("Schema", self.schema["properties"])


class Menu(msgspec.Struct, frozen=True):
    """The options by name, in the order given."""

    options: dict[str, Option]

    def names(self) -> list[str]:
        """The option names in order."""
        return list(self.options)


def build_menu(options: Any) -> Menu:
    """A dict or list of options as a menu. Raises ValueError (empty, duplicate or unusable names) or TypeError (a shape that cannot be an option)."""
    if isinstance(options, Menu):
        return options
    if isinstance(options, Mapping):
        items = [_from_handler(_name(key), handler) for key, handler in cast("Mapping[Any, Any]", options).items()]
    elif isinstance(options, list | tuple):
        items = [_from_item(position, item) for position, item in enumerate(cast("list[Any]", options))]
    else:
        raise TypeError(f"options are a dict {{name: handler}} or a list, not {type(options).__name__}")
    if not items:
        raise ValueError("a decision needs at least one option; the menu is empty")
    menu: dict[str, Option] = {}
    for item in items:
        if item.name in menu:
            raise ValueError(f"two options are called {item.name!r}; give one another name with the dict form")
        menu[item.name] = item
    return Menu(menu)


def _name(key: Any) -> str:
    """An option's name as text; an enum's member stands for its value, an integer for its digits."""
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str) or not key.strip():
        raise TypeError(f"an option's name is a non-empty string, not {key!r}")
    name = key.strip()
    if not name.isprintable():
        raise ValueError(f"an option's name is one line of printable text, not {key!r}")
    return name


def _from_handler(name: str, handler: Any) -> Option:
    """An option of the dict form: handler, (handler, description) or ("description", schema)."""
    if isinstance(handler, tuple):
        pair = cast("tuple[Any, ...]", handler)
        if len(pair) != 2:
            raise TypeError(f'option {name!r}: a tuple is (value, "description") or ("description", schema); mark a literal tuple with decision.value(…)')
        first, second = pair
        if isinstance(first, str) and isinstance(second, dict):
            return _schema_option(name, first, cast("dict[str, Any]", second))
        if not isinstance(second, str):
            rule = "the second half of its tuple is a description (a str) or a schema (a dict)"
            raise TypeError(f"option {name!r}: {rule}, not {second!r}; mark a literal tuple with decision.value(…)")
        return _plain_option(name, first, second)
    return _plain_option(name, handler, None)


def _plain_option(name: str, handler: Any, description: str | None) -> Option:
    if isinstance(handler, Value):
        return _value_option(name, handler.value, description or handler.description)
    return _function_option(name, handler, description) if callable(handler) else _value_option(name, handler, description)


def _from_item(position: int, item: Any) -> Option:
    """An option of the list form: callable, (callable, description), "name", ("name", "description") or ("name", "description", schema)."""
    parts: tuple[Any, ...] = cast("tuple[Any, ...]", item) if isinstance(item, tuple) else (item,)
    match parts:
        case (str() as name,) | (str() as name, str()):
            return _value_option(_name(name), name, *parts[1:])
        case (str() as name, str() as description, dict()):
            return _schema_option(_name(name), description, cast("dict[str, Any]", parts[2]))
        case (Value(value=str() as name, description=description),):
            return _value_option(_name(name), name, description)
        case (function,) | (function, str()) if callable(function) and not isinstance(function, Value):
            return _function_option(_name_of(function), function, *parts[1:])
        case _:
            allowed = 'a callable, (callable, "description"), "name", ("name", "description"), ("name", "description", schema)'
            raise TypeError(f"option {position + 1} of the list is {item!r}; allowed: {allowed}; for any other value use the dict form")


def _name_of(function: Any) -> str:
    inner = _without_partials(function)
    name = getattr(inner, "tool_name", None) or getattr(inner, "__name__", None)
    if not name or name == "<lambda>":
        raise ValueError(f"{function!r} has no name of its own; give it one with the dict form {{name: function}}")
    return name


def _without_partials(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = cast("Any", function.func)
    return function


def _function_option(name: str, function: Callable[..., Any], description: str | None = None) -> Option:
    if inspect.isclass(function) or typing.get_origin(function) is not None or type(function).__module__ == "typing":
        raise TypeError(f"option {name!r} is a class; mark it with decision.value(…) to return it, or wrap it in a function to call it")
    try:
        parameters, further = taken_by(function)
    except ValueError as error:
        raise ValueError(f"option {name!r}: {error}") from None
    if _is_unbound_method(function, parameters):
        raise TypeError(f"option {name!r} is the method {function.__qualname__} without an object; pass it bound, as instance.{function.__name__}")
    for parameter in parameters:
        if parameter.unfillable:
            way_out = "give it a default, or declare it filled from context"
            raise TypeError(f"option {name!r}: no model can supply {parameter.name!r}, a {parameter.annotation!r} ({parameter.unfillable}); {way_out}")
    return Option(
        name=name,
        kind="function",
        description=description or _described(function),
        schema=object_schema(parameters, further),
        handler=function,
        parameters=parameters,
        further=further,
    )


def _is_unbound_method(function: Any, parameters: tuple[Parameter, ...]) -> bool:
    """Whether a method was taken from its class, so that nothing but a model could fill ``self``."""
    if not parameters or parameters[0].name != "self" or not parameters[0].required:
        return False
    owner, dot, _ = getattr(function, "__qualname__", "").rpartition(".")
    return bool(dot) and not owner.endswith("<locals>")


def _described(function: Any) -> str:
    inner = _without_partials(function)
    if isinstance(inner, Decorated):
        return inner.description
    if not hasattr(inner, "__name__"):  # an instance with __call__
        return inspect.getdoc(inner.__call__) or inspect.getdoc(inner) or ""
    return inspect.getdoc(inner) or ""


def _value_option(name: str, handler: Any, description: str | None = None) -> Option:
    return Option(name=name, kind="value", description=description or "", schema=object_schema(()), handler=handler)


def _schema_option(name: str, description: str, fields: dict[str, Any]) -> Option:
    if "decision" in fields:
        raise ValueError(f"option {name!r}: a field called 'decision' would hide the option's name in the result; call it something else")
    return Option(name=name, kind="schema", description=description, schema=fields_schema(fields, f"option {name!r}"), handler=dict(fields))


def check_context(option: Option, context: Mapping[str, Any] | None) -> None:
    """Raises ValueError when an option needs something from ``context`` that is not there."""
    for parameter in option.parameters:
        if parameter.source == "context" and parameter.required and parameter.name not in (context or {}):
            raise ValueError(f"option {option.name!r} needs {parameter.name!r} from context=, which does not hold it")


def fields_schema(fields: Mapping[Any, Any], where: str) -> Schema:
    """The JSON Schema of an object with these fields. Raises TypeError or ValueError naming ``where``."""
    definitions: Schema = {}
    schema = _nested(fields, where, definitions, 0)
    return {**schema, "$defs": definitions} if definitions else schema


def _nested(fields: Any, where: str, definitions: Schema, depth: int) -> Schema:
    if not isinstance(fields, Mapping):
        raise TypeError(f"{where}: fields are a dict {{name: type}}, not {fields!r}")
    mapping = cast("Mapping[Any, Any]", fields)
    for key in mapping:
        if not isinstance(key, str) or not key:
            raise TypeError(f"{where}: a field name is a non-empty string, not {key!r}")
    properties = {key: _field(field, f"{where}, field {key!r}", definitions, depth + 1) for key, field in mapping.items()}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _field(field: Any, where: str, definitions: Schema, depth: int) -> Schema:
    if depth > DEEPEST_FIELD:
        raise ValueError(f"{where[:80]}…: a schema is at most {DEEPEST_FIELD} levels deep, and holds itself nowhere")
    if isinstance(field, str):
        return {"type": "string", "description": field}
    if isinstance(field, list):
        return {"type": "array", "items": _field(_only_item(cast("list[Any]", field), where), f"{where}, item", definitions, depth + 1)}
    if isinstance(field, dict):
        mapping = cast("dict[Any, Any]", field)
        if not mapping:
            return {"type": "object"}
        return _meta(mapping, where, definitions, depth) if _is_meta(mapping) else _nested(mapping, where, definitions, depth)
    if field is list or field is dict:
        return {"type": "array" if field is list else "object"}
    schema, reason = schema_or_reason(field)
    if reason:
        raise TypeError(f"{where}: {field!r} is no type that JSON can carry; allowed: {_ALLOWED}")
    return hoist(schema, definitions)


def _is_meta(mapping: Mapping[Any, Any]) -> bool:
    return bool(mapping) and META_KEYS.issuperset(mapping)


def _only_item(items: list[Any], where: str) -> Any:
    if len(items) != 1:
        raise TypeError(f"{where}: a list schema holds exactly one item template, not {len(items)}: {items!r}")
    return items[0]


def _meta_type(meta: Mapping[Any, Any], where: str) -> Any:
    """The type that a meta-spec declares, ``...`` when it declares none."""
    kind = meta.get("type", ...)
    if isinstance(kind, str):
        if kind not in TYPE_NAMES:
            raise TypeError(f"{where}: type {kind!r} is unknown; allowed: {', '.join(TYPE_NAMES)}, or a Python type")
        return TYPE_NAMES[kind]
    return kind


def _meta(meta: Mapping[Any, Any], where: str, definitions: Schema, depth: int) -> Schema:
    kind = _meta_type(meta, where)
    if "fields" in meta and "items" in meta:
        raise TypeError(f"{where}: fields describes a dict and items a list; give one of them")
    if "fields" in meta:
        _expect(kind, dict, "fields", where)
        schema = _nested(meta["fields"], where, definitions, depth)
    elif "items" in meta:
        _expect(kind, list, "items", where)
        schema: Schema = {"type": "array", "items": _field(meta["items"], f"{where}, item", definitions, depth + 1)}
    elif kind is not ...:
        schema = _field(kind, where, definitions, depth + 1)
    else:
        schema = {} if "options" in meta else {"type": "string"}
    if "options" in meta:
        schema = _restricted(schema, meta["options"], where, definitions)
    return {**schema, "description": _meta_description(meta["description"], where)} if "description" in meta else schema


def _expect(kind: Any, wanted: type, key: str, where: str) -> None:
    if kind not in (..., wanted):
        raise TypeError(f"{where}: {key} describes a {wanted.__name__}, but type is {getattr(kind, '__name__', kind)!s}")


def _meta_description(description: Any, where: str) -> str:
    if not isinstance(description, str):
        keys = ", ".join(sorted(META_KEYS))
        way_out = "write {'fields': {…}} for an object with such fields"
        raise TypeError(f"{where}: a description is a str, not {description!r}; a dict of nothing but {keys} says what one field is: {way_out}")
    return description


def _restricted(schema: Schema, options: Any, where: str, definitions: Schema) -> Schema:
    if isinstance(options, str | bytes | Mapping) or not isinstance(options, Iterable):
        raise TypeError(f"{where}: options is a list of the allowed values, not {options!r}")
    allowed = list(cast("Iterable[Any]", options))
    if not allowed:
        raise ValueError(f"{where}: options is empty, so nothing would be valid")
    element = schema.get("items", {}) if schema.get("type") == "array" else schema
    for item in allowed:
        try:
            json.dumps(item, allow_nan=False)
            fit(item, element, root={"$defs": definitions})
        except (TypeError, ValueError, Misfit) as error:
            raise ValueError(f"{where}: the option {item!r} is no value of the field's type: {error}") from None
    return with_options(schema, allowed)


def convert(field: Any, value: Any, name: str) -> Any:
    """A fitted value as the annotated types of its field. Raises Misfit."""
    if isinstance(field, list) and isinstance(value, list):
        template = cast("list[Any]", field)[0]
        return [convert(template, item, f"{name}[{index}]") for index, item in enumerate(cast("list[Any]", value))]
    if isinstance(field, dict):
        mapping = cast("dict[Any, Any]", field)
        if not _is_meta(mapping):
            return convert_fields(mapping, value, f"{name}.") if mapping else value
        if "items" in mapping:
            return convert([mapping["items"]], value, name)
        if "fields" in mapping:
            return convert_fields(mapping["fields"], value, f"{name}.")
        return convert(mapping["type"], value, name) if "type" in mapping else value
    if isinstance(field, str) or field in _PLAIN or is_any(field):
        return value
    return to_python(name, field, value)


def convert_fields(fields: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Fitted fields as the annotated types. Raises Misfit."""
    return {name: convert(field, values[name], f"{prefix}{name}") for name, field in fields.items()}


def checked_menu(options: Any, context: Mapping[str, Any] | None) -> Menu:
    """`build_menu`, and whether ``context`` holds all that the options need from it: ValueError otherwise."""
    if context is not None and not isinstance(context, Mapping):
        raise TypeError(f"context is a mapping of what fills the parameters that the model does not see, not {context!r:.80}")
    menu = build_menu(options)
    for option in menu.options.values():
        check_context(option, context)
    return menu
