"""A workspace in a folder of the test, and hosts that serve it; every process ends with the test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from openprogram_daemon.hosts.pool import Assignment, Hosts
from openprogram_daemon.hosts.process import Worker
from openprogram_protocol.admin import FunctionsEvent
from openprogram_protocol.worker import WorkerDone, WorkerRunParams

T = TypeVar("T")
LIMIT_S = 60.0
HEAD = "import asyncio, contextvars, ctypes, os, subprocess, sys, threading, time\nfrom openprogram import agentic_function\n\n"


def running(body: Callable[[], Awaitable[T]]) -> T:
    """Run a test's coroutine, with a limit."""

    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S):
            return await body()

    return asyncio.run(limited())


async def until(condition: Callable[[], Any], *, timeout_s: float = 15.0) -> Any:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.01)
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Served:
    """A workspace with hosts."""

    def __init__(self, root: Path, *, workspace: str = "w", spawn: bool = False, dispatch: Callable[[Worker, str, Any], Awaitable[Any]] | None = None) -> None:
        self.root = root
        self.workspace = workspace
        self.printed: dict[str, str] = {}
        self.events: list[FunctionsEvent] = []
        self.hosts = Hosts(socket_dispatch=dispatch or _refuse, on_output=self._output, on_functions=lambda _, event: self.events.append(event), spawn=spawn)
        self._runs = 0

    def _output(self, run_id: str, text: str) -> None:
        self.printed[run_id] = self.printed.get(run_id, "") + text

    def write(self, files: dict[str, str]) -> None:
        """Save files, each with the imports that tests use before it if it holds functions."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(HEAD + text if "@agentic_function" in text else text, encoding="utf-8")

    async def open(self, *, python: str | None = None, env: dict[str, str] | None = None, trusted: bool = True) -> None:
        await self.hosts.open(self.workspace, str(self.root), python, str(self.root), env or {}, trusted)

    async def start(self, target: str, *, deadline_s: float | None = None, workdir: str | None = None, node: str = "", **arguments: Any) -> Assignment:
        """Start a function by ``file.py:name``."""
        file, _, name = target.rpartition(":")
        self._runs += 1
        frame = "frame-of-the-run" if node else ""
        params = WorkerRunParams(
            run_id=f"run-{self._runs}", file=file, qualname=name, args=arguments, session="s" if node else "", node=node, frame=frame, workdir=workdir
        )
        return await self.hosts.start(params, self.workspace, deadline_s=deadline_s)

    async def call(self, target: str, **arguments: Any) -> Any:
        """The value of a run that completes."""
        done = await self.run(target, **arguments)
        assert done.status == "completed", done.error
        return done.result

    async def run(self, target: str, **arguments: Any) -> WorkerDone:
        return await (await self.start(target, **arguments)).done


async def _refuse(worker: Worker, method: str, params: Any) -> Any:
    raise NotImplementedError(f"nothing here answers {method}")


@asynccontextmanager
async def served(root: Path, files: dict[str, str], **options: Any) -> AsyncGenerator[Served]:
    """Hosts for a workspace of these files, trusted and open."""
    found = Served(root, **options)
    found.write({"pyproject.toml": "", **files})
    try:
        await found.open()
        yield found
    finally:
        await found.hosts.close()


def rss_mib() -> float:
    """The resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
