"""``python -m openprogram_daemon.hosts.zygote FD``: a process that holds the library, loaded, and forks a worker whenever the daemon asks.

It stays single-threaded and runs no code of a user, so that a fork of it is always sound. It is child subreaper: whatever a worker leaves behind becomes its
child. When the daemon's end of the socket closes, however the daemon ended, every worker's process group and every adopted descendant is killed.

From the daemon comes one byte for each worker, with two sockets (control, output). To the daemon go lines of JSON: ``{"protocol"}`` first, ``{"pid"}`` for each
worker, ``{"died", "status"}`` for each that ended, with its status as `os.waitpid` gives it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from openprogram_protocol.rpc import PROTOCOL

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDING_S = 10.0
_PRELOADED = (
    "openprogram_daemon.hosts.worker",
    "openprogram.agentic_programming.function",
    "openprogram.agentic_programming.runtime",
    "openprogram.tracebacks",
    "openprogram.store.values",
    "asyncio",
    "openprogram.remote",
    "openprogram_clients.connection",
    "openprogram.functions.schema",
    "openprogram.agentic_programming.runtime.turn",
    "openprogram.agentic_programming.runtime.loop",
    "openprogram.agentic_programming.decision.make",
    "openprogram.functions.annotations",
)


class Zygote:
    """``fork`` False starts each worker as a fresh process instead, for systems where forking a loaded interpreter is unsafe."""

    def __init__(self, daemon: socket.socket, *, fork: bool) -> None:
        self._daemon = daemon
        self._fork = fork
        self._workers: set[int] = set()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)
        self._to_load = [*_PRELOADED] if fork else []

    def run(self) -> NoReturn:
        """Serve until the daemon is gone."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        self._tell({"protocol": PROTOCOL})
        while True:
            ready, _, _ = select.select([self._daemon, self._woken], [], [], 0 if self._to_load else None)
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            if self._daemon in ready:
                self._serve()
            elif self._to_load:
                self._load_next()

    def _load_next(self) -> None:
        """Load what workers will want, a module at a time, so that a request need not wait for all of it."""
        with contextlib.suppress(ImportError):
            importlib.import_module(self._to_load.pop(0))
        if not self._to_load:
            _warm_up()
            gc.collect()
            gc.freeze()  # a collection in a worker would copy every page that it shares with this process

    def _serve(self) -> None:
        try:
            data, sockets, _, _ = socket.recv_fds(self._daemon, 1, 2)
        except ConnectionError:
            data, sockets = b"", []
        if not data or len(sockets) != 2:
            self._end()
        pid = self._start(*sockets)
        for descriptor in sockets:
            os.close(descriptor)
        self._workers.add(pid)
        self._tell({"pid": pid})

    def _start(self, control: int, output: int) -> int:
        if not self._fork:
            command = [sys.executable, "-P", "-m", "openprogram_daemon.hosts.worker", str(control), str(output)]
            process = subprocess.Popen(command, pass_fds=(control, output), process_group=0)  # noqa: S603 - our own module
            process.returncode = 0  # its end is `_reap`'s, which the next Popen would otherwise take away
            return process.pid
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(parent, control, output)
        with contextlib.suppress(OSError):  # the child did it, or is gone
            os.setpgid(pid, pid)
        return pid

    def _become_worker(self, parent: int, control: int, output: int) -> NoReturn:
        try:
            os.setpgid(0, 0)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._woken)
            os.close(self._waker)
            self._daemon.close()
            from openprogram_daemon.hosts.worker import serve

            serve(control, output)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _reap(self) -> None:
        """Report the dead."""
        with contextlib.suppress(ChildProcessError):
            while dead := next_dead(self._workers):
                pid, status = dead
                if pid in self._workers:
                    self._workers.discard(pid)
                    self._tell({"died": pid, "status": status})

    def _tell(self, message: dict[str, int]) -> None:
        with contextlib.suppress(OSError):  # a daemon that is gone is found out by reading
            self._daemon.sendall(json.dumps(message).encode() + b"\n")

    def _end(self) -> NoReturn:
        for pid in self._workers:
            _kill_group(pid)
        deadline = time.monotonic() + _ENDING_S
        while time.monotonic() < deadline:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        os._exit(0)


def _wake(_number: int, _frame: object) -> None:
    """A signal without a handler of Python's wakes nobody."""


def _warm_up() -> None:
    """Let pydantic load what converting any argument needs: it loads most of itself at its first use."""
    with contextlib.suppress(ImportError):
        from openprogram.functions.annotations import adapter_for

        for annotation in (str, int, float, bool, list[str], dict[str, str]):
            adapter_for(annotation)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def next_dead(workers: set[int]) -> tuple[int, int] | None:
    """Reap a child: its pid and status. A worker's group is killed before that, while its number cannot belong to anybody else, where a look is possible."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in workers:
            _kill_group(pid)
        return (pid, status) if pid else None
    info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    if info.si_pid in workers:
        _kill_group(info.si_pid)
    return os.waitpid(info.si_pid, 0)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children() -> list[int]:
    """Children of this process, adopted ones among them; none where the system does not list them."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()]
    except OSError:
        return []


def main() -> NoReturn:
    daemon = socket.socket(fileno=int(sys.argv[1]))
    daemon.set_inheritable(False)
    Zygote(daemon, fork=sys.platform == "linux" and "--spawn" not in sys.argv).run()


if __name__ == "__main__":
    main()
