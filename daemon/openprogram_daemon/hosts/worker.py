"""A worker: runs functions of one workspace, one run at a time, in the main thread.

Another thread owns the control channel. Each run has a fresh `contextvars.Context`; module globals persist from run to run. What a run prints, on whatever way
to descriptors 1 and 2, goes into its own pipe; descriptor 0 is empty. A process that user code forks and that comes back here ends.
"""

from __future__ import annotations

import contextlib
import contextvars
import faulthandler
import io
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TextIO

import msgspec
from openprogram_clients.connection import Connection, RemoteError
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.framing import MAX_BODY
from openprogram_protocol.worker import LoadParams, LoadResult, WorkerArguments, WorkerArgumentsRead, WorkerCancel, WorkerDone, WorkerRunParams

from openprogram.agentic_programming.lookup import function_in
from openprogram.context import scope as scopes
from openprogram.errors import UsageError
from openprogram.loading import Imports, import_file, import_roots, make_importable
from openprogram.store import values
from openprogram_daemon.hosts import calling, interrupts

MOST_RESULT = MAX_BODY - 1024 * 1024


class Worker:
    """Serves one control connection; new descriptors for output arrive on a socket of their own, before the message that they are for."""

    def __init__(self, control: socket.socket, outputs: socket.socket) -> None:
        self._pid = os.getpid()
        outputs.setblocking(False)
        self._outputs = outputs
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._interrupts = interrupts.Interrupts(frozenset({__file__, calling.__file__}))
        self._imports: Imports | None = None
        self._modules: dict[str, ModuleType] = {}
        self._told: set[tuple[str, str]] = set()
        self._cwd = "/"
        self._silence = os.open(os.devnull, os.O_RDWR)
        self._streams = _streams()
        os.register_at_fork(after_in_child=control.close)  # the connection is the parent's
        self._connection = Connection(control, on_request=self._requested, on_notify=self._notified)
        self._connection.at_end(lambda _: _end())

    def run(self) -> NoReturn:
        """Serve until this process is ended."""
        self._interrupts.listen()
        self._silence_output()
        while True:
            self._tasks.get()()

    def _requested(self, method: str, params: Any) -> Any:
        if method == "openprogram/worker/load":
            return self._in_main_thread(lambda: self._load(params))
        if method == "openprogram/worker/arguments":
            return self._in_main_thread(lambda: self._arguments(params))
        raise RemoteError(ErrorCode.METHOD_NOT_FOUND, f"a worker does not know {method}")

    def _in_main_thread(self, work: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()
        self._tasks.put(lambda: done.set_result(work()))
        return done.result()

    def _notified(self, method: str, params: Any) -> None:
        if isinstance(params, WorkerRunParams):
            self._tasks.put(lambda: self._run(params))
        elif isinstance(params, WorkerCancel):
            self._interrupts.cancel(params.run_id)

    def _load(self, params: LoadParams) -> LoadResult:
        self._attach_output()
        root = Path(params.root)
        if self._imports is None:
            self._imports = Imports(root)
            make_importable(tuple(import_roots(root)), self._imports)
        self._imports.sources |= params.sources
        self._cwd = params.cwd
        error: dict[str, Any] | None = None
        try:
            os.chdir(params.cwd)
            for file in params.modules:
                self._modules[file] = import_file(Path(file), self._imports)
        except BaseException as raised:
            _, error = calling.error_of(raised)
            if isinstance(raised, SyntaxError):
                error["message"] = raised.msg  # the place is told beside it
            if isinstance(raised, SystemExit):
                error["message"] = f"the module called sys.exit({raised.code!r}) when it was imported; guard that with `if __name__ == '__main__':`"
            error["file"], error["line"] = calling.position_of(raised, params.root)
        self._end_if_forked()
        return LoadResult(error=error, imported=self._new_imports())

    def _arguments(self, params: WorkerArguments) -> WorkerArgumentsRead:
        self._attach_output()
        try:
            function = self._function(params.file, params.qualname)
            args = calling.arguments(function, params.words, params.command)
            return WorkerArgumentsRead(args=args, function=calling.info_of(function, self._shown(params.file), params.qualname))
        except BaseException as raised:
            return WorkerArgumentsRead(error=calling.error_of(raised)[1])
        finally:
            self._end_if_forked()
            self._silence_output()

    def _function(self, file: str, qualname: str) -> Any:
        return function_in(self._modules[file], qualname, self._shown(file))

    def _shown(self, file: str) -> str:
        return file if self._imports is None else os.path.relpath(file, self._imports.root)

    def _new_imports(self) -> dict[str, str]:
        if self._imports is None:
            return {}
        new = set(self._imports.hashes.items()) - self._told
        self._told |= new
        return dict(new)

    def _run(self, params: WorkerRunParams) -> None:
        self._attach_output()
        self._interrupts.begin(params.run_id)
        status, result, error = "completed", b"null", None
        try:
            value = contextvars.Context().run(self._call, params)
            result = values.encode(value).encode()
            self._interrupts.end()
            if len(result) > MOST_RESULT:
                raise UsageError(f"the result is {len(result):,} bytes of JSON, more than {MOST_RESULT:,}; write it to a file and return its name")
        except BaseException as raised:
            self._interrupts.end()
            status, error = calling.error_of(raised)
            result = b"null"
        self._end_if_forked()
        with contextlib.suppress(OSError):
            os.chdir(self._cwd)
        self._silence_output()
        done = WorkerDone(run_id=params.run_id, status=status, result=msgspec.Raw(result), error=error, imported=self._new_imports())
        self._connection.notify("openprogram/worker/done", done)

    def _call(self, params: WorkerRunParams) -> Any:
        function = self._function(params.file, params.qualname)
        if params.workdir is not None:
            os.chdir(params.workdir)
        scopes.host_runtime.set(calling.make_runtime(self._connection, params.model))
        if params.node:
            from openprogram.remote import RemoteStore

            scopes.current.set(scopes.entered(RemoteStore(self._connection), params.session, params.node, params.frame))
            scopes.entry.set((params.node, params.frame))
        return calling.call(function, params.args, self._interrupts)

    def _end_if_forked(self) -> None:
        if os.getpid() != self._pid:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(0)

    def _attach_output(self) -> None:
        """Let descriptors 1 and 2 be the pipe that was sent, if one was; and Python's streams what they were, whatever a run put in their place."""
        with contextlib.suppress(BlockingIOError):
            _, sent, _, _ = socket.recv_fds(self._outputs, 1, 1)
            for descriptor in sent:
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                os.close(descriptor)
        os.dup2(self._silence, 0)
        if any(stream.closed for stream in self._streams):
            self._streams = _streams()
        sys.stdout, sys.stderr = self._streams

    def _silence_output(self) -> None:
        for stream in (sys.stdout, sys.stderr, *self._streams):
            with contextlib.suppress(Exception):  # the user's own stream, or a pipe that nobody reads any more
                stream.flush()
        for descriptor in (0, 1, 2):
            os.dup2(self._silence, descriptor)


def _streams() -> tuple[TextIO, TextIO]:
    """Streams over descriptors 1 and 2. Lines go out as they come; closing one leaves its descriptor open."""
    return _stream(1), _stream(2)


def _stream(descriptor: int) -> TextIO:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _end() -> NoReturn:
    """The daemon is gone: so is this process, with all that it started in its group."""
    with contextlib.suppress(OSError):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def serve(control: int, outputs: int) -> NoReturn:
    """Be a worker with these two sockets."""
    os.set_inheritable(control, False)
    os.set_inheritable(outputs, False)
    faulthandler.enable(2, all_threads=False)  # where a crash in native code happened is seen in the run's output
    threading.current_thread().name = "MainThread"
    Worker(socket.socket(fileno=control), socket.socket(fileno=outputs)).run()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
