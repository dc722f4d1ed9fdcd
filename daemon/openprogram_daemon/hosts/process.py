"""The daemon's side of the processes that run user code: zygotes and their workers.

A worker is known from the moment its zygote reports it until the zygote reports its death. Whatever way it dies, what it had written is read first, then its
run ends with an error that says how it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import IO, Any

from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.rpc import PROTOCOL
from openprogram_protocol.worker import LoadParams, LoadResult, WorkerArguments, WorkerArgumentsRead, WorkerCancel, WorkerDone, WorkerRunParams

from openprogram_daemon.errors import RefusedError
from openprogram_daemon.hosts.channel import Channel

logger = logging.getLogger("openprogram.daemon.hosts")

Dispatch = Callable[["Worker", str, Any], Awaitable[Any]]

umask = -1
"""With which user code makes files: what the daemon itself makes is private, what a user's function makes is as usual. -1: this process's own."""

START_S = 30.0
DRAIN_S = 1.0
_INSTALL = "-m pip install openprogram"


class Worker:
    """A process that runs one run at a time. ``workspace`` names whose code it runs, ``run_id`` its current run."""

    def __init__(self, workspace: str, dispatch: Dispatch) -> None:
        self.workspace = workspace
        self.pid = 0
        self.run_id: str | None = None
        self.loaded: set[str] = set()
        self.idle_since = time.monotonic()
        self.dead = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves to how it died, once all that it had sent was taken."""
        self.on_imports: Callable[[dict[str, str]], None] = lambda _: None
        self._done: asyncio.Future[WorkerDone] | None = None
        self._status: str | None = None
        self._outputs: socket.socket | None = None
        self._ends: set[asyncio.Task[None]] = set()
        self._channel = Channel(lambda method, params: dispatch(self, method, params), self._notified, self._lost)

    async def open(self, control: socket.socket, outputs: socket.socket) -> None:
        """Take the daemon's ends of the two sockets."""
        control.setblocking(False)
        outputs.setblocking(False)
        self._outputs = outputs
        await asyncio.get_running_loop().create_connection(lambda: self._channel, sock=control)

    def attach(self, write_end: int) -> None:
        """Let what the worker prints from its next message on go into this pipe; closes the descriptor here."""
        assert self._outputs is not None
        try:
            socket.send_fds(self._outputs, [b"o"], [write_end])
        except OSError:
            logger.debug("worker %d takes no output", self.pid)
        finally:
            os.close(write_end)

    async def load(self, params: LoadParams) -> LoadResult:
        """Import modules. Raises LostError when the worker dies meanwhile."""
        result: LoadResult = await self._channel.request("openprogram/worker/load", params)
        if result.error is None:
            self.loaded.update(params.modules)
        return result

    async def arguments(self, params: WorkerArguments) -> WorkerArgumentsRead:
        """Read words as arguments. Raises LostError when the worker dies meanwhile."""
        return await self._channel.request("openprogram/worker/arguments", params)

    def run(self, params: WorkerRunParams) -> asyncio.Future[WorkerDone]:
        """Start a run; the future resolves when it has ended, also by the death of the worker."""
        self.run_id = params.run_id
        self._done = asyncio.get_running_loop().create_future()
        if self.ended.done():
            self._died()
        else:
            self._channel.notify("openprogram/worker/run", params)
        return self._done

    def cancel(self, run_id: str) -> None:
        """Ask the current run to end."""
        self._channel.notify("openprogram/worker/cancel", WorkerCancel(run_id=run_id))

    def notify(self, method: str, params: Any) -> None:
        """Tell the worker."""
        self._channel.notify(method, params)

    def kill(self) -> None:
        """End the process and its group at once."""
        if self.pid and not self.dead:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def reported_dead(self, how: str) -> None:
        """Its zygote says that it ended."""
        self.dead = True
        self._status = how
        self._later(self._drain())

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _drain(self) -> None:
        # The socket ends at once, unless a process outside the worker's group holds it.
        deadline = time.monotonic() + DRAIN_S
        while not self._channel.ended and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
        await self._channel.settle()
        self._channel.abandon()
        self._channel.close()
        if self._outputs is not None:
            self._outputs.close()
        if not self.ended.done():
            self.ended.set_result(self._status or "ended")
        self._died()

    def _died(self) -> None:
        run_id = self.run_id
        if run_id is None or self._done is None or self._done.done():
            return
        message = f"the process of the function {self._status or 'ended'} before the function returned"
        error: dict[str, Any] = {"type": "WorkerDied", "kinds": [], "message": message, "trace": ""}
        self._finish(WorkerDone(run_id=run_id, status="error", error=error))

    def _notified(self, method: str, params: Any) -> None:
        if isinstance(params, WorkerDone) and params.run_id == self.run_id:
            self._later(self._ended_run(params))

    async def _ended_run(self, done: WorkerDone) -> None:
        await self._channel.settle()
        if done.imported:
            await asyncio.to_thread(self.on_imports, done.imported)
        self._finish(done)

    def _finish(self, done: WorkerDone) -> None:
        self.run_id = None
        self.idle_since = time.monotonic()
        if self._done is not None and not self._done.done():
            self._done.set_result(done)

    def _lost(self) -> None:
        if not self.dead:
            self._later(self._bury())

    async def _bury(self) -> None:
        """A worker without a connection is of no use; its zygote reports how it ended, unless that is gone too."""
        await asyncio.sleep(DRAIN_S / 10)
        self.kill()
        await asyncio.sleep(DRAIN_S)
        if not self.dead:
            self.reported_dead("lost its connection")


