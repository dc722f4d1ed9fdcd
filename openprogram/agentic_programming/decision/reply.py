"""Reply text → candidate picks, with work linear in the length of the reply.

Rules: reasoning spans are no answer; a candidate is an outermost complete JSON object (fenced or bare, or the one element of a list) that carries a call key;
unfinished fragments are never completed and never joined with what follows; only when strict JSON gives no candidate are the complete spans repaired, and the
result says so. Strings are skipped inside brackets only, since prose holds quotation marks and apostrophes of its own.
"""

from __future__ import annotations

import bisect
import json
import re
from typing import Any, Literal, cast

import msgspec

from openprogram.agentic_programming.decision.scanning import Scan, Span, scan

Problem = Literal["no_action", "invalid_json", "incomplete"]

CALL_KEYS = ("call", "action", "function", "tool")
ARGUMENT_KEYS = ("args", "arguments", "parameters", "params", "input")
WRAPPERS = ("tool_call", "tool_calls", "function_call", "tool_use")
DEEPEST = 200
# Each level of brackets around prose is parsed anew.
DEEPEST_PROSE = 4
# What is repaired of one reply, from its end: characters in all, and objects. The repairer is not linear in what it reads.
REPAIRED_CHARACTERS = 20_000
REPAIRED_SPANS = 20

_NAMES_A_PICK = re.compile(rf"""[{{,\s"'“‘]({"|".join((*CALL_KEYS, "name", *WRAPPERS))})["'”’]?\s*:""")
_LIKE_PICKS = re.compile(r"""\[\s*\{\s*["'“‘]""")
_LIKE_JSON = re.compile(r"""[\[{]\s*(?:["'“‘{\[\]}]|\w+["'”’]?\s*:|-?\d)""")

# The words that the keys of a pick begin with; a letter of a key may be written as an escape. A pattern finds many of them fast, `str.find` a few faster.
_WORDS = ("call", "action", "function", "tool", "name")
_BEHIND_WORD = r"""(?:_calls?|_use|s)?["'”’]?\s*:"""
_COLON = re.compile(_BEHIND_WORD)
_KEY = re.compile(rf"(?:{'|'.join(_WORDS)}){_BEHIND_WORD}|\\u00")
_FEW = 1000
# Of a reply without any pick, how many objects are looked at to say what is wrong.
_EXPLAINED = 50


class Candidate(msgspec.Struct, frozen=True):
    """A pick as the model wrote it: a name, raw arguments (a dict, or whatever stood in their place), and the fields beside the name."""

    name: Any
    arguments: Any
    beside: dict[str, Any] = {}
    repaired: bool = False
    ambiguous: bool = False


class Reading(msgspec.Struct, frozen=True):
    """What a reply holds: candidates in order, the text outside reasoning, and the problem found when there is no candidate."""

    candidates: tuple[Candidate, ...]
    text: str
    problem: Problem = "no_action"


def read_reply(reply: str) -> Reading:
    """The candidates of a reply."""
    reply = _unquoted(reply)
    seen = scan(reply)
    keys = _places_of_keys(reply) if seen.end else []
    found, broken, hopeless = _strict(reply, seen, keys)
    if not found and keys and '"' in reply and "\n" in reply:
        # A quotation mark that was never closed hides what follows it; JSON strings end on their own line, so a second look may find more.
        by_line = scan(reply, strings_end_with_line=True)
        found = _strict(reply, by_line, keys)[0]
    if not found and broken:
        found = _repaired(reply, broken)
    looks_broken = bool(broken) or hopeless or (not found and _looks_broken(reply, seen))
    return Reading(tuple(found), seen.text, "incomplete" if seen.open_reasoning else "invalid_json" if looks_broken else "no_action")


def _places_of_keys(reply: str) -> list[int]:
    """Where words stand that may be the key of a pick, in order; a span without one holds none."""
    if "\\u00" in reply or sum(map(reply.count, _WORDS)) > _FEW:
        return [match.start() for match in _KEY.finditer(reply)]
    places: list[int] = []
    for word in _WORDS:
        at = reply.find(word)
        while at >= 0:
            if _COLON.match(reply, at + len(word)):
                places.append(at)
            at = reply.find(word, at + 1)
    return sorted(places)


def _unquoted(reply: str) -> str:
    """The text of a reply that is one JSON string holding JSON; any other reply as it is."""
    text = reply.strip()
    if text[:1] == text[-1:] == '"' and "{" in text:
        try:
            inner = json.loads(text)
        except ValueError:
            return reply
        return inner if isinstance(inner, str) else reply
    return reply


def _strict(reply: str, seen: Scan, keys: list[int]) -> tuple[list[Candidate], list[Span], bool]:
    """Candidates of the spans that are JSON, the spans that are nearly JSON, and whether one is beyond mending (too deep, a number of too many digits).

    Brackets around prose give way to what they hold.
    """
    found: list[Candidate] = []
    broken: list[Span] = []
    hopeless = False
    waiting = [(number, 0) for number in reversed(seen.outermost())]
    while waiting:
        number, level = waiting.pop()
        start, end = seen.closed[number]
        first = bisect.bisect_left(keys, start)
        if first == len(keys) or keys[first] >= end:
            continue
        raw = reply[start:end]
        try:
            found += _candidates(_loads(raw))
        except json.JSONDecodeError:
            if _like_json(raw) or level == DEEPEST_PROSE:
                broken.append((start, end))
            else:
                waiting += [(child, level + 1) for child in reversed(seen.outermost(number))]
        except (ValueError, RecursionError):
            hopeless = True
    return found, broken, hopeless


def _like_json(raw: str) -> bool:
    return _LIKE_PICKS.match(raw) is not None if raw[0] == "[" else _LIKE_JSON.match(raw) is not None and ":" in raw[:200]


