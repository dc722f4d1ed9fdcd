"""A menu as a model sees it: as text, as one JSON Schema for providers that can constrain their output, and as short texts for picks in two steps."""

from __future__ import annotations

import json
from typing import Any, cast

from openprogram.agentic_programming.decision.options import Menu, Option
from openprogram.functions.fit import definition
from openprogram.functions.schema import Schema, hoist

DECISION_FINISH_INSTRUCTION = (
    "Do what is asked above first. When you are done, end with one JSON object that picks exactly one of the options below, and write nothing after it."
)

DEEPEST_SHOWN = 5
_NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict", "null": "None"}
_PLACEHOLDERS: dict[str, Any] = {"string": "<str>", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}, "null": None}


def render(menu: Menu) -> str:
    """The menu as text: per option its signature, description, parameters and a ``Call:`` line that shows the JSON of picking it."""
    return "\n\n".join(["Options:", *(_render_option(option) for option in menu.options.values())])


def _render_option(option: Option) -> str:
    root = option.schema
    required = root["required"]
    parts = [_signature_part(name, schema, name in required, root) for name, schema in option.properties.items()]
    if isinstance(root["additionalProperties"], dict) or root["additionalProperties"] is True:
        parts.append("…")
    lines = [f"{option.name}({', '.join(parts)})", *(f"  {line}" for line in option.description.strip().splitlines())]
    for name, schema in option.properties.items():
        lines += _details(_shown(name), schema, name in required, root)
    example = {"call": option.name, "args": {name: placeholder(schema, root) for name, schema in option.properties.items() if name in required}}
    return "\n".join([*lines, f"  Call: {_json(example)}"])


def _json(value: Any) -> str:
    """JSON on one line, with what would not show, or break the line, escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def _shown(name: str) -> str:
    return name if name.isprintable() else json.dumps(name)


def _signature_part(name: str, schema: Schema, required: bool, root: Schema) -> str:
    text = f"{_shown(name)}: {type_name(schema, root)}"
    if required:
        return text
    return f"{text} = {_json(schema['default'])}" if "default" in schema else f"{text} = …"


def _details(path: str, schema: Schema, required: bool, root: Schema, depth: int = 0) -> list[str]:
    """A line for a field that has more to say than its type, and for such fields inside it."""
    notes = [" ".join(schema["description"].split())] if schema.get("description") else []
    body = resolve(schema, root)
    if allowed := _allowed(body, root):
        notes.append(f"one of {', '.join(_json(item) for item in allowed)}")
    if not required:
        notes.append("optional")
    lines = [f"  - {path}: {'; '.join(notes)}"] if notes else []
    if depth == DEEPEST_SHOWN:
        return lines
    if body.get("type") == "array" and isinstance(body.get("items"), dict):
        lines += _details(f"{path}[]", body["items"], True, root, depth + 1)
    for name, inner in body.get("properties", {}).items():
        lines += _details(f"{path}.{_shown(name)}", inner, name in body.get("required", ()), root, depth + 1)
    return lines


def _allowed(schema: Schema, root: Schema) -> list[Any]:
    """The values that a schema admits, when it lists them; those of a union when each branch but null lists its own."""
    if "enum" in schema or "const" in schema:
        return list(schema.get("enum", [schema.get("const")]))
    lists: list[list[Any]] = []
    for branch in (resolve(branch, root) for branch in _branches(schema)):
        lists.append([None] if branch.get("type") == "null" else list(branch.get("enum", [branch["const"]] if "const" in branch else [])))
    return [value for values in lists for value in values] if all(lists) else []


def _branches(schema: Schema) -> list[Schema]:
    return cast("list[Schema]", schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or [])


def resolve(schema: Schema, root: Schema) -> Schema:
    """A schema with its ``$ref`` followed."""
    for _ in range(20):
        if "$ref" not in schema:
            break
        schema = definition(root, schema["$ref"])
    return schema


def type_name(schema: Schema, root: Schema, depth: int = 0) -> str:
    """A schema's type in Python's words, such as ``list[str]`` or ``int | None``."""
    schema = resolve(schema, root)
    if depth > DEEPEST_SHOWN:
        return "…"
    if branches := _branches(schema):
        return " | ".join(dict.fromkeys(type_name(branch, root, depth + 1) for branch in branches))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_NAMES.get(item, "any") for item in cast("list[str]", kind))
    if kind == "array" and schema.get("items"):
        return f"list[{type_name(schema['items'], root, depth + 1)}]"
    if kind is None and "enum" in schema:
        return " | ".join(dict.fromkeys("None" if item is None else type(item).__name__ for item in schema["enum"]))
    return _NAMES.get(kind or "", "any")


def placeholder(schema: Schema, root: Schema, depth: int = 0) -> Any:
    """A value of the right shape for the ``Call:`` line."""
    schema = resolve(schema, root)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if depth == DEEPEST_SHOWN:
        return _PLACEHOLDERS.get(schema.get("type", "string"), "<str>")
    if branches := _branches(schema):
        return placeholder(branches[0], root, depth + 1)
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        kind = cast("list[str]", kind)[0]
    if leading := schema.get("prefixItems"):
        return [placeholder(item, root, depth + 1) for item in leading]
    if kind == "array" and schema.get("items"):
        return [placeholder(schema["items"], root, depth + 1)]
    if schema.get("properties"):
        return {name: placeholder(item, root, depth + 1) for name, item in schema["properties"].items()}
    return _PLACEHOLDERS.get(kind, "<str>")


def schema_of(menu: Menu) -> Schema:
    """One JSON Schema of every valid pick: a union with a ``call`` constant per option."""
    definitions: Schema = {}
    branches: list[Schema] = []
    for option in menu.options.values():
        arguments = hoist(option.schema, definitions)
        properties = {"call": {"const": option.name}, "args": arguments}
        branches.append({"type": "object", "properties": properties, "required": ["call", "args"], "additionalProperties": False})
    schema: Schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**schema, "$defs": definitions} if definitions else schema


def short_menu(menu: Menu) -> str:
    """The options in a line each, for a model that first answers with one name."""
    lines = [f"- {option.name}: {summary}" if (summary := _summary(option)) else f"- {option.name}" for option in menu.options.values()]
    return "\n".join(lines)


def _summary(option: Option) -> str:
    return option.description.strip().splitlines()[0] if option.description.strip() else ""


def arguments_question(option: Option, question: str) -> str:
    """What asks for the arguments of an option that was picked by name; the question stands beside it, since a small model copies best from what is near."""
    root = option.schema
    wanted = [f"{name} ({_wanted(schema, root)})" for name, schema in option.properties.items()]
    return f"{question}\n\nWhat is the {' and the '.join(wanted)} in this? Answer as JSON."


def _wanted(schema: Schema, root: Schema) -> str:
    description = schema.get("description")
    return f"{type_name(schema, root)}, {description}" if description else type_name(schema, root)


def names_grammar(menu: Menu) -> str:
    """A GBNF grammar that admits exactly the option names."""
    return "root ::= " + " | ".join(json.dumps(name, ensure_ascii=False) for name in menu.options)
