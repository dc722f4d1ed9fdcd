"""`Hosts`: workspaces that are watched, and the processes that run their functions. All its methods run on the daemon's loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from openprogram_protocol.admin import FunctionsEvent, FunctionsResult, LoadError
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.functions import FunctionInfo
from openprogram_protocol.runs import ArgumentsParams, ArgumentsResult
from openprogram_protocol.worker import WorkerArguments, WorkerDone, WorkerRunParams

from openprogram.errors import UnknownTargetError, UsageError
from openprogram_daemon.discovery.watcher import FileState, Watcher
from openprogram_daemon.discovery.workspace import Workspace as Folder
from openprogram_daemon.errors import RefusedError
from openprogram_daemon.hosts import targets
from openprogram_daemon.hosts.arguments import not_loaded, read_by
from openprogram_daemon.hosts.generations import IDLE_S, Generation, Generations, Served
from openprogram_daemon.hosts.output import HEAD, TAIL, Kept, Output
from openprogram_daemon.hosts.process import Dispatch, Worker, Zygote, default_python

Outcome = Literal["cancelled", "killed", "ended"]
GRACE_S = 2.0
_SWEEP_S = 30.0
_AGAIN_S = 0.5


class Assignment:
    """A run that a worker has. ``done`` resolves whatever happens; ``warning`` is what the caller must know."""

    def __init__(self, run: WorkerRunParams, served: Served, output: Output) -> None:
        self.run = run
        self.worker = served.worker
        self.warning = served.warning
        self.pid = served.worker.pid
        self.source_hash = served.generation.digests.get(run.file) if served.generation else None
        self.served = served
        self.output = output
        self.done: asyncio.Future[WorkerDone] = asyncio.get_running_loop().create_future()
        self.killed_because: str | None = None
        self.expired_after: float | None = None
        self.expiry: asyncio.Task[Any] | None = None


class Found(NamedTuple):
    """A function on disk, and the generation that was all of the disk's text at that moment, if one was."""

    info: FunctionInfo
    newest: Generation | None


class _Workspace(msgspec.Struct):
    """An open workspace. ``unseen`` holds the functions that only the import of their file showed, by target."""

    root: Path
    trusted: bool
    generations: Generations
    unseen: dict[str, FunctionInfo] = {}


