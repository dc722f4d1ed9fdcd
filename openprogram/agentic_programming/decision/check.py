"""A candidate against the menu → a `Pick`, or a `ParseProblem` that says to the model what was wrong."""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any, cast

import msgspec

from openprogram.agentic_programming.decision.options import Menu, Option, convert_fields
from openprogram.agentic_programming.decision.reply import Candidate, read_reply
from openprogram.functions.fit import Misfit, fit, short
from openprogram.functions.schema import fitted_values

_LONGEST_NAME = 200
_LONGEST_BARE = 2000  # with all that may stand around a name
# A fence, a template's special tokens and tags such as <tool_call> around a lone name.
_AROUND = re.compile(r"^\s*(`{3,}|~{3,})\w*\s*|\s*(`{3,}|~{3,})\s*$|<\|[^|<>]{0,40}\|>|</?tool_call>")


class ParseProblem(Exception):
    """Why a reply is no valid pick. ``kind`` and ``path`` as on DecisionError."""

    def __init__(self, kind: str, message: str, path: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.path = path


class Pick(msgspec.Struct, frozen=True):
    """A valid pick: the option, the arguments as JSON values, and the same as the annotated types."""

    option: Option
    arguments: dict[str, Any]
    values: dict[str, Any]
    repaired: bool = False


def pick_from(reply: str, menu: Menu, *, finish_reason: str = "stop") -> Pick:
    """The last valid pick of a reply. Raises ParseProblem; a reply cut off by the token limit is never a pick."""
    if finish_reason == "length":
        raise ParseProblem("incomplete", "the reply was cut off by the token limit before it was complete; answer more briefly")
    reading = read_reply(reply)
    problem: ParseProblem | None = None
    for candidate in reversed(reading.candidates):
        try:
            return check(candidate, menu)
        except ParseProblem as found:
            if found.kind == "ambiguous":
                raise
            problem = problem or found
    if problem is None and (option := _bare_name(reading.text, menu)):
        return check(Candidate(option.name, {}), menu)
    raise problem or _nothing_found(reply, reading.problem, menu)


def _nothing_found(reply: str, kind: str, menu: Menu) -> ParseProblem:
    names = listed(menu)
    if not reply.strip():
        return ParseProblem("no_action", f"the reply is empty; answer with one JSON object that picks one of: {names}")
    if kind == "invalid_json":
        rules = "complete, straight double quotes, no comments, no trailing commas"
        return ParseProblem(kind, f"the JSON in the reply cannot be read ({rules}); pick one of: {names}")
    if kind == "incomplete":
        return ParseProblem(kind, f"the reply ended within its reasoning, before an answer; answer with one JSON object that picks one of: {names}")
    return ParseProblem(kind, f'the reply holds no JSON object with a "call" key; pick one of: {names}')


def listed(menu: Menu) -> str:
    """The option names for a message."""
    return ", ".join(menu.options)


def check(candidate: Candidate, menu: Menu) -> Pick:
    """A candidate as a pick of the menu. Raises ParseProblem."""
    if candidate.ambiguous:
        raise ParseProblem("ambiguous", "the reply picks two things at once; pick exactly one")
    option = _find(candidate.name, menu)
    problem: ParseProblem | None = None
    for arguments in _readings(candidate, option):
        try:
            return _checked(option, arguments, candidate)
        except ParseProblem as found:
            problem = problem or found
    assert problem is not None
    raise problem


def _checked(option: Option, arguments: Any, candidate: Candidate) -> Pick:
    if not isinstance(arguments, dict):
        names = ", ".join(option.properties) or "(none)"
        raise ParseProblem("bad_args", f'{option.name}: "args" is an object with the keys {names}', "$.args")
    try:
        if option.kind == "schema":
            fitted = fit(arguments, option.schema)
            values = convert_fields(option.handler, fitted)
        else:
            fitted, values = fitted_values(cast("dict[str, Any]", arguments), option.schema, option.parameters, option.further)
    except Misfit as misfit:
        raise ParseProblem(misfit.kind, f"{option.name}: {misfit}", misfit.path) from None
    return Pick(option, fitted, values, candidate.repaired)


def _readings(candidate: Candidate, option: Option) -> list[Any]:
    """What a candidate's arguments may mean, the plainest first: an object, values by position, fields that stand beside the call key."""
    arguments, names = candidate.arguments, list(option.properties)
    readings = [arguments]
    if not isinstance(arguments, dict):
        positional: list[Any] = cast("list[Any]", arguments) if isinstance(arguments, list) else [arguments]
        if len(positional) <= len(names) and (len(names) == 1 or isinstance(arguments, list)):
            readings.insert(0, dict(zip(names, positional, strict=False)))
    if any(name in option.properties for name in candidate.beside):
        readings.append(candidate.beside)
    return readings


def _find(name: Any, menu: Menu) -> Option:
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str):
        raise ParseProblem("unknown_call", f'"call" is the name of one option (a string), one of: {listed(menu)}', "$.call")
    if option := menu.options.get(name):
        return option
    if option := _alike(name, menu):
        return option
    raise ParseProblem("unknown_call", f"there is no option {_shown(name)}; the options are: {listed(menu)}", "$.call")


def _shown(name: str) -> str:
    """A name that a model wrote, fit for a message."""
    return short(name[:100])


def _alike(name: str, menu: Menu) -> Option | None:
    """The one option of that name when only the way of writing it differs. Raises ParseProblem when there are several."""
    folded = fold(name)
    alike = [option for option in menu.options.values() if folded and fold(option.name) == folded]
    if len(alike) > 1:
        names = " or ".join(option.name for option in alike)
        raise ParseProblem("ambiguous", f"{_shown(name)} could mean {names}; use the exact name", "$.call")
    return alike[0] if alike else None


@functools.lru_cache(maxsize=4096)
def fold(name: str) -> str:
    """A name without case, Unicode form, invisible marks, surrounding punctuation and the kind of its separators."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name[:_LONGEST_NAME]).casefold())
    text = "".join(char for char in text if char.isspace() or unicodedata.category(char) not in ("Cf", "Cc", "Mn") or unicodedata.combining(char))
    text = re.sub(r"^\s*[-*•]\s+", "", text)
    return re.sub(r"[\s_\-.‐-―]+", "_", text.strip(" \t\n\r\"'`*_.,;:!?()[]“”‘’«»"))


def _bare_name(text: str, menu: Menu) -> Option | None:
    """The option that a reply names when it is nothing but that name. Raises ParseProblem when it could be several."""
    if len(text) > _LONGEST_BARE:
        return None
    said = _AROUND.sub("", text).strip()
    if not said or len(said) > _LONGEST_NAME or "\n" in said:
        return None
    said = re.sub(r"\(\s*\)", "", said)
    return menu.options.get(said) or _alike(said, menu)
