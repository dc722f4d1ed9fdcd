"""Whatever a model writes and whatever an author offers: a result or an error of the promised kind, and never anything else."""

from __future__ import annotations

import enum
import functools
import itertools
import json
import typing
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openprogram import DecisionError, decision
from openprogram.agentic_programming.decision.check import ParseProblem, pick_from
from openprogram.agentic_programming.decision.menu import schema_of
from openprogram.agentic_programming.decision.options import META_KEYS, build_menu
from openprogram.agentic_programming.decision.scanning import scan
from tests.openprogram.decision.menus import menus, replies

KINDS = typing.get_args(
    typing.Literal["no_action", "unknown_call", "bad_args", "missing_required", "type_mismatch", "enum_violation", "invalid_json", "ambiguous", "incomplete"]
)
MARKS = ["{", "}", "[", "]", '"', "'", ":", ",", "\\", "\n", "```", "```json", "<think>", "</think>", "“", "”", "//", "null", "True", "NaN", "1e999"]
WORDS = ['"call"', '"args"', '"name"', "'call'", "call", '"tool_call"', '{"call": "skip"}', '{"call": "save", "args": {"path": "a"}}', "skip", "()"]
PIECES = [*MARKS, *WORDS, "\x00", " ", "\\ud83d"]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=30).map("".join)


def save(path: str, n: int = 0) -> None: ...


MENU = build_menu({"save": save, "skip": "skip", "plan": ("Plan.", {"steps": [{"a": str}]})})
quick = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def check_reply(text: str) -> None:
    """Read it in every way there is."""
    action = decision.extract_action(text)
    assert action is None or (set(action) == {"call", "args"} and isinstance(action["call"], str))
    try:
        pick = pick_from(text, MENU)
    except ParseProblem as problem:
        assert problem.kind in KINDS
        assert len(str(problem)) < 2000
        str(problem).encode()
    else:
        json.dumps(pick.arguments, allow_nan=False).encode()
        assert pick.option.name in MENU.options


@quick
@given(texts)
def test_any_text_is_a_pick_or_a_problem(text: str) -> None:
    """Brackets, quotes, fences, tags and half-written picks in any order."""
    check_reply(text)


@settings(quick, max_examples=60)
@given(st.data())
def test_a_damaged_pick_is_a_pick_or_a_problem(data: st.DataObject) -> None:
    """A valid reply with a piece cut out or another put in."""
    menu, name, arguments = data.draw(menus())
    reply = data.draw(replies(name, arguments))
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(reply)), st.integers(0, len(reply)))))
    check_reply(reply[:start] + data.draw(st.sampled_from(PIECES)) + reply[end:])
    try:
        assert pick_from(reply[:start], build_menu(menu)).option.name in build_menu(menu).options
    except ParseProblem as problem:
        assert problem.kind in KINDS


@quick
@given(texts)
def test_outermost_spans_lie_apart(text: str) -> None:
    """So that whatever is parsed of a reply is no longer than the reply."""
    for seen in (scan(text), scan(text, strings_end_with_line=True)):
        spans = [seen.closed[number] for number in seen.outermost()]
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert all(any(start <= inner[0] and inner[1] <= end for start, end in spans) for inner in seen.closed)


@pytest.mark.soak
@settings(quick, max_examples=50_000)
@given(texts)
def test_fifty_thousand_texts(text: str) -> None:
    """The same for many more."""
    check_reply(text)


class Color(enum.Enum):
    RED = "red"


class Odd:
    """Equal to nothing, of no hash, and not even true or false."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    def __bool__(self) -> bool:
        raise RuntimeError("asked for truth")


def looped() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    fields |= {"a": fields, "b": [fields]}
    return fields


def deep(levels: int) -> Any:
    field: Any = str
    for _ in range(levels):
        field = [field]
    return field


BASIC: list[Any] = [str, int, float, bool, list, dict, bytes, set, object, type, Any, Color, Odd, list[int], dict[str, int], int | None]
TYPES: list[Any] = [*BASIC, typing.Literal["a"], Callable[[], int], typing.TypeVar("T"), "NoSuchType", decision.value(Odd())]
VALUES: list[Any] = [None, ..., NotImplemented, Color.RED, Odd(), float("nan"), 1 + 2j, range(3), frozenset("a"), memoryview(b""), typing, b"x", 10**400, -1]
CALLABLES: list[Any] = [save, functools.partial(save), functools.partial(save, "a"), lambda: 1, max, print, Odd().__eq__]
anything: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([*TYPES, *VALUES, *CALLABLES, looped(), deep(500), "", "\ud800"]) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(sorted(META_KEYS)) | st.text(max_size=3) | st.sampled_from([None, 1, True, Color.RED]), inner, max_size=3)
    ),
    max_leaves=8,
)
handlers = anything | st.tuples(st.text(max_size=3), st.dictionaries(st.text(max_size=3, min_size=1), anything, max_size=3)) | st.tuples(anything, st.just("d"))
offers: st.SearchStrategy[Any] = anything | st.dictionaries(st.text(max_size=3, min_size=1), handlers, max_size=3) | st.lists(handlers, max_size=3)


def check_options(options: Any) -> None:
    """A menu that can be shown and sent, or an error that is the author's."""
    try:
        menu = build_menu(options)
    except (ValueError, TypeError) as error:
        assert not isinstance(error, DecisionError)
        assert 10 < len(str(error)) < 3000
        return
    assert "Call: " in decision.render_options(menu)
    schema = schema_of(menu)
    json.dumps(schema, allow_nan=False)
    validator: Any = jsonschema.Draft202012Validator
    validator.check_schema(schema)


@settings(quick, max_examples=400)
@given(offers)
def test_any_options_are_a_menu_or_the_authors_error(options: Any) -> None:
    """Classes, objects that cannot be compared, schemas that hold themselves: a ValueError or TypeError with words, before anything is asked."""
    check_options(options)


@pytest.mark.soak
@settings(quick, max_examples=20_000)
@given(offers)
def test_twenty_thousand_options(options: Any) -> None:
    """The same for many more."""
    check_options(options)


@pytest.mark.parametrize("make", [looped, lambda: {"x": deep(500)}, lambda: {"x": {"fields": looped()}}, lambda: {"x": {"items": deep(100)}}])
def test_a_schema_without_end_is_refused(make: Callable[[], Any]) -> None:
    """One that holds itself, or is deeper than any model would fill, is named at once."""
    with pytest.raises(ValueError, match=r"'a'.*levels deep"):
        build_menu({"a": ("d", make())})
