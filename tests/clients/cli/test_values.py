"""``name=value`` words become arguments of the declared types, or one error that names them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest
from openprogram_cli import values
from openprogram_cli.exits import USAGE, Stop

from openprogram.agentic_programming.function import agentic_function
from openprogram.functions.schema import convert_arguments
from openprogram.functions.words import read_words


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


class Model(pydantic.BaseModel):
    name: str


class Row(TypedDict):
    id: int


class Opaque:
    """A class pydantic has no schema for."""


def taking(annotation: Any) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        return x

    function.__annotations__["x"] = annotation
    return function


def given(function: Callable[..., Any], *words: str) -> dict[str, Any]:
    return values.arguments_for(function, values.parse_words(words), command="openprogram run f")


CONVERTED: list[tuple[Any, str, Any]] = [
    (str, "3", "3"),
    (str, "null", "null"),
    (str, '"quoted"', '"quoted"'),
    (str, " spaces \n kept ", " spaces \n kept "),
    (str, "", ""),
    (str, "a=b=c", "a=b=c"),
    (str, "@@handle", "@handle"),
    (str | None, "null", "null"),
    (str | None, "3", "3"),
    (Annotated[str, pydantic.Field(min_length=1)], "12", "12"),
    (int, "3", 3),
    (int, "-3", -3),
    (int, "12345678901234567890123", 12345678901234567890123),
    (int | None, "null", None),
    (int | None, "4", 4),
    (float, "3", 3.0),
    (float, "-1e3", -1000.0),
    (bool, "true", True),
    (bool, "no", False),
    (bool, "1", True),
    (list[int], "[1, 2]", [1, 2]),
    (list, '["a"]', ["a"]),
    (dict, '{"a": [null]}', {"a": [None]}),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (set[str], '["a", "a"]', {"a"}),
    (int | str, "3", 3),
    (int | str, "three", "three"),
    (list[str] | str, '["a"]', ["a"]),
    (list[str] | str, "a", "a"),
    (Literal["a", "1"], "1", "1"),
    (Literal[1, "b"], "1", 1),
    (Colour, "red", Colour.RED),
    (Size, "1", Size.SMALL),
    (Path, "123", Path("123")),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
    (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
    (bytes, "raw", b"raw"),
    (Point, '{"x": "2"}', Point(2, 0.5)),
    (Model, '{"name": "n"}', Model(name="n")),
    (Row, '{"id": 1}', {"id": 1}),
    (Any, "3", 3),
    (Any, "three", "three"),
    (Any, "[1", "[1"),
    (object, "true", True),
    ("int", "3", 3),
    ("NoSuchType", "3", 3),
]


@pytest.mark.parametrize(("annotation", "text", "expected"), CONVERTED, ids=[f"{row[0]}-{row[1]}" for row in CONVERTED])
def test_a_value_is_read_by_the_declared_type(annotation: Any, text: str, expected: Any) -> None:
    """Text stays exactly as written where text is declared; elsewhere the value has the declared type."""
    value = given(taking(annotation), f"x={text}")["x"]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(("annotation", "text", "expected"), CONVERTED, ids=[f"{row[0]}-{row[1]}" for row in CONVERTED])
def test_what_goes_to_a_worker_comes_out_as_the_same_value(annotation: Any, text: str, expected: Any) -> None:
    """The JSON that stands for a word, sent over a wire and converted there, is the value that the word means here."""
    function = taking(annotation)
    sent = read_words(function, values.parse_words([f"x={text}"]), command="")["x"].as_json
    value = convert_arguments(function, json.loads(json.dumps({"x": sent})), hidden=True)["x"]
    assert value == expected
    assert type(value) is type(expected)


REFUSED: list[tuple[Any, str, str]] = [
    (int, "abc", "int"),
    (int, "3.5", "int"),
    (int, "", "int"),
    (bool, "maybe", "bool"),
    (list[int], "1,2", "list[int]"),
    (list[int], '[1, "x"]', "[1]"),
    (dict, "[]", "dict"),
    (Colour, "green", "Colour"),
    (Point, '{"y": 1}', ".x"),
    (Literal["a"], "b", "Literal"),
    (datetime.date, "yesterday", "date"),
    (Opaque, "1", "Opaque"),
]


@pytest.mark.parametrize(("annotation", "text", "named"), REFUSED, ids=[f"{row[0]}-{row[1]}" for row in REFUSED])
def test_an_ill_typed_value_names_parameter_value_and_type(annotation: Any, text: str, named: str) -> None:
    """The error is a usage error of one line with the parameter, the value and the expected type or the place in it."""
    with pytest.raises(Stop) as caught:
        given(taking(annotation), f"x={text}")
    assert caught.value.code == USAGE
    assert "argument x" in caught.value.message
    assert named in caught.value.message
    assert "\n" not in caught.value.message
    if annotation is not Opaque:
        assert repr(text) in caught.value.message


def sample(a: int, /, b: str, *rest: int, c: float = 1.0, runtime: Any = None) -> None:
    """Parameters of every kind."""


WRONG = [
    ((), "missing arguments: a (int), b (str)"),
    (("a=1",), "missing argument: b (str)"),
    (("a=1", "b=x", "bb=2"), "did you mean b?"),
    (("a=1", "b=x", "rest=[1]"), "no argument 'rest'"),
    (("a=1", "b=x", "runtime=1"), "filled in by OpenProgram"),
    (("a=1", "a=2", "b=x"), "given twice"),
    (("a", "b=x"), "'a' is no name=value"),
    (("=1",), "is no name=value"),
    (("b=@missing.txt",), "cannot read 'missing.txt'"),
    (("b=@",), "cannot read ''"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[row[1] for row in WRONG])
def test_what_cannot_be_bound_is_a_usage_error(words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, unknown, doubled and malformed arguments say what is wrong in one or two lines."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Stop) as caught:
        given(sample, *words)
    assert caught.value.code == USAGE
    assert message in caught.value.message
    assert caught.value.message.count("\n") <= 1


def test_positional_only_and_optional_parameters_reach_the_call() -> None:
    """A positional-only parameter is passed by position, one that was left out not at all."""
    assert values.bind(sample, given(sample, "b=x", "a=1")) == ([1], {"b": "x"})


def test_further_names_go_to_keyword_arguments() -> None:
    """A function that takes ``**kwargs`` accepts any name, read as JSON or text."""

    def open_ended(**anything: Any) -> None: ...

    assert given(open_ended, "x=1", "y=one") == {"x": 1, "y": "one"}


def test_options_of_the_decorator_are_enforced_by_type() -> None:
    """A value outside ``options`` is refused with the allowed ones; 1 is not "1"."""

    @agentic_function(input={"x": {"options": [1, "b"]}})
    def pick(x: Any) -> Any:
        return x

    assert given(pick, "x=1") == {"x": 1}
    assert given(pick, "x=b") == {"x": "b"}
    with pytest.raises(Stop, match="one of: 1, b"):
        given(pick, 'x="1"')


def test_a_file_is_read_as_text_exactly(tmp_path: Path) -> None:
    """``name=@FILE`` gives the file's text without its byte order mark; a number may be followed by a newline."""
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbf line\r\n")
    (tmp_path / "n.txt").write_text("42\n")
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    assert given(taking(str), f"x=@{tmp_path / 't.txt'}") == {"x": " line\r\n"}
    assert given(taking(int), f"x=@{tmp_path / 'n.txt'}") == {"x": 42}
    with pytest.raises(Stop, match="not UTF-8"):
        given(taking(str), f"x=@{tmp_path / 'bad.txt'}")
