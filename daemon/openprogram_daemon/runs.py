"""Runs: asked for with an id that the client made, written before they are acknowledged, and theirs no longer once they go on.

The same id with the same parameters is the same run, whoever asks, also after a restart; with others it is a conflict. A run ends once: its row and its entry
node in one commit, then everybody who waits is told. Which connection asked for it does not matter to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec
from openprogram_protocol import runs as messages
from openprogram_protocol.admin import RunEvent
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.functions import FunctionInfo
from openprogram_protocol.runs import TERMINAL, CancelResult, RunInfo, RunParams, RunStarted
from openprogram_protocol.worker import WorkerDone, WorkerRunParams

from openprogram import wire
from openprogram.context.call import Call, Close, Frame, new_id
from openprogram.store.runs import RunRow, RunTable, new_run
from openprogram.store.values import redact
from openprogram_daemon.errors import RefusedError, to_wire
from openprogram_daemon.events import Key
from openprogram_daemon.hosting import Assignment, Found, Hosts
from openprogram_daemon.hosts.output import Kept
from openprogram_daemon.workspaces import Workspace

if TYPE_CHECKING:
    from openprogram_daemon.core import Core

logger = logging.getLogger("openprogram.daemon")

_RUN_ID = re.compile(r"[0-9a-f]{32}")
_MOST_ENDED = 64
_KEPT_OUTPUT = 32 * 1024
_SETTLE_S = 2.0


def digest_of(params: RunParams) -> bytes:
    """What tells two requests with one id apart."""
    return hashlib.blake2b(msgspec.json.encode(params, order="sorted"), digest_size=16).digest()


def _conflict(run_id: str) -> RefusedError:
    return RefusedError(ErrorCode.RUN_CONFLICT, f"the run {run_id} exists with other parameters; a new run needs a new id")


def _checked(found: RunRow, run: Run) -> RunRow:
    if found.digest != run.digest:
        raise _conflict(found.id)
    return found


class Run:
    """A run of this life of the daemon."""

    def __init__(self, params: RunParams) -> None:
        self.params = params
        self.digest = digest_of(params)
        self.info = RunInfo(run_id=params.run_id, function=params.function, state="queued", session="", workspace=params.workspace)
        self.output = Kept(_KEPT_OUTPUT, _KEPT_OUTPUT)
        self.worker: WorkerRunParams | None = None
        self.found: Found | None = None
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None
        self.begun: asyncio.Task[bool] | None = None
        self.task: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[CancelResult] | None = None
        self.hidden = False
        self.assigned = False
        self.cancelled = False

    def change(self, **fields: Any) -> None:
        """Replace fields of its description."""
        self.info = msgspec.structs.replace(self.info, **fields)

    def described(self) -> RunInfo:
        """As clients are told."""
        return msgspec.structs.replace(self.info, output=self.output.text())

    def facts(self) -> dict[str, Any]:
        """What is kept of it beside its node."""
        info = self.info
        facts = {"error": info.error, "output": self.output.text(), "warning": info.warning, "source_hash": info.source_hash, "pid": info.pid}
        return {name: value for name, value in facts.items() if value}


class Runs:
    """Start, wait, cancel, list."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._table = RunTable(core.store)
        self._runs: dict[str, Run] = {}
        self._ended: OrderedDict[str, Run] = OrderedDict()
        self.hosts: Hosts | None = None

    def active(self) -> list[Run]:
        """Those that have not ended."""
        return list(self._runs.values())

    def _known(self, run_id: str) -> Run | None:
        return self._runs.get(run_id) or self._ended.get(run_id)

    async def mark_interrupted(self) -> None:
        """End what a dead daemon left."""
        await self._core.write(self._table.mark_interrupted())

    async def start(self, params: RunParams) -> RunStarted:
        """The run of that id: begun now, or before."""
        if not _RUN_ID.fullmatch(params.run_id):
            raise RefusedError(ErrorCode.INVALID_PARAMS, f"runId {params.run_id[:80]!r} is not 32 hexadecimal digits - at `$.runId`")
        run, repeated = self._known(params.run_id), True
        if run is None:
            run, repeated = Run(params), False
            self._runs[params.run_id] = run
            run.begun = asyncio.ensure_future(self._begin(run))
        elif run.digest != digest_of(params):
            raise _conflict(params.run_id)
        if run.begun is not None:
            # Whoever asked may go away meanwhile; the run does not.
            repeated = await asyncio.shield(run.begun) or repeated
        return RunStarted(run_id=params.run_id, session=run.info.session, repeated=repeated)

    async def _begin(self, run: Run) -> bool:
        """Write it, and let it run; True when an earlier life of the daemon had it already."""
        try:
            found = await self._write(run)
        except BaseException as error:
            run.failure = error
            self._runs.pop(run.params.run_id, None)
            run.ended.set()
            raise
        if found is not None:
            self._forget(run)
            run.info = await self._core.read(lambda: self._info_of(found))
            run.ended.set()
            return True
        run.task = asyncio.ensure_future(self._drive(run))
        return False

    async def _write(self, run: Run) -> RunRow | None:
        """Write row and entry; the row that was there before if there was one."""
        params = run.params
        try:
            workspace, looked = await self._target(params)
        except Exception:
            # What is asked for may be gone since: the run of that id is still the answer.
            found = await self._core.read(lambda: self._table.find(params.run_id))
            if found is None:
                raise
            return _checked(found, run)
        function, run.found = looked.info, looked
        started = time.time()
        row, entry, frame = entry_of(run, workspace, function, started)
        found, node = await self._core.write(self._table.begin(row, entry, frame, title="" if params.session else function.name))
        if node is None:
            return _checked(found, run)
        run.hidden = function.options.get("expose") == "hidden"
        run.change(function=row.function, workspace=row.workspace, session=row.session, node=row.node, started_at=started)
        run.worker = worker_params(run, function, frame)
        self._core.node_changed(lambda: node)
        return None

    async def _target(self, params: RunParams) -> tuple[Workspace, Found]:
        if self._core.stopping.is_set():
            raise RefusedError(ErrorCode.STOPPING, "the daemon is stopping; ask again, a new one is started")
        workspace = self._core.workspaces.get(params.workspace)
        if not workspace.trusted:
            way_out = "say that it is (openprogram/workspace/trust), or use `openprogram run`"
            message = f"the workspace {workspace.root} is not trusted, so nothing of it is run; {way_out}"
            raise RefusedError(ErrorCode.UNTRUSTED, message)
        assert self.hosts is not None
        return workspace, await self.hosts.look(workspace.id, params.function)

    async def _drive(self, run: Run) -> None:
        """From the acknowledgement to the end, which always comes."""
        try:
            done = await self._call(run)
        except asyncio.CancelledError:
            status = "cancelled" if run.cancelled else "interrupted"
            done = WorkerDone(run_id=run.params.run_id, status=status)
        except Exception as error:
            logger.warning("run %s could not be started: %s", run.params.run_id, type(error).__name__)
            reply = to_wire(error)
            done = WorkerDone(run_id=run.params.run_id, status="error", error={"type": type(error).__name__, "message": reply.message, "trace": ""})
        await self._end(run, done)

    async def _call(self, run: Run) -> WorkerDone:
        assert self.hosts is not None and run.worker is not None
        assignment = await self.hosts.start(run.worker, run.params.workspace, deadline_s=run.params.deadline_s, found=run.found)
        run.assigned = True
        self._started(run, assignment)
        return await asyncio.shield(assignment.done)

    def _started(self, run: Run, assignment: Assignment) -> None:
        run.change(state="running", warning=assignment.warning, source_hash=assignment.source_hash, pid=assignment.pid)
        self._publish(run, "started", run.info)

    async def _end(self, run: Run, done: WorkerDone) -> None:
        state: Any = done.status if done.status in TERMINAL else "error"
        ended = time.time()
        run.change(state=state, error=done.error, ended_at=ended, result=msgspec.Raw(msgspec.json.encode(done.result)) if state == "completed" else None)
        facts = run.facts()

        def work(connection: sqlite3.Connection) -> Callable[[], Call]:
            metadata = {name: value for name, value in (("error", done.error), ("source_hash", run.info.source_hash)) if value}
            enters = state in ("completed", "error") and not run.hidden
            output = wire.stored(done.result) if state == "completed" else None
            close = Close(id=run.info.node or "", status=state, output=output, metadata=metadata, ended_at=ended, enters=enters)
            return self._table.end(run.params.run_id, state, facts, close)(connection)

        try:
            node = await self._core.write(work)
        except Exception:
            logger.exception("the end of run %s could not be recorded", run.params.run_id)
            node = None
        if node is not None:
            self._core.node_changed(node)
        self._forget(run)
        run.ended.set()
        self._publish(run, "finished", msgspec.structs.replace(run.info, result=None))

    def _forget(self, run: Run) -> None:
        """Keep what was asked for last at hand; everything else is in the store."""
        self._runs.pop(run.params.run_id, None)
        self._ended[run.params.run_id] = run
        while len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)
        self._core.on_idle_change()

    def _publish(self, run: Run, kind: str, data: Any) -> None:
        run_id = run.params.run_id
        self._core.events.publish(Key("run", run_id), lambda seq: RunEvent(seq=seq, run_id=run_id, kind=kind, data=data))

    def on_output(self, run_id: str, text: str) -> None:
        """A run printed something."""
        if (run := self._runs.get(run_id)) is not None:
            run.output.add(text)
            self._publish(run, "output", text)

    async def result(self, run_id: str, timeout_s: float | None) -> RunInfo:
        """The run when it has ended, or as it is after ``timeout_s``. Raises RefusedError for an unknown one."""
        run = self._known(run_id)
        if run is None:
            return await self._stored(run_id)
        try:
            async with asyncio.timeout(timeout_s):
                await run.ended.wait()
        except TimeoutError:
            pass
        if run.failure is not None:
            raise run.failure
        return run.described()

    async def _stored(self, run_id: str) -> RunInfo:
        found = await self._core.read(lambda: self._table.find(run_id))
        if found is None:
            raise RefusedError(ErrorCode.UNKNOWN_RUN, f"there is no run {run_id!r}")
        return await self._core.read(lambda: self._info_of(found))

    def _info_of(self, row: RunRow, *, whole: bool = True) -> RunInfo:
        node = self._core.store.node(row.node) if whole and row.state == "completed" else None
        facts = row.facts
        return RunInfo(
            run_id=row.id,
            function=row.function,
            state=cast("Any", row.state),
            session=row.session,
            node=row.node,
            result=None if node is None else wire.raw(node.output),
            error=facts.get("error"),
            output=facts.get("output", "") if whole else "",
            warning=facts.get("warning"),
            workspace=row.workspace,
            source_hash=facts.get("source_hash"),
            pid=facts.get("pid"),
            started_at=row.started,
            ended_at=row.ended,
        )

    async def list(self, params: messages.RunsParams) -> list[RunInfo]:
        """Runs as a list shows them: without results and output."""
        known = {run_id: run.info for run_id, run in self._runs.items()}

        def work() -> list[RunInfo]:
            return [known.get(row.id) or self._info_of(row, whole=False) for row in self._table.newest(limit=params.limit, active=params.active)]

        return await self._core.read(work)

    async def cancel(self, run_id: str, grace_s: float) -> CancelResult:
        """End a run, by its own doing within ``grace_s`` seconds, else by force. Raises RefusedError for an unknown one."""
        run = self._runs.get(run_id)
        if run is None:
            info = await self.result(run_id, 0)
            return CancelResult(outcome="ended", state=info.state)
        # Whoever asked may go away before the grace is over; the run ends all the same.
        run.ending = asyncio.ensure_future(self._cancel(run, grace_s))
        return await asyncio.shield(run.ending)

    async def _cancel(self, run: Run, grace_s: float) -> CancelResult:
        if run.begun is not None:
            await asyncio.wait([run.begun])
        run.cancelled = True
        outcome: Any = "cancelled"
        if run.assigned:
            assert self.hosts is not None
            outcome = await self.hosts.cancel(run.params.run_id, grace_s)
        elif run.task is not None:
            run.task.cancel()
        await run.ended.wait()
        return CancelResult(outcome=outcome if run.info.state == "cancelled" else "ended", state=run.info.state)

    async def drain(self, timeout_s: float) -> None:
        """Wait for the active runs."""
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=timeout_s)

    async def settle(self) -> None:
        """End those that are left; their workers are gone."""
        await self.drain(_SETTLE_S)
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [run.task for run in self._runs.values() if run.task is not None]


