"""Replies that are long, deep or hostile: reading stays linear and raises nothing but a problem."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from openprogram.agentic_programming.decision.check import ParseProblem, pick_from
from openprogram.agentic_programming.decision.options import build_menu
from openprogram.agentic_programming.decision.reply import read_reply


def get(id: int) -> None: ...


def anything(x: Any) -> None: ...


MENU = build_menu({"get": get, "anything": anything, "skip": "skip"})
PICK = '{"call": "skip", "args": {}}'
# Each took over ten seconds, or raised RecursionError, wherever a parser starts anew at each bracket, quote or tag.
HOSTILE: dict[str, tuple[str, str]] = {
    "f22 open objects": ("{" * 200_000, "invalid_json"),
    "a23 open lists": ("[" * 200_000, "invalid_json"),
    "a23 open keys": ('{"a":' * 100_000, "invalid_json"),
    "a23 digits": ('{"call": "get", "args": {"id": ' + "9" * 5000 + "}}", "invalid_json"),
    "open calls": ('{"call":' * 40_000, "invalid_json"),
    "closed calls": ('{"call":' * 40_000 + "1" + "}" * 40_000, "invalid_json"),
    "a thousand deep": ('{"call": "anything", "args": {"x": ' + "[" * 1000 + "]" * 1000 + "}}", "invalid_json"),
    "deep in a text": ('{"call": "anything", "args": "' + "[" * 1000 + "]" * 1000 + '"}', "anything"),
    "unclosed lists of objects": ("[{" * 60_000 + "]" * 60_000, "invalid_json"),
    "escaped quotes": ("{" + '"\\' * 200_000, "invalid_json"),
    "escaped quotes on lines": ("{\n" + '"\\' * 200_000, "invalid_json"),
    "a quote a line": ('{"\\\n' * 100_000, "invalid_json"),
    "open reasoning": ("<think>" * 100_000, "incomplete"),
    "reasoning": ("<think></think>" * 40_000 + PICK, "skip"),
    "prose": ('lorem "ipsum {x} dolor [1] ' * 40_000 + PICK, "skip"),
    "closing brackets": (PICK + "}" * 500_000, "skip"),
    "wrong picks": ('{"call":"fly"}' * 40_000, "unknown_call"),
    "wrong picks in single quotes": ("{'call':'fly'}" * 40_000, "unknown_call"),
    "prose in brackets": ("[" * 190 + '{"a":1},' * 50_000 + "bad" + "]" * 190, "invalid_json"),
    "what the repairer is slow at": ("{call:" + "(" * 200_000 + "}", "invalid_json"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_reading_is_linear(name: str) -> None:
    """Up to a megabyte that would break a recursive or quadratic reader is read within seconds, into a pick or a problem and never another exception."""
    reply, expected = HOSTILE[name]
    started = time.perf_counter()
    try:
        found = pick_from(reply, MENU)
        outcome = found.option.name
    except ParseProblem as problem:
        outcome = problem.kind
        assert len(str(problem)) < 1000
    assert outcome == expected
    assert time.perf_counter() - started < 8  # ten times what the slowest takes


@pytest.mark.parametrize("unit", ["{", '{"call":', '{"a', "{'call':'fly'}", '{"call":"fly"}', "<think>x</think>", '"\\', "]"])
def test_twice_the_text_costs_twice_the_steps(unit: str) -> None:
    """Steps are counted, not seconds: function calls and lines grow with the length, not with its square."""
    assert steps(unit * 1600) < 3 * steps(unit * 800)


PROSE = 'Well, "let me see" {as it were}, it isn\'t [1] so easy. '
LONG: dict[str, Callable[[int], str]] = {
    "open braces": lambda size: "{" * size,
    "open objects": lambda size: '{"call": "skip", ' * (size // 17),
    "open objects on lines": lambda size: '{"a": {"b": 1},\n' * (size // 16),
    "closed braces": lambda size: "{" * (size // 2) + "}" * (size // 2),
    "picks of nothing": lambda size: '{"call": "fly"} ' * (size // 16),
    "prose with a pick at its end": lambda size: PROSE * (size // len(PROSE)) + PICK,
}


@pytest.mark.parametrize("name", LONG)
def test_steps_grow_with_the_length(name: str) -> None:
    """From 25 to 50 to 100 kB each step is twice the one before, within a tenth."""
    few, more, most = (steps(LONG[name](size)) for size in (25_000, 50_000, 100_000))
    assert more < 2.2 * few
    assert most < 2.2 * more


def steps(reply: str) -> int:
    """Lines run by the reader itself."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        if "decision" not in frame.f_code.co_filename:
            return None
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read_reply(reply)
    finally:
        sys.settrace(before)
    return count
