"""What a search looks for, and in what.

A query is words and ``"quoted phrases"``. A node is found when each of them occurs somewhere in what it says: its name, the texts and numbers of its input,
output and exchanges, and the error it ended with. Anything that occurs is found, also a part of a word and text without spaces between words. Case,
accents, the width of letters and the kind of white space make no difference.

An index can only narrow the search down (`Query.expression`, over `grams`): whether a node matches is always decided on its text, so that an index that is
behind, or knows of nodes that are gone, never makes an answer wrong.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from openprogram.errors import UsageError
from openprogram.store import rows
from openprogram.store.base import Hit
from openprogram.store.values import MARK

MOST_TEXT = 1_000_000
"""Characters of a node that are searched."""

_ACCENTS = re.compile("[\u0300-\u036f]+")
# Scripts that are written without spaces, where a pair of characters says as much as three letters do elsewhere.
_DENSE = "\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_DENSE}]+|[^\W{_DENSE}]+")
_IS_DENSE = re.compile(f"[{_DENSE}]")
_TERM = re.compile(r'"([^"]*)"|(\S+)')
_DATA = re.compile(r"data:[\w/+.;=-]*;base64,", re.ASCII)
_MOST_GRAMS = 32
_BEFORE, _AFTER = 40, 120
# Between the texts of a node, so that no phrase is found across two of them.
_GAP = "\0"


def fold(text: str) -> str:
    """Text without the differences that a search overlooks."""
    if text.isascii():
        return " ".join(text.lower().split())
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).casefold()
    return " ".join(unicodedata.normalize("NFC", plain).split())


def texts_of(row: rows.Row, payloads: Mapping[bytes, rows.Payload]) -> list[str]:
    """What a node says. A value that cannot be read says nothing; data in letters (an image in a message) is left out."""
    texts = [rows.text_of(row.name)]
    for cell in (row.input, row.output, row.exchanges):
        texts += _texts(rows.tree_of(cell, payloads))
    closing = rows.tree_of(row.closing, payloads)
    error = cast("dict[str, Any]", closing).get("error") if isinstance(closing, dict) else None
    if isinstance(error, dict):
        texts += _texts([cast("dict[str, Any]", error).get(key) for key in ("type", "message")])
    return _cut(text for text in texts if text and not _DATA.match(text))


def _cut(texts: Iterable[str]) -> list[str]:
    left = MOST_TEXT
    kept: list[str] = []
    for text in texts:
        if left <= 0:
            break
        kept.append(text[:left])
        left -= len(text)
    return kept


def _texts(tree: Any) -> Iterator[str]:
    """The texts and numbers of a value in its stored form, in order. The words of that form itself and of messages are no texts."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, list):
        for item in cast("list[Any]", tree):
            yield from _texts(item)
    elif isinstance(tree, dict):
        yield from _texts_of_dict(cast("dict[str, Any]", tree))
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield str(tree)


def _texts_of_dict(tree: dict[str, Any]) -> Iterator[str]:
    if MARK in tree:
        kind = tree[MARK]
        if kind not in {"bytes", "bytearray"}:
            yield from _texts(_surrogates(tree["value"]) if kind == "str" else [value for key, value in tree.items() if key != MARK])
    elif tree.keys() == {"role", "blocks"} and isinstance(tree["blocks"], list):
        for block in cast("list[Any]", tree["blocks"]):
            fields = cast("dict[str, Any]", block).items() if isinstance(block, dict) else ()
            yield from _texts([value for key, value in fields if key not in {"type", "id", "data"}])
    else:
        for key, value in tree.items():
            yield key
            yield from _texts(value)


def _surrogates(value: Any) -> Any:
    try:
        return value.encode("ascii").decode("unicode_escape")
    except (AttributeError, ValueError):
        return value


def folded(texts: Iterable[str]) -> str:
    """What is searched of these texts."""
    return _GAP.join(map(fold, texts))


def grams(text: str) -> set[str]:
    """The words of an index for a folded text: at each character the next three, in dense scripts the next two, as far as the run of letters goes.

    So any part of a run is in the index, itself or as the beginning of a word there.
    """
    found: set[str] = set()
    for run in _RUN.findall(text):
        size = _size(run)
        found.update([run[start : start + size] for start in range(len(run))])
    return found


def _size(run: str) -> int:
    return 2 if _IS_DENSE.match(run) else 3


class Query:
    """Something to look for. Raises UsageError (a ValueError) for a query without anything in it."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise UsageError(f"a search is for a string, not {type(text).__name__}")
        found = (quoted or word.strip('"') for quoted, word in _TERM.findall(text.replace(_GAP, " ")))
        self.terms = tuple(dict.fromkeys(term for term in map(fold, found) if term))
        if not self.terms:
            raise UsageError(f'{text!r} holds nothing to search for; give words, or a "quoted phrase"')

    def matches(self, text: str) -> bool:
        """Whether a folded text has every term."""
        return all(term in text for term in self.terms)

    def expression(self) -> str:
        """What an FTS5 table of `grams` must match, so that it holds at least all nodes that match; empty where grams cannot tell."""
        wanted: dict[str, None] = {}
        for run in [run for term in self.terms for run in _RUN.findall(term)]:
            size = _size(run)
            whole = [f'"{run[start : start + size]}"' for start in range(len(run) - size + 1)]
            wanted |= dict.fromkeys(whole or [f'"{run}" *'])
        step = len(wanted) // _MOST_GRAMS + 1
        return " AND ".join(list(wanted)[::step])

    def hit(self, row: rows.Row, payloads: Mapping[bytes, rows.Payload]) -> Hit | None:
        """A node as it is shown, None when it does not match."""
        texts = texts_of(row, payloads)
        if not self.matches(folded(texts)):
            return None
        return Hit(
            node=row.id,
            session=row.session,
            seq=row.seq,
            role=row.role,
            name=rows.text_of(row.name),
            status=row.status,
            started_at=row.started,
            excerpt=self.excerpt([*texts[1:], *texts[:1]]),
        )

    def excerpt(self, texts: Iterable[str]) -> str:
        """A line around the first term, from the text that holds it."""
        for text in texts:
            if self.terms[0] in fold(text):
                start, end = _place(text, self.terms[0])
                first, last = max(0, start - _BEFORE), max(end, start + _AFTER)
                line = " ".join(text[first:last].split())
                return f"{'…' if first else ''}{line}{'…' if last < len(text) else ''}"
        return ""


def _place(text: str, term: str) -> tuple[int, int]:
    """Where in a text as it was written a folded term is; (0, 0) when letters that only fold together are in the way."""
    if text.isascii():
        found = re.search(r"\s+".join(map(re.escape, term.split())), text, re.IGNORECASE)
        return found.span() if found else (0, 0)
    letters: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        here = " " if character.isspace() else fold(character)
        if here != " " or (letters and letters[-1] != " "):
            letters += here
            places += [place] * len(here)
    start = "".join(letters).find(term)
    return (0, 0) if start < 0 else (places[start], places[start + len(term) - 1] + 1)