def entry_of(run: Run, workspace: Workspace, function: FunctionInfo, started: float) -> tuple[RunRow, Call, Frame]:
    """What is written before the run is acknowledged: its row, the node of its function and the frame that this opens."""
    params = run.params
    frame = Frame(id=new_id("frame"), session="", owner=new_id("code"))
    session = params.session or f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}-{params.run_id[:8]}"
    options = function.options
    entry = Call(
        id=frame.owner or "",
        session=session,
        role="code",
        name=function.name,
        frame="",
        input=redact(params.args),
        metadata={
            "expose": options.get("expose", "io"),
            "doc": function.doc or None,
            "qualname": function.qualname,
            "file": function.file,
            "frame": frame.id,
            "run": params.run_id,
        },
        started_at=started,
    )
    target = f"{function.file}:{function.qualname}"
    row = new_run(params.run_id, digest=run.digest, function=target, workspace=workspace.root, session=session, node=entry.id, started=started)
    return row, entry, frame


def worker_params(run: Run, function: FunctionInfo, frame: Frame) -> WorkerRunParams:
    """What the worker is told."""
    params = run.params
    return WorkerRunParams(
        run_id=params.run_id,
        file=function.file,
        qualname=function.qualname,
        args=params.args,
        session=run.info.session,
        node=run.info.node or "",
        frame=frame.id,
        model=params.model or "",
        workdir=params.workdir,
    )
