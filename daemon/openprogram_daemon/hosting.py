"""What the daemon needs of the processes that run user code; `openprogram_daemon.hosts` has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from openprogram_protocol.admin import FunctionsEvent, FunctionsResult
from openprogram_protocol.functions import FunctionInfo
from openprogram_protocol.runs import ArgumentsParams, ArgumentsResult
from openprogram_protocol.worker import WorkerDone, WorkerRunParams

from openprogram_daemon.peer import Worker

Dispatch = Callable[[Any, str, Any], Awaitable[Any]]
OnOutput = Callable[[str, str], None]
OnFunctions = Callable[[str, FunctionsEvent], None]


class Assignment(Protocol):
    """A run that a worker has. ``warning`` is what its caller must know, such as that an older version serves."""

    @property
    def warning(self) -> str | None: ...
    @property
    def source_hash(self) -> str | None: ...
    @property
    def pid(self) -> int: ...
    @property
    def worker(self) -> Worker: ...
    @property
    def done(self) -> asyncio.Future[WorkerDone]: ...


class Found(Protocol):
    """A function as it was on disk when somebody looked."""

    @property
    def info(self) -> FunctionInfo: ...


class Hosts(Protocol):
    """Workspaces that are watched, and workers."""

    async def open(self, workspace_id: str, root: str, python: str | None, cwd: str, env: dict[str, str], trusted: bool) -> None: ...

    async def functions(self, workspace_id: str) -> FunctionsResult: ...

    async def find(self, workspace_id: str, target: str) -> FunctionInfo: ...

    async def look(self, workspace_id: str, target: str) -> Found:
        """`find`, with what `start` needs to know of that moment."""
        ...

    async def arguments(self, workspace_id: str, params: ArgumentsParams) -> ArgumentsResult:
        """Words as the arguments of a run."""
        ...

    async def start(self, run: WorkerRunParams, workspace_id: str, *, deadline_s: float | None, found: Any = None) -> Assignment: ...

    async def cancel(self, run_id: str, grace_s: float) -> Any:
        """The ``outcome`` of a `CancelResult`.."""
        ...

    def describe(self) -> list[dict[str, Any]]: ...

    async def close(self) -> None: ...
