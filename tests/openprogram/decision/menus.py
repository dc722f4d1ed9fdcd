"""Hypothesis strategies: menus, arguments that fit them, and the ways in which models write a pick."""

from __future__ import annotations

import inspect
import json
import keyword
from collections.abc import Callable
from typing import Any, Literal

from hypothesis import strategies as st

from openprogram.agentic_programming.decision.options import META_KEYS
from openprogram.agentic_programming.decision.reply import ARGUMENT_KEYS, CALL_KEYS, WRAPPERS
from openprogram.functions.schema import RUNTIME_PARAMETERS

Drawn = tuple[Any, st.SearchStrategy[Any]]
"""A field or an annotation, and the values that fit it."""

KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
RESERVED = {*CALL_KEYS, *ARGUMENT_KEYS, *WRAPPERS, "name"}
names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12) | st.sampled_from(
    ["ship order", "car", "car-2", "Car", 'say "hi"']
)
keys = st.text(max_size=7, min_size=1) | st.sampled_from(sorted(RESERVED))
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
LEAVES: list[Drawn] = [
    (str, st.text()),
    ("a description", st.text()),
    (int, st.integers()),
    (float, numbers),
    (bool, st.booleans()),
    (list, st.lists(values, max_size=3)),
    (dict, st.dictionaries(st.text(max_size=5), values, max_size=3)),
    ({"type": "int", "description": "how many"}, st.integers()),
    ({"options": ["a", 1, "1"]}, st.sampled_from(["a", 1, "1"])),
    (int | None, st.none() | st.integers()),
    (Literal["x", "y"], st.sampled_from(["x", "y"])),
]
ANNOTATIONS: list[Drawn] = [
    (int, st.integers()),
    (float, numbers),
    (str, st.text()),
    (bool, st.booleans()),
    (Any, values),
    (list[int], st.lists(st.integers(), max_size=4)),
    (dict[str, float], st.dictionaries(st.text(max_size=5), numbers, max_size=4)),
    (int | None, st.none() | st.integers()),
    (int | str, st.integers() | st.text()),
    (Literal["x", 2], st.sampled_from(["x", 2])),
]


@st.composite
def fields(draw: st.DrawFn, depth: int = 2) -> Drawn:
    """A field of a schema, nested up to ``depth`` levels."""
    kind = draw(st.sampled_from(["leaf", "leaf", "list", "items", "nested", "fields"] if depth else ["leaf"]))
    if kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    if kind in ("list", "items"):
        item, fitting = draw(fields(depth - 1))
        return ([item] if kind == "list" else {"items": item}), st.lists(fitting, max_size=3)
    inner, fitting = draw(objects(depth - 1))
    if kind == "fields" or META_KEYS.issuperset(inner):  # a dict of nothing but the keys of a meta-spec is one
        inner = {"fields": inner}
    return inner, fitting


@st.composite
def objects(draw: st.DrawFn, depth: int) -> Drawn:
    """Named fields."""
    drawn = draw(st.dictionaries(keys, fields(depth), min_size=1, max_size=3))
    return {key: field for key, (field, _) in drawn.items()}, st.fixed_dictionaries({key: fitting for key, (_, fitting) in drawn.items()})


@st.composite
def functions(draw: st.DrawFn) -> Drawn:
    """A function that returns its arguments, with any mix of required, optional, positional-only and keyword-only parameters."""
    identifiers = st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True).filter(
        lambda name: not keyword.iskeyword(name) and name not in {*RUNTIME_PARAMETERS, "self"}
    )
    drawn = draw(st.dictionaries(identifiers, st.tuples(st.sampled_from(ANNOTATIONS), st.booleans()), max_size=4))
    kinds = sorted(draw(st.lists(st.sampled_from(KINDS), min_size=len(drawn), max_size=len(drawn))))
    ordered = sorted(drawn.items(), key=lambda item: item[1][1])  # those with defaults come last
    parameters = [
        inspect.Parameter(name, kind, annotation=annotation, default=None if optional else inspect.Parameter.empty)
        for kind, (name, ((annotation, _), optional)) in zip(kinds, ordered, strict=True)
    ]
    required = {name: fitting for name, ((_, fitting), optional) in ordered if not optional}
    # Null for an optional parameter stands for its default.
    optional = {name: fitting.filter(lambda value: value is not None) for name, ((_, fitting), optional) in ordered if optional}
    return _returning(inspect.Signature(parameters)), st.fixed_dictionaries(required, optional=optional)


def _returning(signature: inspect.Signature) -> Callable[..., Any]:
    def option(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        return {name: value for name, value in bound.arguments.items() if value is not None or signature.parameters[name].default is not None}

    option.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess] - `inspect` reads it
    return option


@st.composite
def menus(draw: st.DrawFn) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """A menu of every kind of option, the name of one, and arguments that fit it."""
    menu: dict[str, Any] = {}
    fitting: dict[str, st.SearchStrategy[Any]] = {}
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        kind = draw(st.sampled_from(["value", "schema", "function"]))
        if kind == "value":
            menu[name], fitting[name] = {"value": name}, st.fixed_dictionaries({})
        elif kind == "schema":
            schema, fitting[name] = draw(objects(2))
            menu[name] = ("A schema.", schema)
        else:
            menu[name], fitting[name] = draw(functions())
    picked = draw(st.sampled_from(list(menu)))
    return menu, picked, draw(fitting[picked])


@st.composite
def objects_of(draw: st.DrawFn, name: str, arguments: dict[str, Any]) -> Any:
    """One pick as one of the JSON values that are read as it."""
    shapes = ["args", "text", "name", "wrapper", "function", "list"]
    shapes += [] if RESERVED & arguments.keys() else ["flat"]
    shapes += [] if arguments else ["alone", "null"]
    shape = draw(st.sampled_from(shapes))
    call_key, argument_key = draw(st.sampled_from(CALL_KEYS)), draw(st.sampled_from(ARGUMENT_KEYS))
    if shape == "name":
        return {"name": name, argument_key: arguments}
    if shape == "wrapper":
        return {draw(st.sampled_from(WRAPPERS)): {"name": name, argument_key: arguments}}
    if shape == "function":
        return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    if shape == "flat":
        return {call_key: name, **arguments}
    rest: dict[str, Any] = {"alone": {}, "null": {argument_key: None}, "text": {argument_key: json.dumps(arguments)}}.get(shape, {argument_key: arguments})
    return [{call_key: name, **rest}] if shape == "list" else {call_key: name, **rest}


@st.composite
def replies(draw: st.DrawFn, name: str, arguments: dict[str, Any]) -> str:
    """A whole reply that makes the pick: formatted in any way, fenced or not, within prose, behind reasoning, beside data and drafts that count for nothing."""
    pick = json.dumps(draw(objects_of(name, arguments)), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
    fence = draw(st.sampled_from(["", "```", "```json", "````", "~~~"]))
    if fence:
        pick = f"{fence}\n{pick}\n{fence.removesuffix('json')}"
    prose = st.text(st.characters(codec="utf-8", exclude_characters="{}[]<>"), max_size=20)
    draft = json.dumps({"call": "no such option at all", "args": {"x": 1}})
    before = draw(
        st.sampled_from(["", f"<think>{draft} hm</think>\n", f"{draft} hm </think>\n", f"For example {draft}.\n", 'The data is {"result": {"call": 1}}.\n'])
    )
    after = draw(st.sampled_from(["", f"\nI first thought of {draft}.", '\n(used: {"rows": [1, 2]})', "<|im_end|>"]))
    return f"{before}{draw(prose)}\n{pick}\n{draw(prose)}{after}"
