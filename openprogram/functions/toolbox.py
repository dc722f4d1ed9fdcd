"""The tools of one call of a model: what it is shown, what its calls mean, and what it may load or read back meanwhile.

Tools are shown in a fixed order, so that requests share their beginning; a deferred one joins at the end once `tool_search` has found it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

from openprogram.functions.gates import place_of
from openprogram.functions.results import text_of
from openprogram.functions.tool import Tool

FOUND_AT_ONCE = 5
READ_AT_ONCE = 20_000


class Toolbox:
    """Tools by the names that a model says. Raises ValueError for two of one name."""

    def __init__(self, tools: Sequence[Tool], *, recall: Callable[[str], Any] | None = None) -> None:
        self._recall = recall
        self._kept: dict[str, str] = {}
        self._deferred = {tool.wire_name: tool for tool in tools if tool.options.defer}
        self._shown = [tool for tool in tools if not tool.options.defer]
        if self._deferred:
            self._shown.append(Tool.of_function(self.tool_search))
        if any(tool.options.persist_full for tool in tools):
            self._shown.append(Tool.of_function(self.read_result))
        self._by_name: dict[str, Tool] = {}
        for tool in [*self._shown, *self._deferred.values()]:
            other = self._by_name.setdefault(tool.wire_name, tool)
            if other is not tool:
                raise ValueError(_clash(other, tool))
        if len(self._deferred) < sum(tool.options.defer for tool in tools):
            first, second = _doubled([tool for tool in tools if tool.options.defer])
            raise ValueError(_clash(first, second))

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @property
    def tools(self) -> list[Tool]:
        """Every tool that may be called, the deferred ones last."""
        return list(self._by_name.values())

    def shown(self) -> list[Tool]:
        """The tools whose schemas the model is sent now."""
        return list(self._shown)

    def find(self, name: str) -> Tool | None:
        """The tool that a model means. A deferred one that it knows already is loaded with it."""
        tool = self._by_name.get(name) or next((tool for tool in self._by_name.values() if tool.name == name), None)
        if tool is not None:
            self._load(tool)
        return tool

    def unknown(self, name: str) -> str:
        """What a model is told that called something else."""
        names = [tool.wire_name for tool in self._shown]
        near = difflib.get_close_matches(name, self._by_name, n=1)
        guess = f" Did you mean {near[0]}?" if near else ""
        return f"there is no tool {name[:100]!r}.{guess} The tools are: {', '.join(names)}"

    def _load(self, tool: Tool) -> None:
        if self._deferred.pop(tool.wire_name, None) is not None:
            self._shown.append(tool)

    def tool_search(self, query: str) -> str:
        """Find further tools by what they do, or by name, and load them. Use when none of the tools at hand fits; those found can be called next."""
        words = set(re.findall(r"\w+", query.lower().replace("_", " ")))
        ranked = sorted(self._deferred.values(), key=lambda tool: -_score(tool, query, words))
        found = [tool for tool in ranked if _score(tool, query, words) > 0][:FOUND_AT_ONCE]
        for tool in found:
            self._load(tool)
        if found:
            return "Loaded:\n" + "\n".join(f"- {tool.wire_name}: {_first_line(tool.description)}" for tool in found)
        rest = ", ".join(list(self._deferred)[:50])
        return f"Nothing fits {query[:200]!r}. " + (f"There are: {rest}" if rest else "Every tool is loaded already.")

    def keep(self, name: str, text: str) -> None:
        """Keep a whole result, to be read back under ``name``."""
        self._kept[name] = text

    def read_result(self, id: str, start: int = 0, length: int = READ_AT_ONCE) -> str:
        """Read on in a result that was cut: ``length`` characters from ``start`` on of the result with this id."""
        text = self._kept.get(id)
        if text is None and self._recall is not None:
            value = self._recall(id)
            text = None if value is None else text_of(value)
        if text is None:
            raise ValueError(f"there is no result {id[:100]!r}; the id stands where a result was cut")
        begin = max(start, 0)
        piece = text[begin : begin + max(1, min(length, READ_AT_ONCE))]
        end = begin + len(piece)
        return f"{piece}\n[characters {begin} to {end} of {len(text)}]" if piece else f"[the result has {len(text)} characters]"


def _score(tool: Tool, query: str, words: set[str]) -> int:
    if tool.name.lower() in query.lower():
        return 100
    name = set(re.findall(r"\w+", tool.name.lower().replace("_", " ")))
    text = set(re.findall(r"\w+", f"{tool.description} {' '.join(tool.options.toolset)} {tool.options.label or ''}".lower()))
    return 3 * len(words & name) + len(words & text)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "(no description)"


def _doubled(tools: Sequence[Tool]) -> tuple[Tool, Tool]:
    seen: dict[str, Tool] = {}
    for tool in tools:
        if tool.wire_name in seen:
            return seen[tool.wire_name], tool
        seen[tool.wire_name] = tool
    raise AssertionError("no two tools share a name")


def _clash(first: Tool, second: Tool) -> str:
    places = f"{place_of(first.function)} and {place_of(second.function)}"
    way_out = "give one another name=, keep one out with register_globally=False, or name the tools of this call with tools=[…]"
    return f"two tools are called {second.name!r}: {places}; {way_out}"
