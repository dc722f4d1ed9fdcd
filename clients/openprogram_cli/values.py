"""``name=value`` on a command line. What the words mean is decided where the function is, by the types it declares (`openprogram.functions.words`)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from openprogram_protocol.runs import Word

from openprogram_cli.exits import usage
from openprogram_cli.output import one_line
from openprogram_cli.streams import as_utf8

SYNTAX = "Arguments are written name=value; name=@FILE reads a text file (name=@- standard input), name=@@text is text that begins with @."


def parse_words(words: Sequence[str]) -> list[Word]:
    """Split the words and read the files they name."""
    parsed: list[Word] = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise usage(f"{word!r} is no name=value. {SYNTAX}")
        if any(name == earlier.name for earlier in parsed):
            raise usage(f"argument {name!r} is given twice")
        parsed.append(_read(name, text))
    return parsed


def _read(name: str, text: str) -> Word:
    if text.startswith("@@"):
        return Word(name=name, text=as_utf8(text[1:]))
    if not text.startswith("@"):
        return Word(name=name, text=as_utf8(text))
    where = text[1:]
    try:
        data = sys.stdin.buffer.read() if where == "-" else Path(where).expanduser().read_bytes()
        return Word(name=name, text=data.decode("utf-8-sig"), from_file=True)
    except UnicodeDecodeError as error:
        raise usage(f"argument {name}: {where!r} is not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: ~ of a user that does not exist
        reason = getattr(error, "strerror", None) or error
        raise usage(f"argument {name}: cannot read {where!r}: {reason}. For text that begins with @ write {name}=@{one_line(text, 40)}") from error


def arguments_for(function: Callable[..., Any], words: Sequence[Word], *, command: str) -> dict[str, Any]:
    """The keyword arguments for a call in this process. Raises Stop (exit code 2) for a missing, unknown or ill-typed one."""
    from openprogram.errors import ArgumentError
    from openprogram.functions.words import read_words

    try:
        return {name: argument.value for name, argument in read_words(function, words, command=command).items()}
    except ArgumentError as error:
        raise usage(str(error)) from error


def bind(function: Callable[..., Any], values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments for the call; a positional-only parameter is passed by position."""
    positional: list[Any] = []
    keywords = dict(values)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            break
        if parameter.name in keywords:
            positional.append(keywords.pop(parameter.name))
        elif parameter.default is not inspect.Parameter.empty:
            positional.append(parameter.default)
        else:
            positional.append(None)  # a runtime parameter, which None lets be filled
    return positional, keywords
