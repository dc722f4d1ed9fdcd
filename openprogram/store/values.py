"""Any Python value as strict JSON, and back.

What JSON holds exactly (text, numbers, true, false, null, lists, dicts with text keys) is stored as itself and takes a fast path. Everything else has one
form,

    {"$type": "pathlib.Path", "value": "/tmp/x"}

and a dict that holds the key ``$type`` itself, or keys that are no text, is ``{"$type": "dict", "value": [[key, value], …]}``, so that no data of a user is
ever taken for a form. ``NaN`` and the infinities are ``{"$type": "float", "value": "nan" | "inf" | "-inf"}``.

Reading gives back the exact value for JSON's own types and the simple standard ones (`_RESTORE`); any other form stays the readable dict. No class is ever
looked up or imported by a name found in data. Encoding never raises: an object whose ``__repr__`` fails, a cycle or endless nesting is stored as a form that
says so.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import enum
import itertools
import math
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast

import msgspec

from openprogram.context.messages import Message
from openprogram.store.redaction import REDACTED, hidden, redact

__all__ = ["MARK", "decode", "encode", "redact", "snapshot"]

MARK = "$type"

# What JSON holds as it is. SQLite reads up to 1000 levels, and Python's stack is 1000 frames by default, some of which the caller needs.
MAX_NATIVE_DEPTH = 200
# A form takes up to three levels of JSON and six frames.
MAX_DEPTH = 100
# What is reachable by many paths grows exponentially when written out; beyond this many containers the rest is cut.
MAX_CONTAINERS = 1_000_000
MAX_REPR = 10_000
# Longer integers are written in hexadecimal, which has no limit of digits.
_MAX_BITS = 2000

_SCALARS: frozenset[type] = frozenset({str, int, bool, type(None)})
_TEXT: frozenset[type] = frozenset({str})


def encode(value: Any) -> str:
    """``value`` as strict JSON text, valid UTF-8. Never raises; never keeps a reference to ``value``."""
    # Lone surrogates, long integers, a dict that another thread changes meanwhile: the forms below hold them all.
    with contextlib.suppress(Exception):
        if _is_native(value, 0, itertools.count()):
            return msgspec.json.encode(value).decode()
    # The caller may have left too little stack for the usual depth.
    for depth in (MAX_DEPTH, 10):
        with contextlib.suppress(Exception):
            return msgspec.json.encode(_Forms(depth).of(value)).decode()
    return msgspec.json.encode(_cut("could not be stored")).decode()


def decode(text: str | bytes) -> Any:
    """The value that `encode` was given, as far as the module's rules restore it. Raises ValueError for text that is no JSON."""
    value = msgspec.json.decode(text)
    marked = MARK in text if isinstance(text, str) else MARK.encode() in text
    return _restored(value) if marked else value


def snapshot(value: Any) -> Any:
    """The value as it will read back: later changes to the original do not reach it."""
    return decode(encode(value))


def _is_native(value: Any, depth: int, containers: Iterator[int]) -> bool:
    kind = cast("type[Any]", type(value))
    if kind in _SCALARS:
        return True
    if kind is float:
        return math.isfinite(value)
    if depth > MAX_NATIVE_DEPTH or next(containers) > MAX_CONTAINERS:
        return False
    items = _items_of(kind, value)
    if items is None:
        return False
    if set(map(type, items)) <= _SCALARS:
        return True
    return all(_is_native(item, depth + 1, containers) for item in items if type(item) not in _SCALARS)


def _items_of(kind: type, value: Any) -> Iterable[Any] | None:
    """The items of a container that msgspec writes as the same JSON that a form would be; None for any other type."""
    if kind is dict:
        return value.values() if set(map(type, value)) <= _TEXT and MARK not in value else None
    if kind is list:
        return value
    if kind is Message and type(value.role) is str:
        return value.blocks
    return None


def _typed(name: str, value: Any) -> dict[str, Any]:
    return {MARK: name, "value": value}


def _cut(why: str) -> dict[str, Any]:
    return _typed("cut", why)


