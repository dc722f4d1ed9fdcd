"""Text → the bracket spans in it, with work linear in its length and most of it done by the regular-expression engine.

Strings are skipped inside brackets only, since prose holds quotation marks and apostrophes of its own. Reasoning spans are left out: whatever stands in them is
no answer. Brackets that hold neither a bracket, nor a quotation mark, nor (in braces) a colon can be no JSON object and hold none; they count as prose.
"""

from __future__ import annotations

import re

import msgspec

Span = tuple[int, int]
"""Start and end of a balanced bracket pair."""

_TAGS = "think|thinking|thought|reasoning|reflection"
_TAG = rf"<(/?)({_TAGS})>"
_NO_TAG = rf"<(?!/?(?:{_TAGS})>)"
_LEAF = r'\{[^{}\[\]":<]*+\}|\[[^{}\[\]"<]*+\]'
# Possessive, so that a string that never ends is given up at once.
_STRING = r'"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+"'
_STRING_ON_LINE = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_MARKS = rf'([{{\[]+)|([}}\]]+)|(")|{_TAG}'


def _until_mark(*skipped: str) -> re.Pattern[str]:
    # Nothing behind the loop can fail, so that it never gives anything back. Possessive it would be wrong before Python 3.11.5 (gh-106052).
    return re.compile(rf"(?:{'|'.join(skipped)}|{_NO_TAG})*(?:{_MARKS})?", re.IGNORECASE)


_OUTSIDE = _until_mark(r"[^{\[<]++", _LEAF)
_INSIDE = _until_mark(r'[^{}\[\]"<]++', _STRING, _LEAF)
_INSIDE_BY_LINE = _until_mark(r'[^{}\[\]"<]++', _STRING_ON_LINE, _LEAF)
_INSIDE_PLAIN = _until_mark(r"[^{}\[\]<]++")


class Scan(msgspec.Struct, frozen=True):
    """What was seen: complete spans in the order in which they close, the places of brackets that never close, the text outside reasoning, whether reasoning
    was left open, and how far brackets were looked for."""

    closed: list[Span]
    unclosed: list[int]
    text: str
    open_reasoning: bool
    end: int

    def outermost(self, inside: int | None = None) -> list[int]:
        """The spans, by number, that lie in no other; or those directly inside of the one with that number."""
        behind, floor = (len(self.closed), -1) if inside is None else (inside, self.closed[inside][0])
        found: list[int] = []
        edge = float("inf")
        for number in range(behind - 1, -1, -1):
            start, end = self.closed[number]
            if start <= floor:
                break
            if end <= edge:
                found.append(number)
                edge = start
        return found[::-1]


def scan(reply: str, *, strings_end_with_line: bool = False) -> Scan:
    """The bracket spans of a reply. ``strings_end_with_line``: as in JSON, where a string holds no raw line break."""
    return _Scanner(reply, strings_end_with_line).run()


class _Scanner:
    def __init__(self, reply: str, by_line: bool) -> None:
        self.reply = reply
        self.by_line = by_line
        # Behind the last bracket that closes nothing can be complete.
        last = max(reply.rfind("}"), reply.rfind("]")) + 1
        self.end = last if reply.find("<", last) < 0 else len(reply)
        # Where a string never ended: up to there quotation marks are plain text, or many such strings would cost the square of the length.
        self.plain_until = 0
        self.text: list[str] = []
        self.text_from = 0
        self.open_reasoning = False
        self.reset()

    def reset(self) -> None:
        self.closed: list[Span] = []
        self.stack: list[int] = []
        self.opened = {"{": 0, "[": 0}

    def run(self) -> Scan:
        reply, end, position = self.reply, self.end, 0
        inside = _INSIDE_BY_LINE if self.by_line else _INSIDE
        while position < end:
            limit = len(reply)
            if not self.stack:
                match = _OUTSIDE.match(reply, position)
            elif position < self.plain_until:
                limit = self.plain_until
                match = _INSIDE_PLAIN.match(reply, position, limit)
            else:
                match = inside.match(reply, position)
            assert match is not None  # every part of it may be empty
            kind, position = match.lastindex, match.end()
            if kind is None:
                position = limit
            elif kind == 1:
                self.open(match.start(1), match[1])
            elif kind == 2:
                self.close(match.start(2), match[2])
            elif kind == 3:
                self.leave_string_open(position)
            else:
                position = self.pass_tag(match[4], match[5], match.start(4) - 1, position)
        return Scan(self.closed, self.stack, "".join([*self.text, reply[self.text_from :]]), self.open_reasoning, end)

    def open(self, start: int, marks: str) -> None:
        self.stack.extend(range(start, start + len(marks)))
        braces = marks.count("{")
        self.opened["{"] += braces
        self.opened["["] += len(marks) - braces

    def close(self, start: int, marks: str) -> None:
        reply, stack, opened = self.reply, self.stack, self.opened
        for end, mark in enumerate(marks, start + 1):
            opener = "{" if mark == "}" else "["
            if not opened[opener]:
                continue
            while True:
                begin = stack.pop()
                kind = reply[begin]
                opened[kind] -= 1
                if kind == opener:
                    break
            self.closed.append((begin, end))

    def leave_string_open(self, position: int) -> None:
        line_end = self.reply.find("\n", position) if self.by_line else -1
        self.plain_until = line_end if line_end >= 0 else len(self.reply)

    def pass_tag(self, slash: str, tag: str, start: int, end: int) -> int:
        """Where to go on behind a tag of reasoning."""
        if slash:  # a lone closing tag: everything before it was reasoning
            self.reset()
            self.text, self.text_from = [], end
            return end
        self.text.append(self.reply[self.text_from : start])
        closing = re.compile(rf"</{tag}>", re.IGNORECASE).search(self.reply, end)
        self.open_reasoning = closing is None
        self.text_from = closing.end() if closing else len(self.reply)
        return self.text_from
