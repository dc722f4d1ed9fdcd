"""A candidate against the menu → a `Pick`, or a `ParseProblem` that says to the model what was wrong."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

from openprogram.agentic_programming.decision.options import Menu, Option
from openprogram.agentic_programming.decision.reply import Candidate, is_ambiguous, read_reply
from openprogram.functions.schema import Misfit, fit, to_python

HEAD = 300


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
    names = ", ".join(menu.options)
    if not reply.strip():
        return ParseProblem("no_action", f"the reply is empty; answer with one JSON object that picks one of: {names}")
    if kind == "invalid_json":
        return ParseProblem(kind, f"the JSON in the reply cannot be read (straight double quotes, no comments, no trailing commas); pick one of: {names}")
    return ParseProblem(kind, f'the reply holds no JSON object with a "call" key; pick one of: {names}')


def check(candidate: Candidate, menu: Menu) -> Pick:
    """A candidate as a pick of the menu. Raises ParseProblem."""
    if is_ambiguous(candidate):
        raise ParseProblem("ambiguous", "the reply picks two things at once; pick exactly one")
    option = _find(candidate.name, menu)
    arguments = _as_mapping(candidate.arguments, option)
    try:
        fitted = fit(arguments, option.schema)
        values = {item.name: to_python(item, fitted[item.name]) for item in option.parameters if item.name in fitted} if option.parameters else fitted
    except Misfit as misfit:
        raise ParseProblem(misfit.kind, f"{option.name}: {misfit}", misfit.path) from None
    return Pick(option, fitted, values, candidate.repaired)


def _as_mapping(arguments: Any, option: Option) -> dict[str, Any]:
    names = list(option.properties)
    if isinstance(arguments, dict):
        return arguments  # pyright: ignore[reportUnknownVariableType]
    positional: list[Any] = arguments if isinstance(arguments, list) else [arguments]
    if not names and arguments in (None, "", []):
        return {}
    if len(positional) > len(names) or (len(names) > 1 and not isinstance(arguments, list)):
        raise ParseProblem("bad_args", f'{option.name}: "args" is an object with the keys {", ".join(names) or "(none)"}', "$.args")
    return dict(zip(names, positional, strict=False))


def _find(name: Any, menu: Menu) -> Option:
    names = ", ".join(menu.options)
    if not isinstance(name, str):
        raise ParseProblem("unknown_call", f'"call" is the name of one option (a string), one of: {names}', "$.call")
    if name in menu.options:
        return menu.options[name]
    alike = [option for option in menu.options.values() if fold(option.name) == fold(name)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise ParseProblem("ambiguous", f"{name!r} could mean {' or '.join(option.name for option in alike)}; use the exact name", "$.call")
    raise ParseProblem("unknown_call", f"there is no option {name[:100]!r}; the options are: {names}", "$.call")


def fold(name: str) -> str:
    """A name without case, Unicode form, invisible marks, surrounding punctuation and the kind of its separators."""
    text = unicodedata.normalize("NFKC", name).casefold()
    text = "".join(char for char in text if unicodedata.category(char) not in ("Cf", "Cc") or char in "\t\n")
    return re.sub(r"[\s_\-.]+", "_", text.strip(" \t\n\r\"'`*.,;:!?()“”‘’«»_-"))


def _bare_name(text: str, menu: Menu) -> Option | None:
    """The option that a reply names when it is nothing but that name and the option needs no arguments."""
    said = re.sub(r"^\s*(`{3,}|~{3,})\w*\s*|\s*(`{3,}|~{3,})\s*$", "", text).strip()
    if not said or len(said) > 200 or "\n" in said:
        return None
    said = re.sub(r"\(\s*\)", "", said)
    alike = [option for option in menu.options.values() if option.name == said] or [o for o in menu.options.values() if fold(o.name) == fold(said)]
    return alike[0] if len(alike) == 1 and not alike[0].schema["required"] else None
