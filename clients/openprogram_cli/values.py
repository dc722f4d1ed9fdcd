"""``name=value`` words to the arguments of a function, by the types it declares.

Text is taken exactly where the parameter is text. Everywhere else a value is read as pydantic reads a string of that type, then as JSON; without an
annotation, as JSON if it is JSON, else as text. A mistake is one error that names the parameter, the value and the type that was expected.
"""

from __future__ import annotations

import difflib
import inspect
import json
import logging
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, is_typeddict

from openprogram_cli.exits import usage
from openprogram_cli.output import one_line
from openprogram_cli.streams import as_utf8

SYNTAX = "Arguments are written name=value; name=@FILE reads a text file (name=@- standard input), name=@@text is text that begins with @."

T = TypeVar("T")


class Word(NamedTuple):
    """One ``name=value``; ``from_file`` when the text was read from a file."""

    name: str
    text: str
    from_file: bool = False


class Wanted(NamedTuple):
    """A parameter that the command line may fill. ``annotation`` is Any where none is declared or it cannot be resolved."""

    name: str
    annotation: Any
    shown: str
    required: bool
    options: list[Any] | None


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
        return Word(name, as_utf8(text[1:]))
    if not text.startswith("@"):
        return Word(name, as_utf8(text))
    where = text[1:]
    try:
        data = sys.stdin.buffer.read() if where == "-" else Path(where).expanduser().read_bytes()
        return Word(name, data.decode("utf-8-sig"), from_file=True)
    except UnicodeDecodeError as error:
        raise usage(f"argument {name}: {where!r} is not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: ~ of a user that does not exist
        reason = getattr(error, "strerror", None) or error
        raise usage(f"argument {name}: cannot read {where!r}: {reason}. For text that begins with @ write {name}=@{one_line(text, 40)}") from error


def arguments_for(function: Callable[..., Any], words: Sequence[Word], *, command: str) -> dict[str, Any]:
    """The keyword arguments for a call. ``command`` is how the call is written, for the error that shows it.

    Raises Stop (exit code 2) for a missing, unknown or ill-typed argument.
    """
    wanted, open_ended = wanted_of(function)
    by_name = {item.name: item for item in wanted}
    values: dict[str, Any] = {}
    for word in words:
        item = by_name.get(word.name)
        if item is None and open_ended is None:
            raise usage(_unknown(function, word.name, by_name, command))
        item = item or Wanted(word.name, open_ended, "", False, None)
        values[word.name] = convert(item, word)
    missing = [item for item in wanted if item.required and item.name not in values]
    if missing:
        listed = ", ".join(f"{item.name} ({item.shown or 'any value'})" for item in missing)
        raise usage(f"missing argument{'s' if len(missing) > 1 else ''}: {listed}\nusage: {command} {synopsis(wanted)}")
    return values


def wanted_of(function: Callable[..., Any]) -> tuple[list[Wanted], Any]:
    """The parameters to fill, injected ones left out, and the type of further ones that ``**kwargs`` takes (None when it has none)."""
    from openprogram.functions.schema import RUNTIME_PARAMETERS, parameters_of

    signature = inspect.signature(function)
    wanted: list[Wanted] = []
    for parameter in _without_warnings(lambda: parameters_of(function)):
        if parameter.name in RUNTIME_PARAMETERS:
            continue
        declared = signature.parameters[parameter.name].annotation
        wanted.append(Wanted(parameter.name, parameter.annotation, _shown(declared), parameter.required, _options(function, parameter.name)))
    open_ended = next((Any for item in signature.parameters.values() if item.kind is inspect.Parameter.VAR_KEYWORD), None)
    return wanted, open_ended


def _without_warnings(read: Callable[[], T]) -> T:
    """A parameter whose type gives no JSON Schema matters to a model; a person who fills it in is told when it is filled in."""
    logger = logging.getLogger("openprogram.schema")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        return read()
    finally:
        logger.setLevel(level)


def _options(function: Callable[..., Any], name: str) -> list[Any] | None:
    table: dict[str, dict[str, Any]] = getattr(function, "input_meta", None) or {}
    options = table.get(name, {}).get("options")
    return list(options) if options else None


def _shown(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    return annotation.__name__ if type(annotation) is type else inspect.formatannotation(annotation).replace("typing.", "")


def synopsis(wanted: Sequence[Wanted]) -> str:
    """``order_id=INT [reason=STR]``."""
    return " ".join(f"{item.name}=…" if item.required else f"[{item.name}=…]" for item in wanted)


def _unknown(function: Any, name: str, known: dict[str, Wanted], command: str) -> str:
    from openprogram.functions.schema import RUNTIME_PARAMETERS

    if name in RUNTIME_PARAMETERS:
        return f"{name!r} is filled in by OpenProgram; choose the model with --model"
    near = difflib.get_close_matches(name, known, n=3)
    guess = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{getattr(function, '__name__', 'the function')} has no argument {name!r}{guess}\nusage: {command} {synopsis(list(known.values()))}".rstrip()


def convert(item: Wanted, word: Word) -> Any:
    """The word's text as the parameter's type."""
    value = _typed(item, word)
    if item.options is not None and not any(type(value) is type(option) and value == option for option in item.options):
        allowed = ", ".join(one_line(_text_of(option), 40) for option in item.options)
        raise usage(f"argument {item.name}={one_line(word.text, 60)!r} is not allowed; one of: {allowed}")
    return value


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=repr)


def _typed(item: Wanted, word: Word) -> Any:
    annotation = item.annotation
    if annotation is Any or annotation is object:
        return _untyped(word, item)
    from openprogram.functions.schema import adapter_for

    try:
        adapter = adapter_for(annotation)
    except Exception as error:  # pydantic raises many kinds for a type it has no schema for
        if is_typeddict(annotation) and (value := _json_object(word.text)) is not None:  # it knows typing's own only from Python 3.12 on
            return value
        raise usage(f"argument {item.name}: a value of type {item.shown} cannot be given on a command line; give it a default or take text") from error
    return _validated(adapter, annotation, item, word)


def _untyped(word: Word, item: Wanted) -> Any:
    options = item.options or []
    if word.text in options:
        return word.text
    try:
        return json.loads(word.text)
    except (ValueError, RecursionError):
        return word.text


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _validated(adapter: Any, annotation: Any, item: Wanted, word: Word) -> Any:
    from pydantic import ValidationError

    only_text = _takes_only_text(annotation)
    text = word.text if only_text or not word.from_file else word.text.strip()
    problem: ValidationError | None = None
    as_text: tuple[Any, ...] = ()
    try:
        as_text = (adapter.validate_python(text),)
    except ValidationError as error:
        problem = error
    if as_text and (only_text or not isinstance(as_text[0], str)):
        return as_text[0]
    if not only_text:
        try:
            value = adapter.validate_json(text)
            if not as_text or not isinstance(value, str):
                return value
        except (ValidationError, UnicodeError, RecursionError) as error:
            problem = error if isinstance(error, ValidationError) and _is_json(text) else problem
    if as_text:
        return as_text[0]
    raise usage(_ill_typed(item, word, problem))


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _takes_only_text(annotation: Any) -> bool:
    """Whether the declared type is str, perhaps constrained or optional: such text is never read as JSON."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _takes_only_text(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return bool(members) and all(_takes_only_text(member) for member in members)
    return annotation is str


def _ill_typed(item: Wanted, word: Word, problem: Any) -> str:
    detail = ""
    if problem is not None:
        issue = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in issue["loc"])
        detail = f": {path + ': ' if path else ''}{issue['msg']}"
    return f"argument {item.name}={one_line(word.text, 60)!r} is not of type {item.shown}{detail}"


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
