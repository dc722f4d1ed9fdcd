"""What a docstring says about each parameter: Google's ``Args:``, NumPy's underlined ``Parameters`` and Sphinx's ``:param name:``.

A description is a help to the model and never needed: whatever the text looks like, reading it raises nothing.
"""

from __future__ import annotations

import functools
import inspect
import re

_GOOGLE = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_GOOGLE_ITEM = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ITEM = re.compile(r"^\*{0,2}(\w+)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
LONGEST = 1000


@functools.lru_cache(maxsize=512)
def parameter_notes(doc: str | None) -> dict[str, str]:
    """Descriptions by parameter name, each on one line; shared, so nobody changes it in place."""
    if not doc or not doc.strip():
        return {}
    lines = inspect.cleandoc(doc).splitlines()
    notes: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        if found := _SPHINX.match(line):
            notes.setdefault(found[1], [found[2], *_indented(lines[number + 1 :])])
        elif _GOOGLE.match(line):
            _read_items(_block(lines[number + 1 :]), _GOOGLE_ITEM, notes)
        elif line.strip() == "Parameters" and number + 1 < len(lines) and set(lines[number + 1].strip()) == {"-"}:
            _read_items(_until_heading(lines[number + 2 :]), _NUMPY_ITEM, notes)
    return {name: " ".join(" ".join(words).split())[:LONGEST] for name, words in notes.items() if any(word.strip() for word in words)}


def _indented(lines: list[str]) -> list[str]:
    """The lines up to the first that is blank or not indented."""
    end = next((number for number, line in enumerate(lines) if not line.startswith((" ", "\t"))), len(lines))
    return lines[:end]


def _block(lines: list[str]) -> list[str]:
    """An indented block, blank lines inside it included, at its own indentation."""
    end = next((number for number, line in enumerate(lines) if line.strip() and not line.startswith((" ", "\t"))), len(lines))
    return inspect.cleandoc("\n" + "\n".join(lines[:end])).splitlines()


def _until_heading(lines: list[str]) -> list[str]:
    end = next((number for number, line in enumerate(lines[1:]) if line.strip() and set(line.strip()) == {"-"}), len(lines))
    return lines[:end]


def _read_items(lines: list[str], item: re.Pattern[str], notes: dict[str, list[str]]) -> None:
    """Items stand at the margin, and what belongs to one is indented under it."""
    current: list[str] | None = None
    for line in lines:
        if line.startswith((" ", "\t")):
            if current is not None:
                current.append(line)
            continue
        found = item.match(line)
        current = notes.setdefault(found[1], []) if found else None
        if found and current is not None and item.groups > 1:
            current.append(found[2])
