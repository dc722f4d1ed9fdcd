"""Connecting, workspaces, runs: what a client says to have a function run, and what it hears."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

RunState = Literal["queued", "running", "completed", "error", "cancelled", "interrupted"]
Role = Literal["client", "editor", "worker"]
TERMINAL: frozenset[str] = frozenset({"completed", "error", "cancelled", "interrupted"})


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Frozen, camelCase on the wire, defaults left out."""


class ConnectParams(Wire, frozen=True, kw_only=True):
    """Opens a connection. ``protocol`` must be the daemon's, else VERSION is the answer, whose data hold protocol, version, pid, runs and clients (counts)."""

    protocol: int
    role: Role = "client"
    features: list[str] = []
    client: str = ""
    pid: int = 0


class ConnectResult(Wire, frozen=True, kw_only=True):
    """``epoch`` names this life of the daemon: events of another epoch are not comparable. ``fingerprint``: of the files that the daemon was started from."""

    protocol: int
    version: str
    pid: int
    epoch: str
    fingerprint: str


class WorkspaceParams(Wire, frozen=True, kw_only=True):
    """The folder whose functions a client wants. ``python`` and ``env`` are what its runs use; ``env`` lives in memory only. ``trusted``: its code may run."""

    root: str
    python: str | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    trusted: bool = False


class WorkspaceResult(Wire, frozen=True, kw_only=True):
    """The workspace as the daemon knows it; ``workspace`` is its id in later calls."""

    workspace: str
    root: str
    trusted: bool


class TrustParams(Wire, frozen=True, kw_only=True):
    workspace: str
    trusted: bool = True


class RunParams(Wire, frozen=True, kw_only=True):
    """Start ``function`` (``file.py:name``, ``package.module:name`` or a unique bare name) with JSON arguments.

    ``run_id`` is 32 random hexadecimal digits made by the client: the same id with the same params is the same run, never a second one.
    """

    run_id: str
    function: str
    workspace: str
    args: dict[str, Any] = {}
    session: str | None = None
    model: str | None = None
    workdir: str | None = None
    deadline_s: float | None = None


class Word(Wire, frozen=True, kw_only=True):
    """An argument as a person writes it: ``name=text``. ``from_file``: the text was read from a file, which may end with a newline."""

    name: str
    text: str
    from_file: bool = False


class ArgumentsParams(Wire, frozen=True, kw_only=True):
    """Read words by the types that ``function`` declares, which is imported for that. ``command``: how the call is written, for an error that shows it.

    ``timeout_s``: how long the import may take.
    """

    workspace: str
    function: str
    words: list[Word] = []
    command: str = ""
    timeout_s: float | None = None


class ArgumentsResult(Wire, frozen=True, kw_only=True):
    """``args`` as `RunParams` takes them; ``output``: what was printed by the import."""

    args: dict[str, Any] = {}
    output: str = ""


class RunStarted(Wire, frozen=True, kw_only=True):
    """The run is recorded. ``repeated``: it existed already."""

    run_id: str
    session: str
    repeated: bool = False


class ResultParams(Wire, frozen=True, kw_only=True):
    """Wait for a run; ``timeout_s`` None waits without limit, 0 only looks."""

    run_id: str
    timeout_s: float | None = None


class RunInfo(Wire, frozen=True, kw_only=True):
    """A run. ``state`` is terminal or not; ``result`` the return value as JSON; ``error`` ``{type, message, trace}``; times in seconds since the epoch."""

    run_id: str
    function: str
    state: RunState
    session: str
    node: str | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    output: str = ""
    warning: str | None = None
    workspace: str = ""
    source_hash: str | None = None
    pid: int | None = None
    started_at: float = 0.0
    ended_at: float | None = None


class CancelParams(Wire, frozen=True, kw_only=True):
    """``grace_s``: how long the function may take to end by itself before its worker is killed."""

    run_id: str
    grace_s: float = 2.0


class CancelResult(Wire, frozen=True, kw_only=True):
    """What happened: ``cancelled`` by itself, ``killed``, or ``ended`` before."""

    outcome: Literal["cancelled", "killed", "ended"]
    state: RunState


class RunsParams(Wire, frozen=True, kw_only=True):
    """Runs, newest first; ``active`` only those not ended."""

    active: bool = False
    limit: int = 100


class RunsResult(Wire, frozen=True, kw_only=True):
    runs: list[RunInfo] = []
