"""What a decorator says about a function as a tool, checked when the function is decorated.

A mistake is an error there that names the parameter, the value and what is allowed, so that no misspelt option is found out by a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

DEFAULT_MAX_RESULT_CHARS = 30_000
DEFAULT_HEAD_RATIO = 0.7
DEFAULT_CACHE_TTL_S = 300.0
RUNTIME_NAMES = ("runtime", "exec_runtime", "review_runtime")
INPUT_FIELDS = ("description", "placeholder", "multiline", "options", "hidden", "source")
SOURCES = ("llm", "context")
# Sets that mean something by themselves, so that no tool can be put into them.
RESERVED_SETS = ("full", "none")
_NO_RUNTIME = frozenset({str, int, float, bool, bytes, list, dict, tuple, set})
_NO_RUNTIME_NAMES = frozenset(kind.__name__ for kind in _NO_RUNTIME)


class ToolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The registration parameters of ``@function`` and ``@agentic_function``; times are seconds, lengths characters."""

    as_tool: bool = True
    name: str | None = None
    description: str | None = None
    parameters: Any = None
    label: str | None = None
    toolset: tuple[str, ...] = ()
    unsafe_in: tuple[str, ...] = ()
    check_fn: Any = None
    requires_env: tuple[str, ...] = ()
    can_use: Any = None
    max_result_chars: int | None = None
    persist_full: bool = False
    head_ratio: float | None = None
    requires_approval: Any = None
    cache: bool = False
    cache_ttl: float = DEFAULT_CACHE_TTL_S
    timeout: float | None = None
    available_if: Any = None
    defer: bool = False
    register_globally: bool = True
    not_for: tuple[str, ...] = ()


class Where:
    """The decorator and function that an error is about."""

    def __init__(self, decorator: str, name: str) -> None:
        self._place = f"@{decorator} on {name}"

    def wrong(self, rule: str, *, kind: type[Exception] = ValueError) -> Exception:
        """An error that says where, and which rule."""
        return kind(f"{self._place}: {rule}")

    def one_of(self, parameter: str, value: Any, allowed: tuple[str, ...]) -> None:
        """Raises ValueError for a value that is not among the allowed ones."""
        if value not in allowed:
            raise self.wrong(f"{parameter} does not know {value!r}; allowed: {', '.join(allowed)}")

    def expect(self, parameter: str, value: Any, kinds: type | tuple[type, ...], wanted: str) -> None:
        """Raises TypeError for a value of another type; a bool is no number."""
        wanted_kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, wanted_kinds) or (isinstance(value, bool) and bool not in wanted_kinds):
            raise self.wrong(f"{parameter} is {wanted}, not {value!r}", kind=TypeError)


_PLAIN = ToolOptions()
_FLAGS = ("as_tool", "persist_full", "cache", "defer", "register_globally")
_TEXTS = ("name", "description", "label")
_LISTS = ("toolset", "unsafe_in", "requires_env", "not_for")
_CALLABLES = ("check_fn", "can_use", "available_if")


def tool_options(where: Where, given: Mapping[str, Any]) -> ToolOptions:
    """The options that were given, checked. Raises ValueError or TypeError."""
    changed = {name: value for name, value in given.items() if value is not getattr(_PLAIN, name) and value != getattr(_PLAIN, name)}
    if not changed:
        return _PLAIN
    for name in _FLAGS:
        if name in changed:
            where.expect(name, changed[name], bool, "True or False")
    for name in _TEXTS:
        if name in changed:
            where.expect(name, changed[name], str, "a text")
    for name in _LISTS:
        if name in changed:
            changed[name] = _names(where, name, changed[name])
    for name in _CALLABLES:
        if name in changed and not callable(changed[name]):
            raise where.wrong(f"{name} is a function, not {changed[name]!r}", kind=TypeError)
    _check_values(where, changed)
    return ToolOptions(**changed)


def _names(where: Where, parameter: str, value: Any) -> tuple[str, ...]:
    names: list[Any] = (
        [value] if isinstance(value, str) else list(cast("Iterable[Any]", value)) if isinstance(value, list | tuple | set | frozenset) else [None]
    )
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise where.wrong(f"{parameter} is a tuple of texts, not {value!r}", kind=TypeError)
    if parameter == "toolset" and (taken := [name for name in names if name in RESERVED_SETS]):
        raise where.wrong(f"toolset {taken[0]!r} has a meaning of its own (every registered tool, or no tool); choose another name")
    return tuple(names)