def _looks_broken(reply: str, seen: Scan) -> bool:
    """Whether a reply without a pick seems to have been meant as JSON."""
    behind = seen.closed[-1][1] if seen.closed else 0
    if any(_LIKE_JSON.match(reply, start) for start in seen.unclosed[:_FEW]) or _LIKE_JSON.search(reply, max(behind, seen.end)):
        return True
    for number in seen.outermost()[-_EXPLAINED:]:
        start, end = seen.closed[number]
        try:
            _loads(reply[start:end])
        except (ValueError, RecursionError):
            if _LIKE_JSON.match(reply, start):
                return True
    return False


def _candidates(data: Any) -> list[Candidate]:
    """The pick that a JSON value is, or that its list holds."""
    if not isinstance(data, list):
        pick = as_candidate(data)
        return [pick] if pick else []
    picks = [pick for item in cast("list[Any]", data) if (pick := as_candidate(item))]
    if any((pick.name, pick.arguments) != (picks[0].name, picks[0].arguments) for pick in picks):
        return [Candidate(None, None, ambiguous=True)]
    return picks[:1]


class _Duplicate(dict[str, Any]):
    """An object that gives one key two different values."""


def _loads(raw: str) -> Any:
    data = json.loads(raw, object_pairs_hook=_object)
    if _is_deep(data):
        raise ValueError("too deep")
    return data


def _object(pairs: list[tuple[str, Any]]) -> Any:
    result: dict[str, Any] = {}
    clash = False
    for key, item in pairs:
        clash = clash or (key in result and (type(result[key]) is not type(item) or result[key] != item))
        result[key] = item
    return _Duplicate(result) if clash else result


def _inside(value: Any) -> list[Any]:
    return list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else cast("list[Any]", value)


def _is_deep(data: Any) -> bool:
    level = [data]
    for _ in range(DEEPEST):
        level = [item for value in level if isinstance(value, dict | list) for item in _inside(value)]
        if not level:
            return False
    return True


def as_candidate(data: Any) -> Candidate | None:
    """A JSON value as a pick, or None when it carries no call key."""
    if not isinstance(data, dict):
        return None
    mapping = cast("dict[str, Any]", data)
    if len(mapping) == 1 and (inner := next((mapping[key] for key in WRAPPERS if key in mapping), None)) is not None:
        picks = _candidates(inner)
        return picks[0] if picks else None
    key = next((key for key in CALL_KEYS if key in mapping), None)
    if key is None and "name" in mapping and any(key in mapping for key in ARGUMENT_KEYS):
        key = "name"
    if key is None:
        return None
    named = mapping[key]
    if key != "name" and isinstance(named, dict) and "name" in named:
        inner_mapping = cast("dict[str, Any]", named)
        return _candidate(inner_mapping, "name") if _plain(mapping) else Candidate(None, None, ambiguous=True)
    return _candidate(mapping, key)


def _plain(value: Any) -> bool:
    """Whether no object in a value gives one key two values."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Duplicate):
            return False
        if isinstance(item, dict | list):
            waiting += _inside(item)
    return True


def _candidate(mapping: dict[str, Any], call_key: str) -> Candidate:
    """A pick whose arguments stand under their own key (also as a JSON text), or flattened beside the call key."""
    beside = {name: item for name, item in mapping.items() if name != call_key}
    key = next((key for key in ARGUMENT_KEYS if key in mapping), None)
    arguments = beside if key is None else _decoded(mapping[key])
    if key is not None and (arguments is None or arguments in ("", [], {})):
        arguments = {name: item for name, item in beside.items() if name != key}
    return Candidate(mapping[call_key], arguments, beside, ambiguous=not (_plain(mapping) and _plain(arguments)))


def _decoded(arguments: Any) -> Any:
    """An object that arrived as its JSON text, once or twice encoded; any other text as it is."""
    value = arguments
    for _ in range(2):
        if not isinstance(value, str):
            break
        try:
            value = _loads(value)
        except (ValueError, RecursionError):
            return arguments
    return cast("dict[str, Any]", value) if isinstance(value, dict) else arguments


def _repaired(reply: str, broken: list[Span]) -> list[Candidate]:
    found: list[Candidate] = []
    left = REPAIRED_CHARACTERS
    for start, end in broken[: -REPAIRED_SPANS - 1 : -1]:
        raw = reply[start:end]
        if not (named := _NAMES_A_PICK.search(raw)):
            continue
        try:
            data = json.loads(raw, object_pairs_hook=_object, strict=False)  # with raw line breaks in strings
        except ValueError:
            left -= len(raw)
            # One pick within another is a fragment that runs into what follows it.
            joined = raw[0] == "{" and len(re.findall(rf"""\b{named[1]}["'”’]?\s*:""", raw)) > 1
            data = None if joined or left < 0 else _repair(raw)
        found += [msgspec.structs.replace(pick, repaired=True) for pick in _candidates(data)]
    return found[::-1]


def _repair(raw: str) -> Any:
    import json_repair

    if re.match(r"[\[{\s]*[“”]", raw):  # typographic quotes as delimiters; beside straight ones they are text
        raw = raw.translate({0x201C: '"', 0x201D: '"'})
    try:
        return json_repair.loads(raw, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, TypeError):
        return None


def extract_action(text: str) -> dict[str, Any] | None:
    """The last pick in a reply as ``{"call": name, "args": {...}}``, unchecked; None when there is none."""
    picks = [pick for pick in read_reply(text).candidates if isinstance(pick.name, str) and not pick.ambiguous]
    return {"call": picks[-1].name, "args": picks[-1].arguments} if picks else None
