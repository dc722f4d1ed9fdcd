"""The control channel between the daemon and a worker. A worker also uses the model and dag methods of `METHODS` on the same socket."""

from __future__ import annotations

from typing import Any

from openprogram_protocol.functions import FunctionInfo
from openprogram_protocol.runs import Wire, Word


class LoadParams(Wire, frozen=True, kw_only=True):
    """D→W: make the workspace importable and import ``modules`` (file paths), bypassing bytecode files. ``sources`` are contents that stand in for files."""

    root: str
    cwd: str
    modules: list[str] = []
    sources: dict[str, bytes] = {}


class LoadResult(Wire, frozen=True, kw_only=True):
    """``error``: ``{type, message, trace, file, line}`` of the import that failed; ``imported``: workspace files that loading read, with their hashes."""

    error: dict[str, Any] | None = None
    imported: dict[str, str] = {}


class WorkerRunParams(Wire, frozen=True, kw_only=True):
    """D→W: call ``file``'s ``qualname``. The entry node exists already: ``node`` opens ``frame`` in ``session``. Output goes to the descriptor sent along."""

    run_id: str
    file: str
    qualname: str
    args: dict[str, Any] = {}
    session: str = ""
    node: str = ""
    frame: str = ""
    model: str = ""
    workdir: str | None = None


class WorkerArguments(Wire, frozen=True, kw_only=True):
    """D→W: read words by the types that a loaded function declares. Output goes to the descriptor sent along."""

    file: str
    qualname: str
    words: list[Word] = []
    command: str = ""


class WorkerArgumentsRead(Wire, frozen=True, kw_only=True):
    """``args`` as JSON, and what ``function`` is, as far as its object tells; or ``error``: ``{type, kinds, message, trace}``."""

    args: dict[str, Any] = {}
    function: FunctionInfo | None = None
    error: dict[str, Any] | None = None


class WorkerCancel(Wire, frozen=True, kw_only=True):
    """D→W: raise in the main thread if that run is current."""

    run_id: str


class WorkerDone(Wire, frozen=True, kw_only=True):
    """W→D: the run ended. ``result`` is in the stored form of values."""

    run_id: str
    status: str
    result: Any = None
    error: dict[str, Any] | None = None
    imported: dict[str, str] = {}
