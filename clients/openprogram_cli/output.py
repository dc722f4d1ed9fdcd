"""What a command prints: results as text or JSON on stdout, problems as one or two lines on stderr.

Text that came from data (names, arguments, messages) is printed without its control characters, so that a stored value cannot drive the terminal.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import json
import math
import os
import sys
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

from openprogram_cli.exits import FAILED, Stop
from openprogram_cli.streams import holds

MAX_DEPTH = 100


def write(text: str = "", *, end: str = "\n") -> None:
    """Print to stdout, at once. A pipe that nobody reads is left to the caller, anything else that cannot be written ends the command."""
    try:
        sys.stdout.write(text + end)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Stop(FAILED, f"the output could not be written: {error.strerror or error}") from error


def complain(message: str) -> None:
    """A line for the user on stderr."""
    print(f"openprogram: {message}", file=sys.stderr, flush=True)  # noqa: T201 - this is where lines for the user are printed


def write_json(value: Any) -> None:
    """Print one JSON document; NaN and the infinities become strings, a character that stdout cannot hold its escape."""
    document = plain(value)
    text = json.dumps(document, ensure_ascii=False, indent=2)
    write(text if holds(text) else json.dumps(document, indent=2))


def write_result(value: Any) -> None:
    """Print what a function returned: text as it is, None as nothing, everything else as JSON."""
    if value is None:
        return
    if isinstance(value, str):
        write(str.__str__(value))
    else:
        write_json(value)


def plain(value: Any, depth: int = 0, inside: tuple[int, ...] = ()) -> Any:
    """Any value as JSON types: records become objects, sets and tuples lists, everything unknown its repr. Never raises for a value that can be printed."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, depth, inside)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth > MAX_DEPTH or id(value) in inside:
        return "…"
    return _container(value, depth + 1, (*inside, id(value)))


def _container(value: Any, depth: int, inside: tuple[int, ...]) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_key(key): plain(item, depth, inside) for key, item in items}
    if (fields := _fields(value)) is not None:
        return {name: plain(item, depth, inside) for name, item in fields.items()}
    if isinstance(value, set | frozenset):
        return [plain(item, depth, inside) for item in sorted(cast("set[Any]", value), key=repr)]
    if isinstance(value, list | tuple):
        return [plain(item, depth, inside) for item in cast("list[Any]", value)]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, os.PathLike | uuid.UUID | Decimal):
        return str(cast("Any", value))
    return repr(value)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    value = plain(key)
    return value if isinstance(value, str) else json.dumps(value)


def _fields(value: Any) -> dict[str, Any] | None:
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    record: Any = value
    names: Any = getattr(record, "__struct_fields__", None) or (getattr(record, "_fields", None) if isinstance(value, tuple) else None)
    if isinstance(names, tuple):
        return {name: getattr(record, name) for name in cast("tuple[str, ...]", names)}
    return cast("dict[str, Any]", record.model_dump()) if isinstance(getattr(record, "__pydantic_fields__", None), dict) else None


def one_line(text: str, width: int = 100) -> str:
    """Text on one line without control characters, cut to ``width`` with an ellipsis."""
    head = text[: width * 4]
    flat = "".join(character if character.isprintable() else " " for character in head)
    flat = " ".join(flat.split())
    return flat if len(flat) <= width and len(head) == len(text) else flat[: width - 1] + "…"


def printable(text: str) -> str:
    """Text without the control characters that drive a terminal; newlines and tabs stay. A pipe gets the text as it is."""
    if not sys.stdout.isatty():
        return text
    return "".join(character if character.isprintable() or character in "\n\t" else repr(character)[1:-1] for character in text)


def table(rows: list[tuple[str, ...]], *, indent: str = "") -> list[str]:
    """Rows as lines with aligned columns; the last column is free."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    return [(indent + "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False)) + row[-1]).rstrip() for row in rows]


def seconds(duration: float | None) -> str:
    """A duration for reading: ``3 ms``, ``1.2 s``, ``2 min 5 s``."""
    if duration is None:
        return ""
    if duration < 1:
        return f"{duration * 1000:.0f} ms"
    return f"{duration:.1f} s" if duration < 60 else f"{int(duration // 60)} min {int(duration % 60)} s"
