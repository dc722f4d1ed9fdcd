"""What a person writes as ``name=value`` to the arguments of a function, by the types it declares.

Text is taken exactly where the parameter is text. Everywhere else a value is read as pydantic reads a string of that type, then as JSON; without an
annotation, as JSON if it is JSON, else as text. A mistake is one error that names the parameter, the value and the type that was expected.
"""

from __future__ import annotations

import difflib
import inspect
import json
import logging
import math
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, is_typeddict

from openprogram_protocol.runs import Word

from openprogram.errors import ArgumentError
from openprogram.functions.schema import RUNTIME_PARAMETERS, adapter_for, parameters_of

T = TypeVar("T")

MOST_SHOWN = 60


class Wanted(NamedTuple):
    """A parameter that a person may fill. ``annotation`` is Any where none is declared or it cannot be resolved."""

    name: str
    annotation: Any
    shown: str
    required: bool
    options: list[Any] | None


class Argument(NamedTuple):
    """A word that was read: the value of the declared type, and the JSON that `convert_arguments` makes that value of."""

    value: Any
    as_json: Any


def read_words(function: Callable[..., Any], words: Sequence[Word], *, command: str) -> dict[str, Argument]:
    """The arguments by name. ``command`` is how the call is written, for the error that shows it.

    Raises ArgumentError for a missing, unknown or ill-typed one.
    """
    wanted, open_ended = wanted_of(function)
    by_name = {item.name: item for item in wanted}
    found: dict[str, Argument] = {}
    for word in words:
        item = by_name.get(word.name)
        if item is None and open_ended is None:
            raise ArgumentError(_unknown(function, word.name, by_name, command), parameter=word.name)
        found[word.name] = convert(item or Wanted(word.name, open_ended, "", False, None), word)
    missing = [item for item in wanted if item.required and item.name not in found]
    if missing:
        listed = ", ".join(f"{item.name} ({item.shown or 'any value'})" for item in missing)
        message = f"missing argument{'s' if len(missing) > 1 else ''}: {listed}\nusage: {command} {synopsis(wanted)}"
        raise ArgumentError(message, parameter=missing[0].name)
    return found


def wanted_of(function: Callable[..., Any]) -> tuple[list[Wanted], Any]:
    """The parameters to fill, injected ones left out, and the type of further ones that ``**kwargs`` takes (None when it has none)."""
    signature = inspect.signature(function)
    wanted: list[Wanted] = []
    for parameter in _without_warnings(lambda: parameters_of(function)):
        if parameter.name in RUNTIME_PARAMETERS:
            continue
        declared = signature.parameters[parameter.name].annotation
        wanted.append(Wanted(parameter.name, parameter.annotation, _declared(declared), parameter.required, _options(function, parameter.name)))
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


def _declared(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    return annotation.__name__ if type(annotation) is type else inspect.formatannotation(annotation).replace("typing.", "")


def synopsis(wanted: Sequence[Wanted]) -> str:
    """``order_id=… [reason=…]``."""
    return " ".join(f"{item.name}=…" if item.required else f"[{item.name}=…]" for item in wanted)


def _unknown(function: Any, name: str, known: dict[str, Wanted], command: str) -> str:
    if name in RUNTIME_PARAMETERS:
        return f"{name!r} is filled in by OpenProgram; choose the model with --model"
    near = difflib.get_close_matches(name, known, n=3)
    guess = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{getattr(function, '__name__', 'the function')} has no argument {name!r}{guess}\nusage: {command} {synopsis(list(known.values()))}".rstrip()


def convert(item: Wanted, word: Word) -> Argument:
    """The word's text as the parameter's type. Raises ArgumentError."""
    found = _typed(item, word)
    value = found.value
    if item.options is not None and not any(type(value) is type(option) and value == option for option in item.options):
        allowed = ", ".join(_cut(_text_of(option)) for option in item.options)
        raise ArgumentError(f"argument {item.name}={_quoted(word)} is not allowed; one of: {allowed}", parameter=item.name)
    if not _is_finite([found.value, found.as_json]):
        message = f"argument {item.name}={_quoted(word)} holds NaN, an infinity or a number too large for a float, which JSON cannot say; write finite numbers"
        raise ArgumentError(message, parameter=item.name)
    return found


def _is_finite(value: Any) -> bool:
    """Whether JSON holds every number in a value; without recursion, since text may nest as deep as the stack."""
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return False
        if isinstance(one, dict):
            waiting.extend(cast("dict[str, Any]", one).values())
        elif isinstance(one, list | tuple | set | frozenset):
            waiting.extend(cast("list[Any]", one))
    return True


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=repr)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def _quoted(word: Word) -> str:
    return repr(_cut(word.text))


def _typed(item: Wanted, word: Word) -> Argument:
    annotation = item.annotation
    if annotation is Any or annotation is object:
        return _alike(_untyped(word, item))
    try:
        adapter = adapter_for(annotation)
    except Exception as error:  # pydantic raises many kinds for a type it has no schema for
        if is_typeddict(annotation) and (value := _json_object(word.text)) is not None:  # it knows typing's own only from Python 3.12 on
            return _alike(value)
        message = f"argument {item.name}: a value of type {item.shown} cannot be given on a command line; give it a default or take text"
        raise ArgumentError(message, parameter=item.name) from error
    return _validated(adapter, annotation, item, word)


def _alike(value: Any) -> Argument:
    return Argument(value, value)


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


def _validated(adapter: Any, annotation: Any, item: Wanted, word: Word) -> Argument:
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
        return _from_text(as_text[0], text)
    if not only_text:
        try:
            value = adapter.validate_json(text)
            if not as_text or not isinstance(value, str):
                return Argument(value, json.loads(text))
        except (ValidationError, UnicodeError, RecursionError) as error:
            problem = error if isinstance(error, ValidationError) and _is_json(text) else problem
    if as_text:
        return _from_text(as_text[0], text)
    raise ArgumentError(_ill_typed(item, word, problem), parameter=item.name)


def _from_text(value: Any, text: str) -> Argument:
    """What JSON holds goes as it was read, since ``yes`` is true to a person only; what it does not hold goes as it was written."""
    is_json = value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))
    return Argument(value, value if is_json else text)


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
    return f"argument {item.name}={_quoted(word)} is not of type {item.shown}{detail}"