def _check_values(where: Where, given: Mapping[str, Any]) -> None:
    if "name" in given and (not given["name"].strip() or not given["name"].isprintable()):
        raise where.wrong(f"name is one line of printable text, not {given['name']!r}")
    if "max_result_chars" in given:
        where.expect("max_result_chars", given["max_result_chars"], int, "a number of characters")
        if given["max_result_chars"] < 1:
            raise where.wrong(f"max_result_chars is a number of characters of at least 1, not {given['max_result_chars']}")
    for name in ("timeout", "cache_ttl"):
        if name in given:
            where.expect(name, given[name], (int, float), "a number of seconds")
            if not given[name] > 0:
                raise where.wrong(f"{name} is a number of seconds above 0, not {given[name]}")
    if "head_ratio" in given:
        where.expect("head_ratio", given["head_ratio"], (int, float), "the share of a cut result that is its head, from 0 to 1")
        if not 0 <= given["head_ratio"] <= 1:
            raise where.wrong(f"head_ratio is the share of a cut result that is its head, from 0 to 1, not {given['head_ratio']}")
    approval = given.get("requires_approval")
    if approval is not None and not isinstance(approval, bool) and not callable(approval):
        raise where.wrong(f"requires_approval is True, False or a function of the arguments, not {approval!r}", kind=TypeError)
    if "parameters" in given:
        check_parameters(where, given["parameters"])


def check_parameters(where: Where, schema: Any) -> None:
    """Whether a schema that an author wrote can describe arguments: an object's, in strict JSON. Raises TypeError or ValueError."""
    where.expect("parameters", schema, dict, "the JSON Schema of an object")
    fields = cast("dict[str, Any]", schema)
    if fields.get("type", "object") != "object":
        raise where.wrong(f'parameters describes an object ({{"type": "object", "properties": …}}), not {fields["type"]!r}')
    properties, required = fields.get("properties", {}), fields.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(value, dict | bool) for value in cast("dict[str, Any]", properties).values()):
        raise where.wrong("parameters: properties is a dict of schemas by name")
    if not isinstance(required, list | tuple) or not all(name in properties for name in cast("list[Any]", required)):
        raise where.wrong(f"parameters: required lists names that properties has, not {required!r}")
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise where.wrong(f"parameters holds what JSON cannot: {error}") from None


def check_input(where: Where, form: Any, fn: Callable[..., Any]) -> dict[str, Any]:
    """The metadata of the parameters, ``{parameter: {field: value}}``. Raises TypeError or ValueError."""
    where.expect("input", form, dict, "a dict {parameter: {field: value}}")
    table = cast("dict[Any, Any]", form)
    for parameter, fields in table.items():
        if not isinstance(fields, dict):
            raise where.wrong(f"input[{parameter!r}] is a dict of {', '.join(INPUT_FIELDS)}, not {fields!r}", kind=TypeError)
        known = parameter_names(fn)
        if known is not None and parameter not in known:
            raise where.wrong(f"input describes {parameter!r}, which is no parameter; it has: {', '.join(known) or 'none'}")
        for field, value in cast("dict[Any, Any]", fields).items():
            where.one_of(f"input[{parameter!r}]", field, INPUT_FIELDS)
            _check_field(where, f"input[{parameter!r}][{field!r}]", field, value)
    return cast("dict[str, Any]", table)


def _check_field(where: Where, place: str, field: str, value: Any) -> None:
    if field in ("description", "placeholder"):
        where.expect(place, value, str, "a text")
    elif field in ("multiline", "hidden"):
        where.expect(place, value, bool, "True or False")
    elif field == "source":
        where.one_of(place, value, SOURCES)
    elif field == "options":
        where.expect(place, value, (list, tuple), "a list of the allowed values")
        if not value:
            raise where.wrong(f"{place} is empty, so nothing would be allowed")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise where.wrong(f"{place} holds what JSON cannot: {error}") from None


def parameter_names(fn: Any) -> tuple[str, ...] | None:
    """The names of a function's parameters, cheaply; None when it takes any keyword or hides what it takes."""
    code = getattr(fn, "__code__", None)
    if code is None or code.co_flags & 0x08 or hasattr(fn, "__wrapped__"):
        return None
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def check_runtime_names(where: Where, fn: Any) -> None:
    """A parameter called like an injected one must be able to hold a Runtime. Raises TypeError."""
    annotations: dict[str, Any] = getattr(fn, "__annotations__", None) or {}
    for name in RUNTIME_NAMES:
        kind = annotations.get(name)
        if kind in _NO_RUNTIME_NAMES if isinstance(kind, str) else isinstance(kind, type) and kind in _NO_RUNTIME:
            shown = kind if isinstance(kind, str) else kind.__name__
            raise where.wrong(f"a parameter called {name} is filled with the Runtime and cannot be a {shown}; give it another name", kind=TypeError)