class Zygote:
    """A process of one interpreter and environment that forks workers. ``await Zygote.start(...)`` makes one."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, complaints: IO[bytes]) -> None:
        self.process = process
        self.last_used = time.monotonic()
        self.gone = False
        self.workers: dict[int, Worker] = {}
        self._socket = sock
        self._complaints = complaints
        self._lock = asyncio.Lock()
        self._started: tuple[Worker, asyncio.Future[int]] | None = None
        self._hello: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._lines = b""
        self._reaped: asyncio.Task[int] | None = None
        sock.setblocking(False)
        asyncio.get_running_loop().add_reader(sock.fileno(), self._read)

    @classmethod
    async def start(cls, python: str, env: dict[str, str], *, spawn: bool = False) -> Zygote:
        """Start one. Raises RefusedError (INTERPRETER) for an interpreter that cannot, with the command that mends it."""
        ours, its = socket.socketpair()
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - `wait` closes it
        command = [python, "-P", "-m", "openprogram_daemon.hosts.zygote", str(its.fileno()), *(["--spawn"] if spawn else [])]
        try:
            process = await asyncio.to_thread(_popen, command, env, its, complaints)
        except BaseException as error:
            ours.close()
            complaints.close()
            if not isinstance(error, OSError):
                raise
            raise RefusedError(ErrorCode.INTERPRETER, f"the interpreter {python} cannot be started: {error.strerror or error}") from error
        finally:
            its.close()
        zygote = cls(process, ours, complaints)
        try:
            async with asyncio.timeout(START_S):
                protocol = await zygote._hello
        except (TimeoutError, EOFError):
            why = zygote._why_not(python)
            zygote.close()
            raise RefusedError(ErrorCode.INTERPRETER, why) from None
        except BaseException:
            zygote.close()
            raise
        if protocol != PROTOCOL:
            zygote.close()
            version = f"speaks protocol {protocol}, this daemon {PROTOCOL}"
            raise RefusedError(ErrorCode.INTERPRETER, f"openprogram in {python} {version}; run: {python} {_INSTALL} --upgrade")
        return zygote

    def _why_not(self, python: str) -> str:
        self._complaints.seek(0)
        said = self._complaints.read(64 * 1024).decode("utf-8", "replace").strip()
        if "No module named" in said and "openprogram" in said:
            return f"the interpreter {python} has no openprogram of this version; run: {python} {_INSTALL}"
        return f"the interpreter {python} did not start: {said.splitlines()[-1] if said else 'it said nothing'}"

    async def fork(self, workspace: str, dispatch: Dispatch) -> Worker:
        """A new worker. Raises ConnectionError when the zygote is gone."""
        ours, its = socket.socketpair()
        outputs, its_outputs = socket.socketpair()
        worker = Worker(workspace, dispatch)
        try:
            async with self._lock:
                if self.gone:
                    raise ConnectionError("the process that starts workers is gone")
                self.last_used = time.monotonic()
                started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                self._started = (worker, started)
                socket.send_fds(self._socket, [b"f"], [its.fileno(), its_outputs.fileno()])
                await started
        except BaseException:
            ours.close()
            outputs.close()
            worker.kill()
            raise
        finally:
            its.close()
            its_outputs.close()
        await worker.open(ours, outputs)
        return worker

    def close(self) -> None:
        """End the zygote and, by that, all its workers and what they left behind. May be called twice."""
        if self.gone:
            return
        self.gone = True
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._complaints.close()
        self._reaped = asyncio.get_running_loop().create_task(asyncio.to_thread(self.process.wait))
        if self._started is not None and not self._started[1].done():
            self._started[1].set_exception(ConnectionError("the process that starts workers is gone"))
        for worker in self.workers.values():
            worker.kill()
            worker.reported_dead("was ended together with the process that had started it")
        self.workers.clear()

    async def wait(self) -> None:
        """Wait for the end of its process, after `close`."""
        if self._reaped is not None:
            await self._reaped

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if not self._hello.done():
                self._hello.set_exception(EOFError())  # `start` closes it, once it has read what the process complained of
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            else:
                self.close()
            return
        *lines, self._lines = (self._lines + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: dict[str, int]) -> None:
        if "protocol" in message:
            self._hello.set_result(message["protocol"])
        elif "pid" in message and self._started is not None:
            worker, started = self._started
            worker.pid = message["pid"]
            self.workers[worker.pid] = worker
            if started.done():  # whoever asked has given up
                worker.kill()
            else:
                started.set_result(worker.pid)
        elif "died" in message and (worker := self.workers.pop(message["died"], None)):
            worker.reported_dead(how_it_ended(message["status"]))


def how_it_ended(status: int) -> str:
    """A status of `os.waitpid` in words that go on from "the process"."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _popen(command: list[str], env: dict[str, str], sock: socket.socket, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    # Its own session: an interrupt typed at the daemon's terminal is not for it.
    nothing = subprocess.DEVNULL
    return subprocess.Popen(  # noqa: S603 - our own module, in the interpreter that a trusted workspace names
        command,
        env=env,
        cwd=os.path.sep,
        stdin=nothing,
        stdout=nothing,
        stderr=complaints,
        pass_fds=(sock.fileno(),),
        start_new_session=True,
        umask=umask,
    )


def default_python() -> str:
    """The interpreter for workspaces that name none."""
    return sys.executable
