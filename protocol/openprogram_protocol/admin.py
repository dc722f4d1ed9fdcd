"""Events, functions, status, stop."""

from __future__ import annotations

from typing import Any

from openprogram_protocol.dag import Node
from openprogram_protocol.functions import FunctionInfo, SourceError
from openprogram_protocol.runs import Wire


class Since(Wire, frozen=True, kw_only=True):
    """Where a subscriber left off."""

    epoch: str
    seq: int


class SubscribeParams(Wire, frozen=True, kw_only=True):
    """``topics``: run, dag, functions, status. ``run_id`` and ``session`` narrow the first two down."""

    topics: list[str]
    run_id: str | None = None
    session: str | None = None
    since: Since | None = None


class SubscribeResult(Wire, frozen=True, kw_only=True):
    """``seq`` is that of the last event before this answer; ``gap``: events since ``since`` are gone, read again what you show."""

    subscription: str
    epoch: str
    seq: int
    gap: bool = False


class UnsubscribeParams(Wire, frozen=True, kw_only=True):
    subscription: str


class RunEvent(Wire, frozen=True, kw_only=True):
    """``kind``: started, delta, output, finished, and gap, which stands for events that were dropped.

    ``data``: the text of output or delta, or the `RunInfo` of started and finished. What a run returned and printed is not told with its end:
    its result has it.
    """

    seq: int
    run_id: str
    kind: str
    data: Any = None
    gap: bool = False


class DagEvent(Wire, frozen=True, kw_only=True):
    """A node that was opened or closed, as it stands; what is large in it is left out and found in the node itself."""

    seq: int
    session: str
    node: Node | None = None
    gap: bool = False


class FunctionsEvent(Wire, frozen=True, kw_only=True):
    """The whole set of a file, so that what is gone from it is seen to be gone."""

    seq: int
    workspace: str
    file: str
    functions: list[FunctionInfo] = []
    error: SourceError | None = None
    gap: bool = False


class StatusEvent(Wire, frozen=True, kw_only=True):
    """``kind``: ``clients`` (one came or left), ``stopping`` (no new runs are taken). What there is now is asked for."""

    seq: int
    kind: str
    message: str = ""
    gap: bool = False


class FunctionsParams(Wire, frozen=True, kw_only=True):
    workspace: str


class LoadError(Wire, frozen=True, kw_only=True):
    """Why the newest version of a file is not served; ``serving`` says whether an older one is."""

    file: str
    line: int
    message: str
    serving: bool = False


class FunctionsResult(Wire, frozen=True, kw_only=True):
    root: str
    functions: list[FunctionInfo] = []
    errors: list[LoadError] = []


class FunctionParams(Wire, frozen=True, kw_only=True):
    workspace: str
    function: str


class FunctionResult(Wire, frozen=True, kw_only=True):
    function: FunctionInfo
    schema: dict[str, Any] | None = None
    exact: bool = False


class StatusResult(Wire, frozen=True, kw_only=True):
    """Health. ``clients``, ``workers``, ``models`` and ``workspaces`` are short descriptions; ``runs`` counts the active ones."""

    pid: int
    version: str
    protocol: int
    epoch: str
    started_at: float
    home: str
    socket: str
    clients: list[dict[str, Any]] = []
    runs: int = 0
    workers: list[dict[str, Any]] = []
    models: list[dict[str, Any]] = []
    workspaces: list[dict[str, Any]] = []
    stopping: bool = False


class StopParams(Wire, frozen=True, kw_only=True):
    """``drain``: let active runs finish first, for at most ``timeout_s``."""

    drain: bool = False
    timeout_s: float = 30.0


class Nothing(Wire, frozen=True, kw_only=True):
    """No fields."""
