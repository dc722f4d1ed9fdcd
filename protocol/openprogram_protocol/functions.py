"""What is known of an agentic function without importing it.

The structs are made from source text (the daemon's AST discovery) and cross the wire in camelCase. Whatever the source computes at run time is named in
``dynamic`` rather than dropped, so that a reader knows that the static answer is incomplete there.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ParameterKind = Literal["positionalOnly", "positionalOrKeyword", "varPositional", "keywordOnly", "varKeyword"]
FunctionKind = Literal["function", "method", "classmethod", "staticmethod"]


class ParameterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A parameter that a caller fills in; ``annotation`` and ``default`` are source text. The other fields come from the decorator's ``input``."""

    name: str
    kind: ParameterKind
    required: bool
    annotation: str | None = None
    default: str | None = None
    description: str | None = None
    placeholder: str | None = None
    multiline: bool = False
    options: list[Any] | None = None
    hidden: bool = False


class FunctionInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One decorated function. Lines count from 1 and include both ends; ``start_line`` is that of the first decorator, ``line`` that of ``def``.

    ``name`` is what a model and the command line call it (the decorator's ``name=``, else the function's own), ``qualname`` as Python writes it. ``file`` is
    relative to the workspace, with forward slashes. ``injected`` names the runtime parameters, which ``parameters`` leaves out. ``options`` holds the
    decorator's literal keyword arguments; ``dynamic`` names those that are computed, as dotted paths (``render_range``, ``input.city.options``, ``**``).
    """

    name: str
    qualname: str
    file: str
    start_line: int
    line: int
    end_line: int
    kind: FunctionKind = "function"
    is_async: bool = False
    summary: str = ""
    doc: str = ""
    returns: str | None = None
    parameters: list[ParameterInfo] = []
    injected: list[str] = []
    options: dict[str, Any] = {}
    dynamic: list[str] = []

    @property
    def is_nested(self) -> bool:
        """Whether it is defined inside another function, so that only that function can reach it."""
        return "<locals>" in self.qualname


class SourceError(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A file that could not be read as Python; ``line`` counts from 1."""

    file: str
    line: int
    message: str


class FunctionList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All functions below ``root``, by file and line, and the files that hide theirs."""

    root: str
    functions: list[FunctionInfo] = []
    errors: list[SourceError] = []