def _string(value: str) -> Any:
    # JSON's \ud83d\ude00 is one character, so two lone surrogates side by side would come back as another string.
    return value if _is_utf8(value) else _typed("str", value.encode("unicode_escape").decode("ascii"))


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _integer(value: int) -> Any:
    return value if value.bit_length() <= _MAX_BITS else _typed("int", hex(value))


def _float(value: float) -> Any:
    return value if math.isfinite(value) else _typed("float", repr(value))


def _name_of(kind: type) -> str:
    module, name = str(kind.__module__), str(kind.__qualname__)
    return name if module == "builtins" else f"{module}.{name}"


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode("ascii")


# Exact types whose value is one string or a few numbers. Keyed by name: their modules need not be loaded to find out that a value is none of them.
_ATOMS: dict[str, Callable[[Any], Any]] = {
    "bytes": _base64,
    "bytearray": _base64,
    "complex": str,
    "range": lambda value: [_integer(value.start), _integer(value.stop), _integer(value.step)],
    "datetime.datetime": datetime.datetime.isoformat,
    "datetime.date": datetime.date.isoformat,
    "datetime.time": datetime.time.isoformat,
    "datetime.timedelta": lambda value: [value.days, value.seconds, value.microseconds],
    "uuid.UUID": str,
    "decimal.Decimal": str,
    "fractions.Fraction": str,
    "pathlib.Path": lambda value: _string(str(value)),
    "pathlib.PurePosixPath": lambda value: _string(str(value)),
    "pathlib.PureWindowsPath": lambda value: _string(str(value)),
}
_PATHS = {"PosixPath", "WindowsPath"}
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_SETS = {"set", "frozenset"}
_SEQUENCES = {"tuple", "collections.deque", *_SETS}


