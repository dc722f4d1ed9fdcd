"""The versions of a workspace's code that can be called, and their workers.

A generation is what was loaded from one state of the files; all its workers run the same text. Before a call the files are compared with the disk: if they
differ a new generation is made, and it takes the place of the old one only if it loaded. A call of code that does not load is answered by the newest generation
that has it. Runs end on the generation that they began on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from openprogram_protocol.admin import LoadError
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.worker import LoadParams, LoadResult

from openprogram_daemon.discovery.watcher import stamp
from openprogram_daemon.errors import RefusedError
from openprogram_daemon.hosts.channel import LostError
from openprogram_daemon.hosts.process import Worker
from openprogram_daemon.hosts.sources import Sources, relative, unchanged

MOST_OLD = 3
MOST_IDLE = 4
IDLE_S = 600.0
STILL_S = 0.02
_MOST_WAITS = 10

Attach = Callable[[Worker], None]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A file that did not load: the worker that tried, ``error`` as `LoadResult` has it, and what was read until then, as path → digest."""

    worker: Any
    error: dict[str, Any]
    read: dict[str, str]

    @property
    def is_in_the_text(self) -> bool:
        """Whether nothing but another text can mend it."""
        return self.error["type"] in ("SyntaxError", "IndentationError", "TabError")

    def misses(self, file: str) -> bool:
        """Whether a file of that name, relative to the root, may be the module that was not found."""
        parts = Path(file).with_suffix("").parts
        return self.error["type"] == "ModuleNotFoundError" and any(part in self.error["message"] for part in parts)

    def shown(self, root: Path) -> str:
        """As a sentence begins with it."""
        place = f"{relative(self.error['file'], root)}:{self.error['line']}: " if self.error.get("file") else ""
        return f"{place}{self.error['type']}: {self.error['message']}"


class Served(NamedTuple):
    """A worker for a run, or why there is none. ``warning``: what the caller must know."""

    worker: Worker
    generation: Generation | None
    warning: str | None = None
    failure: Failure | None = None


