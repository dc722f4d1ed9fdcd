"""Results and failures as the text that a model is sent."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from typing import Any

import pytest
from pydantic import BaseModel

from openprogram.functions.options import ToolOptions
from openprogram.functions.results import NOTHING, NotJSON, capped, error_text, text_of


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Box(BaseModel):
    at: Point


RESULTS: list[tuple[Any, str]] = [
    (None, NOTHING),
    ("", NOTHING),
    (" \n", NOTHING),
    ([], "[]"),
    ({}, "{}"),
    (0, "0"),
    (False, "false"),
    ("text", "text"),
    ({"ä": "☃"}, '{"ä":"☃"}'),
    (Point(1), '{"x":1}'),
    (Box(at=Point(2)), '{"at":{"x":2}}'),
    ([dt.date(2024, 2, 29), Color.RED], '["2024-02-29","red"]'),
    ({1}, "[1]"),
    (float("nan"), "NaN"),
    (10**30, str(10**30)),
    (b"\xff", '"_w=="'),
    (["\ud800"], '["\\ud800"]'),
]


@pytest.mark.parametrize(("value", "text"), RESULTS)
def test_a_result_is_a_text_that_is_never_empty(value: Any, text: str) -> None:
    """c12: nothing is said in words, everything else is JSON."""
    assert text_of(value) == text


@pytest.mark.parametrize("value", [object(), [object()], {"x": lambda: 1}, print])
def test_what_json_cannot_hold_is_told_by_its_type(value: Any) -> None:
    """The error becomes the model's result."""
    with pytest.raises(NotJSON, match=f"a {type(value).__name__}, which JSON cannot hold"):
        text_of(value)


def test_a_list_that_holds_itself_is_told() -> None:
    """Neither a hang nor a crash."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotJSON):
        text_of(value)


@pytest.mark.parametrize(
    ("length", "options", "head", "tail"),
    [
        (30_000, ToolOptions(), 30_000, 0),
        (30_001, ToolOptions(), 21_000, 9_000),
        (10, ToolOptions(max_result_chars=10), 10, 0),
        (11, ToolOptions(max_result_chars=10), 7, 3),
        (100, ToolOptions(max_result_chars=10, head_ratio=0), 0, 10),
        (100, ToolOptions(max_result_chars=10, head_ratio=1), 10, 0),
        (100, ToolOptions(max_result_chars=1, head_ratio=0.5), 0, 1),
    ],
)
def test_a_long_result_keeps_head_and_tail(length: int, options: ToolOptions, head: int, tail: int) -> None:
    """c11: exactly at the cap nothing is cut; over it, head and tail stand around a mark with the number of characters between."""
    text = "".join(chr(ord("a") + number % 26) for number in range(length))
    short = capped(text, options)
    if length == head:
        assert short == text
        return
    assert short.startswith(text[:head])
    assert short.endswith(text[length - tail :] if tail else "…\n")
    assert f"[{length - head - tail} characters left out]" in short
    assert len(short) < head + tail + 60


def test_no_character_is_cut_in_two() -> None:
    """c11: what is left of a text of emoji is emoji."""
    short = capped("😀" * 100_000, ToolOptions(max_result_chars=101))
    assert set(short.replace("😀", "")) <= set("\n… [9,characters left out]0123456789")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(), "ValueError"),
        (ValueError("  "), "ValueError"),
        (ValueError("what"), "ValueError: what"),
        (Unspeakable(), "Unspeakable"),
        (ExceptionGroup("g", [ValueError("a"), KeyError("b")]), "ExceptionGroup: g (2 sub-exceptions)\n- ValueError: a\n- KeyError: 'b'"),
    ],
)
def test_an_error_is_told_with_its_type(error: BaseException, text: str) -> None:
    """c28: never an empty text."""
    assert error_text(error) == text


def test_a_huge_error_is_cut() -> None:
    """c28: ten megabytes of message do not fill the context."""
    assert len(error_text(Exception("x" * 10**7))) < 2100