class _Forms:
    """One encoding: turns values into JSON-native trees, and knows which containers it is inside of."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._inside: set[int] = set()
        self._containers = itertools.count()

    def of(self, value: Any) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is str:
            return _string(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return _integer(value)
        if kind is float:
            return _float(value)
        if id(value) in self._inside:
            return _cut("contains itself")
        if len(self._inside) >= self._max_depth:
            return _cut(f"nested deeper than {self._max_depth} levels")
        if next(self._containers) > MAX_CONTAINERS:
            return _cut(f"more than {MAX_CONTAINERS} items")
        return self._guarded(value, kind)

    def _guarded(self, value: Any, kind: type[Any]) -> Any:
        self._inside.add(id(value))
        try:
            return self._other(value, kind)
        except Exception:  # the object's own code failed: its type is what can be told
            return _unprintable(kind)
        finally:
            self._inside.discard(id(value))

    def _other(self, value: Any, kind: type[Any]) -> Any:
        name = _name_of(kind)
        if kind is list:
            return [self.of(item) for item in list(value)]
        if kind is dict:
            return self._dict(value)
        if kind.__module__.startswith("pathlib") and kind.__name__ in _PATHS:
            name = "pathlib.Path"
        elif kind.__module__.startswith("pathlib"):
            name = f"pathlib.{kind.__name__}"
        if (atom := _ATOMS.get(name)) is not None:
            return _typed(name, atom(value))
        if name in _SEQUENCES:
            return _typed(name, self._sequence(value, ordered=name not in _SETS))
        return self._object(value, kind, name)

    def _sequence(self, value: Iterable[Any], *, ordered: bool) -> list[Any]:
        items = [self.of(item) for item in tuple(value)]
        return items if ordered else sorted(items, key=repr)

    def _dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        items: list[tuple[Any, Any]] = list(dict[Any, Any].items(value))
        if all(type(key) is str and key != MARK and _is_utf8(key) for key, _ in items):
            return {key: self.of(item) for key, item in items}
        return _typed("dict", [[self.of(key), self.of(item)] for key, item in items])

    def _object(self, value: Any, kind: type[Any], name: str) -> Any:
        if issubclass(kind, enum.Enum):
            return {MARK: name, "name": self.of(str(value.name)), "value": self.of(value.value)}
        if kind is Message:
            return {"role": self.of(value.role), "blocks": [self.of(block) for block in value.blocks]}
        if (fields := _fields(value, kind)) is not None:
            return _typed(name, {key: REDACTED if hidden(key, item) else self.of(item) for key, item in fields})
        if (base := self._subclass(value, kind, name)) is not None:
            return base
        if issubclass(kind, type):
            return _typed("type", _string(_name_of(value)))
        if issubclass(kind, _FUNCTIONS):
            return _typed("function", _string(f"{value.__module__}.{value.__qualname__}"))
        if issubclass(kind, BaseException):
            return _typed(name, _string(str(value)[:MAX_REPR]))
        return _typed(name, _string(repr(value)[:MAX_REPR]))

    def _subclass(self, value: Any, kind: type[Any], name: str) -> Any:
        """A subclass of a JSON type is stored as that type; one of tuple or set keeps its name."""
        if issubclass(kind, str):
            return _string(str.__str__(value))
        if issubclass(kind, int):
            return _integer(int.__int__(value))
        if issubclass(kind, float):
            return _float(float.__float__(value))
        if issubclass(kind, dict):
            return self._dict(value)
        if issubclass(kind, list):
            return [self.of(item) for item in list(value)]
        if issubclass(kind, tuple | set | frozenset):
            return _typed(name, self._sequence(value, ordered=issubclass(kind, tuple)))
        return None


def _fields(value: Any, kind: type[Any]) -> list[tuple[str, Any]] | None:
    """Names and values of a record (dataclass, named tuple, pydantic, attrs, msgspec); None for anything else."""
    if dataclasses.is_dataclass(kind):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(kind) if field.repr]
    if issubclass(cast("type", kind), tuple):
        names: Any = getattr(kind, "_fields", None)
        return list(zip(cast("tuple[str, ...]", names), value, strict=True)) if isinstance(names, tuple) else None
    if isinstance(getattr(kind, "__pydantic_fields__", None), dict):
        return [*_pairs(value.__dict__), *_pairs(value.__pydantic_extra__)]
    if isinstance(names := getattr(kind, "__struct_fields__", None), tuple):
        return [(field, getattr(value, field)) for field in cast("tuple[str, ...]", names)]
    if isinstance(attributes := getattr(kind, "__attrs_attrs__", None), tuple):
        return [(field.name, getattr(value, field.name)) for field in cast("tuple[Any, ...]", attributes) if field.repr]
    return None


def _pairs(values: dict[str, Any] | None) -> list[tuple[str, Any]]:
    return list(values.items()) if values else []


def _unprintable(kind: type) -> dict[str, Any]:
    try:
        name = _name_of(kind)
        return _typed(name, f"<unprintable {name}>") if _is_utf8(name) else _cut("an object that cannot be printed")
    except Exception:  # a metaclass can break even the name
        return _cut("an object that cannot be printed")


def _uuid(value: str) -> Any:
    from uuid import UUID

    return UUID(value)


def _decimal(value: str) -> Any:
    from decimal import Decimal

    return Decimal(value)


def _fraction(value: str) -> Any:
    from fractions import Fraction

    return Fraction(value)


_RESTORE: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "collections.deque": deque,
    "str": lambda value: value.encode("ascii").decode("unicode_escape"),
    "int": lambda value: int(value, 16),
    "float": float,
    "complex": complex,
    "range": lambda value: range(*value),
    "bytes": base64.b64decode,
    "bytearray": lambda value: bytearray(base64.b64decode(value)),
    "datetime.datetime": datetime.datetime.fromisoformat,
    "datetime.date": datetime.date.fromisoformat,
    "datetime.time": datetime.time.fromisoformat,
    "datetime.timedelta": lambda value: datetime.timedelta(*value),
    "uuid.UUID": _uuid,
    "decimal.Decimal": _decimal,
    "fractions.Fraction": _fraction,
    "pathlib.Path": Path,
    "pathlib.PurePosixPath": PurePosixPath,
    "pathlib.PureWindowsPath": PureWindowsPath,
}


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    form = {key: _restored(item) for key, item in cast("dict[str, Any]", value).items()}
    restore = _RESTORE.get(form.get(MARK, "")) if isinstance(form.get(MARK, ""), str) and "value" in form else None
    if restore is None:
        return form
    try:
        return restore(form["value"])
    except Exception:  # a set of what is not hashable once it is a dict, a date out of range here: the readable form says as much
        return form