class Hosts:
    """``socket_dispatch(worker, method, params)`` answers what workers ask; the two others are told what runs print and which functions a file has now.

    ``spawn`` starts each worker as a fresh process instead of forking it.
    """

    def __init__(
        self,
        *,
        socket_dispatch: Dispatch,
        on_output: Callable[[str, str], None],
        on_functions: Callable[[str, FunctionsEvent], None],
        spawn: bool = False,
    ) -> None:
        self._dispatch = socket_dispatch
        self._on_output = on_output
        self._on_functions = on_functions
        self._spawn = spawn
        self._workspaces: dict[str, _Workspace] = {}
        self._watchers: dict[Path, asyncio.Task[Watcher]] = {}
        self._zygotes: dict[Any, asyncio.Task[Zygote]] = {}
        self._active: dict[str, Assignment] = {}
        self._loop = asyncio.get_running_loop()
        self._sweeper = self._loop.create_task(self._sweep())
        self._closing = False

    async def open(self, workspace_id: str, root: str, python: str | None, cwd: str, env: dict[str, str], trusted: bool) -> None:
        """Watch a workspace and find its functions; nothing of it is imported. Opening it again changes what later runs get."""
        folder = Path(root).resolve()
        key = (python or default_python(), tuple(sorted(_environment(env).items())))
        known = self._workspaces.get(workspace_id)
        if known is None:
            generations = Generations(folder, cwd, key, lambda: self._fork(workspace_id))
            self._workspaces[workspace_id] = _Workspace(folder, trusted, generations)
        else:
            known.trusted, known.generations.key, known.generations.cwd = trusted, key, cwd
        await self._watcher(folder)

    async def functions(self, workspace_id: str) -> FunctionsResult:
        """Every function of a workspace as it is on disk, and what is wrong with its files."""
        workspace = self._workspace(workspace_id)
        watcher = await self._watcher(workspace.root)

        def look() -> FunctionsResult:
            watcher.refresh()
            found = watcher.functions()
            generations = workspace.generations
            static = [
                LoadError(file=error.file, line=error.line, message=error.message, serving=generations.serves(str(workspace.root / error.file)))
                for error in found.errors
            ]
            known = {(error.file, error.line) for error in static}
            loading = [error for error in generations.errors() if (error.file, error.line) not in known]
            return FunctionsResult(root=found.root, functions=found.functions, errors=[*static, *loading])

        return await asyncio.to_thread(look)

    async def find(self, workspace_id: str, target: str) -> FunctionInfo:
        """The function that a target names, in the files as they are on disk. Raises UnknownTargetError, UsageError."""
        return (await self.look(workspace_id, target)).info

    async def look(self, workspace_id: str, target: str) -> Found:
        """`find`, and for `start` which generation is what the disk holds: one look at the disk, made after the call came, serves both."""
        workspace = self._workspace(workspace_id)
        root = workspace.root
        watcher = await self._watcher(root)

        def look() -> Found:
            return Found(info(), workspace.generations.newest())

        def info() -> FunctionInfo:
            with contextlib.suppress(UsageError):  # it may be mended since
                found = targets.choose(target, watcher.functions().functions, root)
                if watcher.is_current(root / found.file):
                    return found
            watcher.refresh_changed()
            functions = watcher.functions().functions
            try:
                return targets.choose(target, functions, root)
            except UnknownTargetError:
                watcher.refresh()
            path = targets.path_in(target, root)
            functions = watcher.functions().functions
            if path is not None and path.is_file() and not any(root / info.file == path for info in functions):
                functions = Folder(root).read(path).functions
            try:
                return targets.choose(target, functions, root)
            except UnknownTargetError as error:
                if target in workspace.unseen:
                    return workspace.unseen[target]
                raise targets.broken(target, root, watcher.functions().errors) or error from None

        return await asyncio.to_thread(look)

    async def start(self, run: WorkerRunParams, workspace_id: str, *, deadline_s: float | None = None, found: Found | None = None) -> Assignment:
        """Give a run to a worker that has the newest saved source, or the last good one. ``found`` is what `look` said for this call.

        Raises RefusedError (UNTRUSTED, INTERPRETER, …), TimeoutError. Code that cannot be loaded is an error of the run, in ``done``.
        """
        workspace = self._trusted(workspace_id)
        run = msgspec.structs.replace(run, file=str(workspace.root / run.file))
        began = time.monotonic()
        read_end, write_end = os.pipe()
        output = Output(read_end, lambda text: self._on_output(run.run_id, text))
        try:
            served = await self._serve(workspace, run.file, write_end, deadline_s, found)
        except BaseException:
            output.finish()
            raise
        return self._assign(run, served, output, workspace, None if deadline_s is None else (deadline_s, began + deadline_s))

    async def arguments(self, workspace_id: str, params: ArgumentsParams) -> ArgumentsResult:
        """Read words by the types that a function declares, in the worker that a run of it would get.

        Raises RefusedError (LOAD for code that cannot be imported, …), ArgumentError, UnknownTargetError, UsageError, TimeoutError.
        """
        workspace = self._trusted(workspace_id)
        try:
            found = await self.look(workspace_id, params.function)
        except UnknownTargetError:
            if (guess := await asyncio.to_thread(targets.unseen, params.function, workspace.root)) is None:
                raise
            found = Found(guess, None)
        wanted = WorkerArguments(file=str(workspace.root / found.info.file), qualname=found.info.qualname, words=params.words, command=params.command)
        read_end, write_end = os.pipe()
        printed = Kept(HEAD, TAIL)
        output = Output(read_end, printed.add)
        try:
            served = await self._serve(workspace, wanted.file, write_end, params.timeout_s, found)
            if served.failure is not None:
                raise not_loaded(served.failure, workspace.root)
            generations, name, reuse = workspace.generations, f"arguments of {params.function}", False
            generations.began(served, name)
            try:
                read = await read_by(served.worker, wanted, params.timeout_s)
                reuse = True
            except UsageError:
                reuse = True
                raise
            finally:
                generations.finished(served, name, reuse=reuse)
        finally:
            output.finish()
        if read.function is not None and "**" in found.info.dynamic:
            workspace.unseen[params.function] = read.function
        return ArgumentsResult(args=read.args, output=printed.text())

    async def _serve(self, workspace: _Workspace, file: str, write_end: int, limit_s: float | None, found: Found | None) -> Served:
        """A worker for a file, whose output goes to ``write_end``; closes that here."""
        try:
            async with asyncio.timeout(limit_s):
                return await workspace.generations.serve(file, lambda worker: worker.attach(os.dup(write_end)), newest=found and found.newest)
        except TimeoutError:
            raise TimeoutError(f"{file} was not imported within the {limit_s:g} s of the run") from None
        finally:
            os.close(write_end)

    def _assign(self, run: WorkerRunParams, served: Served, output: Output, workspace: _Workspace, deadline: tuple[float, float] | None) -> Assignment:
        assignment = Assignment(run, served, output)
        if served.failure is not None:
            output.finish()
            assignment.done.set_result(WorkerDone(run_id=run.run_id, status="error", error=served.failure.error))
            return assignment
        self._active[run.run_id] = assignment
        workspace.generations.began(served, run.run_id)
        ended = served.worker.run(run)
        ended.add_done_callback(lambda future: self._ended(assignment, future.result(), workspace))
        if deadline is not None:
            assignment.expiry = self._loop.create_task(self._expire(assignment, *deadline))
        return assignment

    def _ended(self, assignment: Assignment, done: WorkerDone, workspace: _Workspace) -> None:
        run_id = assignment.run.run_id
        assignment.output.finish()
        if assignment.expiry is not None:
            assignment.expiry.cancel()
        self._active.pop(run_id, None)
        workspace.generations.finished(assignment.served, run_id, reuse=done.status in ("completed", "error"))
        assignment.done.set_result(self._explained(assignment, done))

    def _explained(self, assignment: Assignment, done: WorkerDone) -> WorkerDone:
        """A run that was ended from outside says by whom."""
        if done.status == "completed":
            return done
        if self._closing:
            return msgspec.structs.replace(done, status="interrupted", error=_error("WorkerDied", "the daemon was stopped while the function ran"))
        if assignment.expired_after is not None:
            return msgspec.structs.replace(done, status="error", error=_error("TimeoutError", f"the run was ended after {assignment.expired_after:g} s"))
        if assignment.killed_because is not None:
            return msgspec.structs.replace(done, status="cancelled", error=_error("Cancelled", assignment.killed_because))
        return done

    async def _expire(self, assignment: Assignment, deadline_s: float, at: float) -> None:
        await asyncio.sleep(max(at - time.monotonic(), 0.0))
        assignment.expired_after = deadline_s
        assignment.expiry = None
        await self.cancel(assignment.run.run_id, GRACE_S)

    async def cancel(self, run_id: str, grace_s: float = GRACE_S) -> Outcome:
        """End a run: interrupt it, and after ``grace_s`` seconds kill its process. Returns when it has ended."""
        assignment = self._active.get(run_id)
        if assignment is None:
            return "ended"
        deadline = time.monotonic() + grace_s
        # An async function is cancelled by the first interrupt and ended where it stands by the second.
        for wait_s in (min(_AGAIN_S, grace_s / 2), None):
            assignment.worker.cancel(run_id)
            left = deadline - time.monotonic() if wait_s is None else wait_s
            await asyncio.wait([assignment.done], timeout=max(left, 0.0))
            if assignment.done.done():
                return "cancelled" if assignment.done.result().status == "cancelled" else "ended"
        assignment.killed_because = f"the function did not end within {grace_s:g} s of being interrupted, so its process was killed"
        assignment.worker.kill()
        await asyncio.wait([assignment.done])
        return "killed" if assignment.done.result().status != "completed" else "ended"

    def describe(self) -> list[dict[str, Any]]:
        """The worker processes, for whoever asks how things are."""
        zygotes = [task.result() for task in self._zygotes.values() if task.done() and not task.cancelled() and task.exception() is None]
        return [{"pid": worker.pid, "workspace": worker.workspace, "run": worker.run_id} for zygote in zygotes for worker in zygote.workers.values()]

    async def close(self) -> None:
        """End every worker and whatever they left behind, and stop watching."""
        self._closing = True
        self._sweeper.cancel()
        for task in self._zygotes.values():
            task.cancel()
        zygotes = [zygote for zygote in await asyncio.gather(*self._zygotes.values(), return_exceptions=True) if isinstance(zygote, Zygote)]
        workers = [worker for zygote in zygotes for worker in zygote.workers.values()]
        for zygote in zygotes:
            zygote.close()
        watchers = [watcher for watcher in await asyncio.gather(*self._watchers.values(), return_exceptions=True) if isinstance(watcher, Watcher)]
        for watcher in watchers:
            watcher.stop()
        await asyncio.gather(*(zygote.wait() for zygote in zygotes), *(asyncio.to_thread(watcher.join) for watcher in watchers))
        await asyncio.gather(*(worker.ended for worker in workers), *(assignment.done for assignment in list(self._active.values())))
        with contextlib.suppress(asyncio.CancelledError):
            await self._sweeper

    def _trusted(self, workspace_id: str) -> _Workspace:
        workspace = self._workspace(workspace_id)
        if not workspace.trusted:
            raise RefusedError(ErrorCode.UNTRUSTED, f"the workspace {workspace.root} is not trusted, so nothing in it is run; trust it first")
        return workspace

    def _workspace(self, workspace_id: str) -> _Workspace:
        if workspace_id not in self._workspaces:
            raise RefusedError(ErrorCode.USAGE, f"the workspace {workspace_id!r} is not open")
        return self._workspaces[workspace_id]

    async def _watcher(self, root: Path) -> Watcher:
        if root not in self._watchers:
            self._watchers[root] = self._loop.create_task(asyncio.to_thread(self._watch, root))
        return await asyncio.shield(self._watchers[root])

    def _watch(self, root: Path) -> Watcher:
        def changed(state: FileState) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._file_changed, root, state)

        watcher = Watcher(root, changed)
        watcher.start()
        return watcher

    def _file_changed(self, root: Path, state: FileState) -> None:
        for workspace_id, workspace in self._workspaces.items():
            if workspace.root == root:
                workspace.generations.file_changed(state.file)
                self._on_functions(workspace_id, FunctionsEvent(seq=0, workspace=workspace_id, file=state.file, functions=state.functions, error=state.error))

    async def _fork(self, workspace_id: str) -> Worker:
        key = self._workspaces[workspace_id].generations.key
        for last in (False, True):
            zygote = await self._zygote(key)
            try:
                return await zygote.fork(workspace_id, self._dispatch)
            except ConnectionError:
                if last:
                    raise
        raise AssertionError("unreachable")

    async def _zygote(self, key: Any) -> Zygote:
        task = self._zygotes.get(key)
        if task is not None and task.done() and (task.cancelled() or task.exception() is not None or task.result().gone):
            task = None
        if task is None:
            python, environment = key
            task = self._zygotes[key] = self._loop.create_task(Zygote.start(python, dict(environment), spawn=self._spawn))
        return await asyncio.shield(task)

    async def _sweep(self) -> None:
        """End what has been idle for long."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            for workspace in self._workspaces.values():
                workspace.generations.retire(idle_for=IDLE_S)
            for key, task in list(self._zygotes.items()):
                if task.done() and not task.cancelled() and task.exception() is None:
                    zygote = task.result()
                    if not zygote.workers and time.monotonic() - zygote.last_used > IDLE_S:
                        del self._zygotes[key]
                        zygote.close()
                        await zygote.wait()


def _environment(env: dict[str, str]) -> dict[str, str]:
    """What a workspace's processes get: the daemon's own environment, over it that of the client, but one home."""
    home = {name: value for name, value in os.environ.items() if name == "OPENPROGRAM_HOME"}
    return {**os.environ, **env, **home}


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": kind, "kinds": [], "message": message, "trace": ""}
