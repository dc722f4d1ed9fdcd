"""Live options → `Menu`: names, descriptions and one JSON Schema of arguments per option, beside the live handlers.

Everything that can be wrong with a menu is found here, before any model call, as a ValueError or TypeError that names the option and the rule.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import msgspec

from openprogram.functions.schema import Parameter, Schema, annotation_schema, object_schema, parameters_of

Kind = Literal["function", "value", "schema"]
META_KEYS = frozenset({"type", "description", "options", "fields", "items"})
TYPE_NAMES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


class Value(msgspec.Struct, frozen=True):
    """An option value marked as such, see `value`."""

    value: Any
    description: str | None = None


def value(x: Any, description: str | None = None) -> Value:
    """Mark ``x`` as a value option, whatever it is: a tuple, a class and any callable can then be one."""
    return Value(x, description)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option: what the model sees (name, description, ``schema`` of its arguments) and what it stands for (``handler``)."""

    name: str
    kind: Kind
    description: str
    schema: Schema
    handler: Any
    parameters: tuple[Parameter, ...] = ()

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
        pairs = [(_name(key), handler, "") for key, handler in cast("Mapping[Any, Any]", options).items()]
        items = [_from_handler(name, handler) for name, handler, _ in pairs]
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
    if not isinstance(key, str) or not key.strip():
        raise TypeError(f"an option's name is a non-empty string, not {key!r}")
    return key


def _from_handler(name: str, handler: Any) -> Option:
    """An option of the dict form: handler, (handler, description) or ("description", schema)."""
    if isinstance(handler, Value):
        return _value_option(name, handler.value, handler.description)
    if isinstance(handler, tuple):
        pair = cast("tuple[Any, ...]", handler)
        if len(pair) != 2:
            raise TypeError(f'option {name!r}: a tuple is (value, "description") or ("description", schema); mark a literal tuple with decision.value(…)')
        first, second = pair
        if isinstance(first, str) and isinstance(second, dict):
            return _schema_option(name, first, cast("dict[str, Any]", second))
        if not isinstance(second, str):
            raise TypeError(f"option {name!r}: the second half of its tuple is a description (a str), not {second!r}; mark a literal tuple with decision.value(…)")
        return _function_option(name, first, second) if callable(first) else _value_option(name, first, second)
    if callable(handler):
        return _function_option(name, handler, None)
    return _value_option(name, handler, None)


def _from_item(position: int, item: Any) -> Option:
    """An option of the list form: callable, (callable, description), "name", ("name", "description") or ("name", "description", schema)."""
    if isinstance(item, str):
        return _value_option(_name(item), item, None)
    if callable(item):
        return _function_option(_name_of(item), item, None)
    if isinstance(item, tuple):
        parts = cast("tuple[Any, ...]", item)
        if len(parts) == 2 and callable(parts[0]) and isinstance(parts[1], str):
            return _function_option(_name_of(parts[0]), parts[0], parts[1])
        if len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], str):
            return _value_option(_name(parts[0]), parts[0], parts[1])
        if len(parts) == 3 and isinstance(parts[0], str) and isinstance(parts[1], str) and isinstance(parts[2], dict):
            return _schema_option(_name(parts[0]), parts[1], cast("dict[str, Any]", parts[2]))
    raise TypeError(
        f'option {position + 1} of the list is {item!r}; allowed: a callable, (callable, "description"), "name", ("name", "description"), ("name", "description", schema)'
    )


def _name_of(function: Callable[..., Any]) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    name = getattr(inner, "tool_name", None) or getattr(inner, "__name__", None)
    if not name or name == "<lambda>":
        raise ValueError(f"{function!r} has no name of its own; give it one with the dict form {{name: function}}")
    return name


def _function_option(name: str, function: Callable[..., Any], description: str | None) -> Option:
    if inspect.isclass(function):
        raise TypeError(f"option {name!r} is a class; mark it with decision.value(…) to return it, or wrap it in a function to call it")
    parameters = parameters_of(function)
    doc = inspect.getdoc(function.func if isinstance(function, functools.partial) else function) or ""
    spec_description = getattr(function, "_options", {}).get("description") if hasattr(function, "tool_name") else None
    return Option(
        name=name,
        kind="function",
        description=description or spec_description or doc,
        schema=object_schema(parameters),
        handler=function,
        parameters=parameters,
    )


def _value_option(name: str, handler: Any, description: str | None) -> Option:
    return Option(name=name, kind="value", description=description or "", schema=object_schema(()), handler=handler)


def _schema_option(name: str, description: str, fields: dict[str, Any]) -> Option:
    if "decision" in fields:
        raise ValueError(f"option {name!r}: a field called 'decision' would hide the option's name in the result; call it something else")
    return Option(name=name, kind="schema", description=description, schema=_nested(fields, f"option {name!r}"), handler=None)


def _nested(fields: dict[str, Any], where: str) -> Schema:
    for key in fields:
        if not isinstance(key, str):
            raise TypeError(f"{where}: a field name is a string, not {key!r}")
    properties = {key: field_schema(field, f"{where}, field {key!r}") for key, field in fields.items()}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def field_schema(field: Any, where: str) -> Schema:
    """A schema field as JSON Schema: a type or annotation, a description, ``[item]``, a nested dict, or a meta-spec. Raises TypeError naming ``where``."""
    if isinstance(field, str):
        return {"type": "string", "description": field}
    if isinstance(field, list):
        items = cast("list[Any]", field)
        if len(items) != 1:
            raise TypeError(f"{where}: a list schema holds exactly one item template, not {len(items)}: {items!r}")
        return {"type": "array", "items": field_schema(items[0], f"{where}, item")}
    if isinstance(field, dict):
        mapping = cast("dict[str, Any]", field)
        return _meta_schema(mapping, where) if mapping and META_KEYS.issuperset(mapping) else _nested(mapping, where)
    if field in (list, dict):
        return {"type": "array" if field is list else "object"}
    schema = annotation_schema(field)
    if not schema:
        raise TypeError(f"{where}: {field!r} is no type; allowed: str, int, float, bool, list, dict, a description, [item], a nested dict, or an annotation")
    return schema


def _meta_schema(meta: dict[str, Any], where: str) -> Schema:
    kind = meta.get("type")
    if isinstance(kind, str):
        if kind not in TYPE_NAMES:
            raise TypeError(f"{where}: type {kind!r} is unknown; allowed: {', '.join(TYPE_NAMES)}")
        kind = TYPE_NAMES[kind]
    if "fields" in meta:
        schema = _nested(meta["fields"], where)
    elif "items" in meta:
        schema: Schema = {"type": "array", "items": field_schema(meta["items"], f"{where}, item")}
    else:
        schema = field_schema(kind if kind is not None else str, where) if "options" not in meta or kind is not None else {}
    if "options" in meta:
        allowed = list(meta["options"])
        if not allowed:
            raise ValueError(f"{where}: options is empty, so nothing would be valid")
        schema = {**schema, "enum": allowed} if schema.get("type") != "array" else {**schema, "items": {**schema.get("items", {}), "enum": allowed}}
    if description := meta.get("description"):
        schema = {**schema, "description": description}
    return schema