class Generation:
    """One version. ``targets`` are the files that loaded in it."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.sources = Sources()
        self.targets: set[str] = set()
        self.idle: list[Worker] = []
        self.busy: dict[str, tuple[Worker, float]] = {}
        self.is_partial = False
        """A file was changed between its import and now, so that its text is unknown."""
        self.digests: dict[str, str] = {}

    def pick(self, file: str) -> Worker | None:
        """An idle worker, rather one that has the file; it is no longer idle then."""
        self.idle = [worker for worker in self.idle if not worker.dead]
        chosen = next((worker for worker in self.idle if file in worker.loaded), self.idle[-1] if self.idle else None)
        if chosen is not None:
            self.idle.remove(chosen)
        return chosen

    def imported(self, files: dict[str, str]) -> None:
        """A worker compiled these."""
        self.digests |= files
        self.is_partial = not self.sources.add(files) or self.is_partial

    def retire(self, *, idle_for: float = 0.0) -> None:
        """End idle workers."""
        now = time.monotonic()
        ended = [worker for worker in self.idle if worker.dead or now - worker.idle_since >= idle_for]
        self.idle = [worker for worker in self.idle if worker not in ended]
        for worker in ended:
            worker.kill()


class Generations:
    """Those of one workspace. ``fork`` makes a worker for its interpreter and environment, which ``key`` names."""

    def __init__(self, root: Path, cwd: str, key: Any, fork: Callable[[], Awaitable[Worker]]) -> None:
        self.root = root
        self.cwd = cwd
        self.key = key
        self._fork = fork
        self._lock = asyncio.Lock()
        self._current: Generation | None = None
        self._old: list[Generation] = []
        self._failures: dict[str, Failure] = {}

    def all(self) -> list[Generation]:
        """The newest first."""
        return [*([self._current] if self._current else []), *reversed(self._old)]

    def newest(self) -> Generation | None:
        """The current generation if it is what the disk holds. Reads the disk; any thread may ask."""
        current = self._current
        return current if current is not None and self._is_good(current) and current.sources.current() else None

    def _is_good(self, current: Generation) -> bool:
        return not current.is_partial and current.key == self.key

    async def serve(self, file: str, attach: Attach, *, newest: Generation | None = None) -> Served:
        """A worker that has loaded the newest text of a file, or the last good one. ``newest`` is what `newest` said for this call.

        ``attach`` is called with each worker that is about to import something for this run. Raises RefusedError when too many old versions are still running.
        """
        for last in (False, False, True):
            async with self._lock:
                is_seen = newest is not None and newest is self._current and self._is_good(newest)
                generation = newest if newest is not None and is_seen else await self._newest(file)
                newest = None
                found = None if generation is self._current and file in generation.targets else await self._try(generation, file, attach)
                if found is not None and found.failure is None and not generation.is_partial:
                    self._swap(generation)
            if found is None:
                found = await self._worker(generation, file, attach)
            # What was imported while it was saved is new enough for this call, but perhaps half a file.
            if last or found.failure is not None or not generation.is_partial:
                break
            found.worker.kill()
        if found.failure is not None:
            return await self._last_good(file, found.failure, attach)
        self._failures.pop(file, None)
        return found

    async def _newest(self, file: str) -> Generation:
        """The current generation if it is what the disk holds, else a new one that nothing is loaded in."""
        current = await asyncio.to_thread(self.newest)
        if current is not None and current is self._current:
            return current
        current = self._current
        await _still([file, *(current.sources.files if current else ())])
        still_running = [generation for generation in self.all() if generation.busy]
        if len(still_running) > MOST_OLD:
            oldest = min((began, run_id) for run_id, (_, began) in still_running[-1].busy.items())
            message = f"{len(still_running)} older versions of {self.root} are still running; wait for the oldest run, {oldest[1]}, or cancel it"
            raise RefusedError(ErrorCode.USAGE, message)
        return Generation(self.key)

    async def _try(self, generation: Generation, file: str, attach: Attach) -> Served:
        """Load a file for the first time in a generation. What failed is not tried again while the same text is there."""
        failure = self._failures.get(file)
        if failure is not None and failure.is_in_the_text and await asyncio.to_thread(unchanged, failure.read):
            return Served(failure.worker, None, failure=failure)
        return await self._worker(generation, file, attach)

    def _swap(self, generation: Generation) -> None:
        if generation is self._current:
            return
        if self._current is not None:
            self._current.retire()
            self._old.append(self._current)
        self._current = generation
        self._forget_old()

    def _forget_old(self) -> None:
        """Keep the old ones that still run, and those that are the last to have loaded some file."""
        seen = set(self._current.targets) if self._current else set[str]()
        kept: list[Generation] = []
        for generation in reversed(self._old):
            if generation.busy or generation.targets - seen:
                kept.insert(0, generation)
            seen |= generation.targets
        self._old = kept

    async def _worker(self, generation: Generation, file: str, attach: Attach) -> Served:
        worker = generation.pick(file) or await self._fork()
        worker.on_imports = generation.imported
        try:
            attach(worker)
            if file in worker.loaded:
                return Served(worker, generation)
            sources = {} if worker.loaded else generation.sources.texts()
            result = await _load(worker, LoadParams(root=str(self.root), cwd=self.cwd, modules=[file], sources=sources))
        except BaseException:
            worker.kill()
            raise
        if result.error is not None:
            worker.kill()  # what it imported before the failure is half a program
            return Served(worker, generation, failure=Failure(worker=worker, error=result.error, read=result.imported))
        await asyncio.to_thread(generation.imported, result.imported)
        generation.targets.add(file)
        return Served(worker, generation)

    async def _last_good(self, file: str, failure: Failure, attach: Attach) -> Served:
        self._failures[file] = failure
        for generation in self.all():
            if file not in generation.targets:
                continue
            found = await self._worker(generation, file, attach)
            if found.failure is None:
                return found._replace(warning=f"{failure.shown(self.root)}; the last good version of {relative(file, self.root)} answered")
        return Served(failure.worker, None, failure=failure)

    def began(self, served: Served, run_id: str) -> None:
        """A run begins."""
        if served.generation is not None:
            served.generation.busy[run_id] = (served.worker, time.monotonic())

    def finished(self, served: Served, run_id: str, *, reuse: bool) -> None:
        """A run has ended; its worker waits for the next one, or is ended."""
        generation = served.generation
        if generation is None:
            return
        generation.busy.pop(run_id, None)
        if reuse and not served.worker.dead and generation is self._current and not generation.is_partial and len(generation.idle) < MOST_IDLE:
            generation.idle.append(served.worker)
        else:
            served.worker.kill()
            self._forget_old()

    def errors(self) -> list[LoadError]:
        """Why the newest text of some files is not served. Reads the disk: what was mended is left out."""
        found: list[LoadError] = []
        for file, failure in list(self._failures.items()):
            if not unchanged(failure.read):
                self._failures.pop(file, None)
                continue
            place = failure.error.get("file") or file
            message = f"{failure.error['type']}: {failure.error['message']}"
            found.append(LoadError(file=relative(place, self.root), line=failure.error.get("line") or 1, message=message, serving=self.serves(file)))
        return found

    def serves(self, file: str) -> bool:
        """Whether some generation has the file."""
        return any(file in generation.sources.files for generation in self.all())

    def file_changed(self, changed: str) -> None:
        """A file of the workspace was saved, perhaps the module that another one missed. What a failed import did read is looked at by `errors`."""
        self._failures = {file: failure for file, failure in self._failures.items() if not failure.misses(changed)}

    def retire(self, *, idle_for: float = 0.0) -> None:
        """End the workers that were idle for so many seconds."""
        for generation in self.all():
            generation.retire(idle_for=idle_for)


async def _still(files: list[str]) -> None:
    """Wait a moment while files are being written: between the two steps of a save there is no text in them."""
    for _ in range(_MOST_WAITS):
        stamps = await asyncio.to_thread(lambda: [stamp(Path(file)) for file in files])
        youngest = time.time() - max((found[0] / 1e9 for found in stamps if found), default=0.0)
        if not 0 <= youngest < STILL_S:
            return
        await asyncio.sleep(STILL_S - youngest)


async def _load(worker: Worker, params: LoadParams) -> LoadResult:
    try:
        return await worker.load(params)
    except LostError:
        how = await worker.ended
        error: dict[str, Any] = {"type": "WorkerDied", "kinds": [], "message": f"the process {how} while the module was imported", "trace": ""}
        return LoadResult(error=error)
