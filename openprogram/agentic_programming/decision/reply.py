"""Reply text → candidate picks, in one pass whose work is linear in the length of the reply.

Rules: reasoning spans are no answer; a candidate is an outermost complete JSON object (fenced or bare, or the one element of a list) that carries a call key; unfinished
fragments are never completed and never joined with what follows; only when strict JSON gives no candidate are the complete spans repaired, and the result says so.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

import msgspec

CALL_KEYS = ("call", "action", "function", "tool")
ARGUMENT_KEYS = ("args", "arguments", "parameters", "params", "input")
WRAPPERS = ("tool_call", "function_call", "tool_use")
LONGEST_REPAIR = 100_000
DEEPEST = 200

_TOKEN = re.compile(r'["{}\[\]]|<(/?)(think|thinking|thought|reasoning|reflection)>', re.IGNORECASE)
_STRING_END = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class Candidate(msgspec.Struct, frozen=True):
    """A pick as the model wrote it: a name and raw arguments (a dict, or whatever stood in their place)."""

    name: Any
    arguments: Any
    repaired: bool = False


class Reading(msgspec.Struct, frozen=True):
    """What a reply holds: candidates in order, the text outside reasoning, and the problem found when there is no candidate."""

    candidates: tuple[Candidate, ...]
    text: str
    problem: str = "no_action"


class _Span:
    __slots__ = ("children", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = -1
        self.children: list[_Span] = []


def read_reply(reply: str) -> Reading:
    """The candidates of a reply."""
    spans, text = _scan(reply)
    strict = [_candidates_of(reply, span, 0) for span in spans]
    found = [candidate for part in strict for candidate in part.candidates]
    if found:
        return Reading(tuple(found), text)
    repaired = [candidate for span in spans for candidate in _repaired(reply[span.start : span.end])]
    broken = any(part.problem == "invalid_json" for part in strict)
    return Reading(tuple(repaired), text, "invalid_json" if broken else "no_action")


def _scan(reply: str) -> tuple[list[_Span], str]:
    """Outermost complete bracket spans outside reasoning, and the text outside reasoning."""
    done: list[_Span] = []
    stack: list[_Span] = []
    opened = {"{": 0, "[": 0}
    position, visible_from = 0, 0
    visible: list[str] = []
    while match := _TOKEN.search(reply, position):
        token, position = match[0], match.end()
        if token == '"':
            if stack and (end := _STRING_END.match(reply, position)):
                position = end.end()
        elif token in opened:
            stack.append(_Span(match.start()))
            opened[token] += 1
        elif token in "}]":
            _close(reply, "{" if token == "}" else "[", position, stack, opened, done)
        elif match[1]:  # a lone closing tag: everything before it was reasoning
            done, stack, opened, visible, visible_from = [], [], {"{": 0, "[": 0}, [], position
        else:
            visible.append(reply[visible_from : match.start()])
            closing = re.compile(rf"</{match[2]}>", re.IGNORECASE).search(reply, position)
            position = visible_from = closing.end() if closing else len(reply)
    # What a bracket that never closed had collected is complete by itself.
    outermost = [*done, *(child for span in stack for child in span.children)]
    return sorted(outermost, key=lambda span: span.start), "".join([*visible, reply[visible_from:]])


def _close(reply: str, opener: str, end: int, stack: list[_Span], opened: dict[str, int], done: list[_Span]) -> None:
    if not opened[opener]:
        return
    orphans: list[_Span] = []
    while True:
        span = stack.pop()
        kind = reply[span.start]
        opened[kind] -= 1
        if kind == opener:
            break
        orphans += span.children
    span.end = end
    span.children += orphans
    (stack[-1].children if stack else done).append(span)


def _candidates_of(reply: str, span: _Span, depth: int) -> Reading:
    raw = reply[span.start : span.end]
    try:
        data = _loads(raw)
    except (ValueError, RecursionError):
        if depth < DEEPEST and not _looks_like_object(raw):
            inner = [_candidates_of(reply, child, depth + 1) for child in span.children]
            return Reading(tuple(item for part in inner for item in part.candidates), "", "no_action")
        return Reading((), "", "invalid_json")
    if isinstance(data, _Duplicate):
        return Reading((Candidate(data, None),), "")
    if isinstance(data, list):
        picks = [pick for item in cast("list[Any]", data) if (pick := as_candidate(item))]
        distinct = {(repr(pick.name), repr(pick.arguments)) for pick in picks}
        return Reading((Candidate(_Ambiguous(), None),) if len(distinct) > 1 else tuple(picks[:1]), "")
    pick = as_candidate(data)
    return Reading((pick,) if pick else (), "")


def _looks_like_object(raw: str) -> bool:
    return re.match(r"\{\s*[\"'“‘\w]", raw) is not None and ":" in raw[:200]


class _Ambiguous:
    """Stands for two picks in one list."""


class _Duplicate(_Ambiguous):
    """Stands for an object that gives one key two different values."""


def _loads(raw: str) -> Any:
    return json.loads(raw, object_pairs_hook=_object, parse_constant=_non_finite)


def _object(pairs: list[tuple[str, Any]]) -> Any:
    result: dict[str, Any] = {}
    for key, item in pairs:
        if key in result and (type(result[key]) is not type(item) or result[key] != item):
            return _Duplicate()
        result[key] = item
    return result


def _non_finite(name: str) -> float:
    return float(name.replace("Infinity", "inf"))


def as_candidate(data: Any) -> Candidate | None:
    """A JSON value as a pick, or None when it carries no call key."""
    if not isinstance(data, dict):
        return None
    mapping = cast("dict[str, Any]", data)
    for wrapper in WRAPPERS:
        if len(mapping) == 1 and isinstance(mapping.get(wrapper), dict):
            return as_candidate(mapping[wrapper])
    for key in CALL_KEYS:
        if key in mapping:
            inner = mapping[key]
            if isinstance(inner, dict) and "name" in inner:
                return as_candidate(inner)
            return Candidate(inner, _arguments(mapping, key))
    if "name" in mapping and any(key in mapping for key in ARGUMENT_KEYS):
        return Candidate(mapping["name"], _arguments(mapping, "name"))
    return None


def _arguments(mapping: dict[str, Any], call_key: str) -> Any:
    """The arguments beside a call key: under their own key (also as a JSON text), or flattened beside it."""
    key = next((key for key in ARGUMENT_KEYS if key in mapping), None)
    if key is None:
        return {name: item for name, item in mapping.items() if name != call_key}
    arguments = mapping[key]
    for _ in range(2):
        if not isinstance(arguments, str):
            break
        try:
            arguments = _loads(arguments)
        except (ValueError, RecursionError):
            break
    return {} if arguments is None or arguments in ("", []) else arguments


def _repaired(raw: str) -> list[Candidate]:
    if len(raw) > LONGEST_REPAIR or not re.search("|".join((*CALL_KEYS, "name")), raw):
        return []
    import json_repair

    try:
        data = json_repair.loads(raw.translate({0x201C: '"', 0x201D: '"'}))
    except (ValueError, RecursionError):
        return []
    items = cast("list[Any]", data) if isinstance(data, list) else [data]
    picks = [Candidate(pick.name, pick.arguments, repaired=True) for item in items if (pick := as_candidate(item))]
    return picks if len(picks) == 1 else []


def is_ambiguous(candidate: Candidate) -> bool:
    """Whether the candidate stands for two picks in one."""
    return isinstance(candidate.name, _Ambiguous) or _holds_duplicate(candidate.arguments, 0)


def _holds_duplicate(value: Any, depth: int) -> bool:
    if isinstance(value, _Duplicate):
        return True
    if depth > DEEPEST or not isinstance(value, dict | list):
        return False
    items = cast("list[Any]", value.values() if isinstance(value, dict) else value)
    return any(_holds_duplicate(item, depth + 1) for item in items)


def extract_action(text: str) -> dict[str, Any] | None:
    """The last pick in a reply as ``{"call": name, "args": {...}}``, unchecked; None when there is none."""
    picks = [pick for pick in read_reply(text).candidates if isinstance(pick.name, str)]
    return {"call": picks[-1].name, "args": picks[-1].arguments} if picks else None
