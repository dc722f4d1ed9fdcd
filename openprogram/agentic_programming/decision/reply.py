"""Reply text → candidate picks, with work linear in the length of the reply.

Rules: reasoning spans are no answer; a candidate is an outermost complete JSON object (fenced or bare, or the one element of a list) that carries a call key;
unfinished fragments are never completed and never joined with what follows; only when strict JSON gives no candidate are the complete spans repaired, and the
result says so. Strings are skipped inside brackets only, since prose holds quotation marks and apostrophes of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

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

# The openers of reasoning that models write, each with its closer.
_TAGS = ("think", "thinking", "thought", "reasoning", "reflection")
_MARK = re.compile(rf'["{{}}\[\]]|<(/?)({"|".join(_TAGS)})>', re.IGNORECASE)
# Possessive, so that a string that never ends is given up at once.
_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STRING_ON_LINE = re.compile(r'[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"')


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
    found, broken, hopeless = _strict(reply, seen.spans)
    if not found and seen.crossed:
        # A quotation mark that was never closed hides what follows it; JSON strings end on their own line, so a second look may find more.
        by_line = scan(reply, strings_end_with_line=True)
        found = _strict(reply, by_line.spans)[0]
    if not found and broken:
        found = _repaired(reply, broken)
    looks_broken = bool(broken) or hopeless or any(_LIKE_JSON.match(reply, start) for start in seen.unclosed[:1000])
    return Reading(tuple(found), seen.text, "incomplete" if seen.open_reasoning else "invalid_json" if looks_broken else "no_action")


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


def _strict(reply: str, spans: list[Span]) -> tuple[list[Candidate], list[Span], bool]:
    """Candidates of the spans that are JSON, the spans that are nearly JSON, and whether one is beyond mending (too deep, a number of too many digits).

    Brackets around prose give way to what they hold.
    """
    found: list[Candidate] = []
    broken: list[Span] = []
    hopeless = False
    waiting = [(span, 0) for span in reversed(spans)]
    while waiting:
        span, level = waiting.pop()
        raw = reply[span.start : span.end]
        try:
            if span.height > DEEPEST:
                raise ValueError("too deep")
            found += _candidates(_loads(raw))
        except json.JSONDecodeError:
            if _like_json(raw) or level == DEEPEST_PROSE:
                broken.append(span)
            else:
                waiting += [(child, level + 1) for child in reversed(span.children)]
        except (ValueError, RecursionError):
            hopeless = True
    return found, broken, hopeless


def _like_json(raw: str) -> bool:
    return _LIKE_PICKS.match(raw) is not None if raw[0] == "[" else _LIKE_JSON.match(raw) is not None and ":" in raw[:200]


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
    for span in broken[: -REPAIRED_SPANS - 1 : -1]:
        raw = reply[span.start : span.end]
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


class Span:
    """A balanced bracket pair: its place in the text, the spans directly inside it, and how deep they go."""

    __slots__ = ("children", "end", "height", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = -1
        self.height = 1
        self.children: Sequence[Span] = ()


class Scan(msgspec.Struct, frozen=True):
    """What was seen: outermost complete spans, the places of brackets that never close, the text outside reasoning, whether reasoning was left open.

    ``crossed``: a string ran over the end of a line, or never ended.
    """

    spans: list[Span]
    unclosed: list[int]
    text: str
    open_reasoning: bool
    crossed: bool


class _Scanner:
    def __init__(self, reply: str, by_line: bool) -> None:
        self.reply = reply
        self.by_line = by_line
        # Where a string never ended: up to there no later one is tried, or many such strings would cost the square of the length.
        self.no_string_before = 0
        self.text: list[str] = []
        self.text_from = 0
        self.open_reasoning = False
        self.crossed = False
        self.reset()

    def reset(self) -> None:
        self.done: list[Span] = []
        self.stack: list[Span] = []
        self.opened = {"{": 0, "[": 0}

    def run(self) -> Scan:
        position = 0
        while match := _MARK.search(self.reply, position):
            mark, position = match[0], match.end()
            if mark == '"':
                position = self.after_string(position)
            elif mark in ("{", "["):
                self.stack.append(Span(match.start()))
                self.opened[mark] += 1
            elif mark in ("}", "]"):
                self.close("{" if mark == "}" else "[", position)
            elif match[1]:  # a lone closing tag: everything before it was reasoning
                self.reset()
                self.text, self.text_from = [], position
            else:
                position = self.after_reasoning(match[2], match.start(), position)
        # What a bracket that never closed had collected is complete by itself.
        spans: list[Span] = [*self.done, *(child for span in self.stack for child in span.children)]
        spans.sort(key=lambda span: span.start)
        text = "".join([*self.text, self.reply[self.text_from :]])
        return Scan(spans, [span.start for span in self.stack], text, self.open_reasoning, self.crossed)

    def after_string(self, position: int) -> int:
        if not self.stack or position < self.no_string_before:
            return position
        if end := (_STRING_ON_LINE if self.by_line else _STRING).match(self.reply, position):
            self.crossed = self.crossed or "\n" in end[0]
            return end.end()
        self.crossed = True
        line_end = self.reply.find("\n", position) if self.by_line else -1
        self.no_string_before = line_end if line_end >= 0 else len(self.reply)
        return position

    def after_reasoning(self, tag: str, start: int, position: int) -> int:
        self.text.append(self.reply[self.text_from : start])
        closing = re.compile(rf"</{tag}>", re.IGNORECASE).search(self.reply, position)
        self.open_reasoning = closing is None
        self.text_from = closing.end() if closing else len(self.reply)
        return self.text_from

    def close(self, opener: str, end: int) -> None:
        if not self.opened[opener]:
            return
        orphans: list[Span] = []
        while True:
            span = self.stack.pop()
            kind = self.reply[span.start]
            self.opened[kind] -= 1
            if kind == opener:
                break
            orphans += span.children
        span.end = end
        if orphans or span.children:
            span.children = [*span.children, *orphans]
            span.height = 1 + max(child.height for child in span.children)
        if not self.stack:
            self.done.append(span)
            return
        outer = self.stack[-1]
        if isinstance(outer.children, list):
            outer.children.append(span)
        else:
            outer.children = [span]


def scan(reply: str, *, strings_end_with_line: bool = False) -> Scan:
    """The bracket spans of a reply. ``strings_end_with_line``: as in JSON, where a string holds no raw line break."""
    return _Scanner(reply, strings_end_with_line).run()
