"""Values to JSON and back."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import inspect
import json
import sqlite3
import sys
import threading
import types
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openprogram.context.messages import Message, text_message
from openprogram.store.values import MAX_DEPTH, MAX_NATIVE_DEPTH, decode, encode, redact


class Colour(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    left: int
    right: int


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    tags: tuple[str, ...] = ()
    api_key: str = ""
    hidden: str = dataclasses.field(default="hidden", repr=False)


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str


class Struct(msgspec.Struct):
    a: Any


class Text(str):
    __slots__ = ()


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Endless:
    def __repr__(self) -> str:
        return repr(self)


class Hostile(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class Cursed(metaclass=Hostile):
    pass


def strict(text: str) -> Any:
    """The parsed text, by a parser that takes no NaN, and by SQLite."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    connection = sqlite3.connect(":memory:")
    try:
        assert connection.execute("SELECT json_valid(?)", (text,)).fetchone() == (1,)
    finally:
        connection.close()
    return json.loads(text, parse_constant=refuse)


EXACT: list[Any] = [
    None,
    True,
    0,
    -1.5,
    -0.0,
    1e308,
    "",
    "a\0b",
    "a\u2028b\x85c\fd\r\ne",
    "\ud800",
    "\ud83d\ude00",
    "😀\\ud800\ud800",
    2**63,
    2**64,
    -(10**30),
    10**5000,
    -(10**5000),
    float("inf"),
    float("-inf"),
    [1, [2, {"a": None}]],
    {"": {}},
    {"\ud800": "\udfff"},
    {1: "a", "1": "b", None: "d", (1, 2): "e", 2.5: "f"},
    {"$type": "datetime.datetime", "value": "zzz"},
    {"$type": "pathlib.Path", "value": "/tmp/x"},
    {"$type": "dict", "value": [["a", 1]]},
    {"$type": {"$type": 1}},
    {"__type__": "datetime", "value": "zzz"},
    {"__class__": "Path"},
    {"$ref": "#/x"},
    {"_type": "x"},
    (),
    (1, (2, [3])),
    {1, 2},
    frozenset({"a", (1, 2)}),
    collections.deque([1, 2]),
    b"\x00\xff",
    bytearray(b"x"),
    1 + 2j,
    complex("nan").imag,
    range(1, 9, 2),
    range(10**30),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    datetime.datetime(1, 1, 1),
    datetime.date(2024, 2, 29),
    datetime.time(1, 2, 3),
    datetime.timedelta(days=-1, microseconds=1),
    uuid.UUID(int=5),
    decimal.Decimal("1.10"),
    fractions.Fraction(1, 3),
    Path("/tmp/x"),
    Path("/tmp/\udcff"),
    PurePosixPath("a/b"),
    PureWindowsPath("c:\\x"),
]


@pytest.mark.parametrize("value", EXACT, ids=lambda value: str(type(value).__name__))
def test_f10_f16_exact_values(value: Any) -> None:
    """f10, f16: JSON's own types, any string, any integer, dicts with any marker or key, and the simple standard types come back equal and of the same type."""
    text = encode(value)
    strict(text)
    again = decode(text)
    assert again == value
    assert type(again) is type(value)
    assert isinstance(value, int | set | frozenset) or repr(again) == repr(value)


READABLE: list[tuple[Any, Any]] = [
    (Colour.RED, {"name": "RED", "value": "r"}),
    (Level.HIGH, {"name": "HIGH", "value": 3}),
    (Pair(1, 2), {"value": {"left": 1, "right": 2}}),
    (Point(1, ("a",), "sk-1"), {"value": {"x": 1, "tags": ("a",), "api_key": "[redacted]"}}),
    (Person.model_validate({"name": "Ann", "token": "t", "age": 3}), {"value": {"name": "Ann", "token": "[redacted]", "age": 3}}),
    (Struct({1}), {"value": {"a": {1}}}),
    (ValueError("bad"), {"$type": "ValueError", "value": "bad"}),
    (int, {"$type": "type", "value": "int"}),
    (len, {"$type": "function", "value": "builtins.len"}),
    (encode, {"$type": "function", "value": "openprogram.store.values.encode"}),
    (..., {"$type": "ellipsis", "value": "Ellipsis"}),
    (types.SimpleNamespace(a=1), {"$type": "types.SimpleNamespace", "value": "namespace(a=1)"}),
    ({Point(1)}, {"$type": "set"}),
]


@pytest.mark.parametrize(("value", "expected"), READABLE, ids=lambda value: str(type(value).__name__))
def test_other_objects_are_readable(value: Any, expected: dict[str, Any]) -> None:
    """Any other object becomes a dict that names its type and shows its fields or repr; secrets by name and fields without repr are not in it."""
    form = decode(encode(value))
    strict(encode(value))
    assert form | expected == form
    assert "sk-1" not in encode(value)
    assert "hidden" not in encode(value)
    assert decode(encode(form)) == form


PLAIN: list[tuple[Any, Any]] = [
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (collections.defaultdict(list, {1: 2}), {1: 2}),
    (Text("x"), "x"),
    ([Text("x")], ["x"]),
    (text_message("user", "hi"), {"role": "user", "blocks": [{"type": "text", "text": "hi"}]}),
    (Message(role="user", blocks=({"type": "x", "v": (1,)},)), {"role": "user", "blocks": [{"type": "x", "v": (1,)}]}),
]


@pytest.mark.parametrize(("value", "plain"), PLAIN)
def test_f15_subclasses_of_json_types_are_plain(value: Any, plain: Any) -> None:
    """f15: a subclass of dict or str is stored as its plain value, a message as a dict; the live value is untouched."""
    before = repr(value)
    again = decode(encode(value))
    assert again == plain
    assert type(again) is type(plain)
    assert repr(value) == before


def test_f22_nan_is_strict_json() -> None:
    """f22: NaN and the infinities have one form that strict parsers accept, and come back as floats, at any depth."""
    text = encode({"score": float("nan"), "max": [float("inf")]})
    assert strict(text) == {"score": {"$type": "float", "value": "nan"}, "max": [{"$type": "float", "value": "inf"}]}
    again = decode(text)
    assert again["score"] != again["score"]
    assert again["max"] == [float("inf")]


ODD = {
    "repr": (Broken(), "unprintable"),
    "recursion": (Endless(), "unprintable"),
    "inside": ([Broken(), 1], "unprintable"),
    "metaclass": (Cursed(), "cannot be printed"),
    "class": (Cursed, "unprintable"),
    "lock": (threading.Lock(), "lock"),
}


@pytest.mark.parametrize(("value", "hint"), ODD.values(), ids=ODD)
def test_odd_objects_never_raise(value: Any, hint: str) -> None:
    """An object whose own code fails is stored as a form that says so."""
    text = encode(value)
    strict(text)
    assert hint in text


def cycle() -> Any:
    items: list[Any] = [1]
    items.append({"self": items})
    return items


def deep(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def shared() -> Any:
    value: Any = [1]
    for _ in range(25):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (cycle(), "contains itself"),
        (deep(100_000, lambda value: [value]), "nested deeper"),
        (deep(5_000, lambda value: (value,)), "nested deeper"),
        (deep(5_000, lambda value: {1: value}), "nested deeper"),
        (deep(5_000, Struct), "nested deeper"),
        (shared(), "more than"),
    ],
    ids=["cycle", "list", "tuple", "dict", "struct", "shared"],
)
def test_cycles_depth_and_size_are_bounded(value: Any, hint: str) -> None:
    """A value that contains itself, is nested without end or grows without end is cut with a word about it."""
    text = encode(value)
    assert hint in text
    decode(text)


def test_depth_that_fits_is_exact() -> None:
    """Up to the documented number of levels nothing is cut, and what is written SQLite can read."""
    wraps: list[tuple[int, Callable[[Any], Any]]] = [
        (MAX_NATIVE_DEPTH, lambda value: [value]),
        (MAX_DEPTH, lambda value: (value,)),
        (MAX_DEPTH, lambda value: {1: value}),
    ]
    for levels, wrap in wraps:
        value = deep(levels, wrap)
        text = encode(value)
        strict(text)
        assert decode(text) == value


def test_little_stack_left_is_no_error() -> None:
    """A caller deep in its own recursion can still record."""

    def down(levels: int) -> str:
        if levels:
            return down(levels - 1)
        return encode({"a": [1, (2, {3: Broken()})]})

    strict(down(sys.getrecursionlimit() - len(inspect.stack(0)) - 12))


def test_no_name_in_data_is_looked_up() -> None:
    """f16: text that claims to be a form of some class is read as a dict, and what is malformed stays readable."""
    for text in ('{"$type": "os.system", "value": "id"}', '{"$type": "tuple"}', '{"$type": "uuid.UUID", "value": "no"}', '{"$type": ["x"], "value": 1}'):
        assert decode(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", "{", "nope", b"\xff"])
def test_damaged_text_is_a_value_error(text: str | bytes) -> None:
    """Text that is no JSON is a ValueError, never a wrong value."""
    with pytest.raises(ValueError, match=r".+"):
        decode(text)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec=None)) | st.binary() | st.just("$type")
HASHABLE = st.recursive(LEAVES, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
ANY = st.recursive(
    HASHABLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(HASHABLE, inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner),
    max_leaves=20,
)


@given(ANY)
def test_built_in_values_come_back(value: Any) -> None:
    """Whatever is made of the built-in types comes back equal, through strict JSON."""
    text = encode(value)
    json.loads(text)
    assert decode(text) == value


SECRETS = [
    "api_key",
    "API_KEY",
    "apiKey",
    "OPENAI_API_KEY",
    "token",
    "access_token",
    "authToken",
    "password",
    "db_password",
    "client_secret",
    "Authorization",
    "x-api-key",
    "private_key",
    "auth",
    "aws_secret_access_key",
    "credentials",
    "session_cookie",
    "passwd",
    "github-token",
]
HARMLESS = [
    "",
    "é",
    *[
        "max_tokens",
        "tokens",
        "token_count",
        "next_page_token",
        "key",
        "keyboard",
        "primary_key",
        "author",
        "tokenizer",
        "message",
        "passenger",
    ],
]


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_redacted_by_name(name: str) -> None:
    """A value under a secret's name is not kept, at the top or inside; the caller's own data is untouched."""
    given_values = {name: "sk-123", "config": {"headers": [{name: "sk-123"}], "n": (1, {name: 5})}, "text": "sk"}
    assert redact(given_values) == {name: "[redacted]", "config": {"headers": [{name: "[redacted]"}], "n": (1, {name: "[redacted]"})}, "text": "sk"}
    assert given_values[name] == "sk-123"


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_are_kept(name: str) -> None:
    """A name that only looks like a secret's is kept, and so is a value that cannot be one."""
    value = {"a": [1]}
    assert redact({name: value})[name] is value
    assert redact({"api_key": None, "token": "", "password": True}) == {"api_key": None, "token": "", "password": True}
