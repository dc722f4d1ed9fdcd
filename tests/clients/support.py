"""The two things that clients talk to: another end in the hands of the test, which says what a real daemon does not say on demand, and real daemons."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from openprogram_clients import places
from openprogram_clients.errors import DaemonError
from openprogram_protocol.framing import FrameReader, frame

from tests.daemon.support import children, lives, until

WAIT_S = 20.0


class Peer:
    """Reads and writes messages as dicts, and bytes as they are."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.socket.settimeout(WAIT_S)
        self._frames = FrameReader()
        self._bodies: deque[bytes] = deque()

    def receive_descriptors(self) -> list[int]:
        """The open files that came with the next message."""
        data, descriptors, _, _ = socket.recv_fds(self.socket, 1, 4)
        self._bodies.extend(self._frames.feed(data))
        return list(descriptors)

    def receive(self) -> dict[str, Any]:
        """The next message. Raises EOFError at the end of the connection."""
        while not self._bodies:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._bodies.extend(self._frames.feed(data))
        return json.loads(self._bodies.popleft())

    def send(self, **message: Any) -> None:
        self.socket.sendall(frame(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()))

    def reply(self, request: dict[str, Any], result: Any) -> None:
        self.send(id=request["id"], result=result)

    def refuse(self, request: dict[str, Any], code: int, message: str, **data: Any) -> None:
        self.send(id=request["id"], error={"code": code, "message": message, "data": data})

    def close(self) -> None:
        self.socket.close()


def python(program: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A process that runs a program, both ends of its pipes open."""
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


class Home:
    """The daemons of this test's home: found among the processes, whatever their status file says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._below: set[int] = set()

    def daemons(self) -> list[int]:
        """Their pids; empty where the system does not list processes."""
        mark = f"OPENPROGRAM_HOME={self.path}".encode()
        return [pid for pid in _processes() if mark in _words(pid, "environ") and b"openprogram_daemon" in _words(pid, "cmdline")]

    def daemon(self) -> int:
        """The pid of the only one."""
        (pid,) = self.daemons()
        return pid

    def below(self) -> list[int]:
        """The processes below them; `end` makes sure of their end."""
        found = [pid for daemon in self.daemons() for pid in children(daemon)]
        self._below.update(found)
        return found

    def kill(self) -> None:
        """End the daemons as a crash does."""
        self.below()
        daemons = self.daemons()
        for pid in daemons:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(lives(pid) for pid in daemons))

    def end(self) -> None:
        """Leave nothing, whatever happened before."""
        self.kill()
        for pid in self._below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError, DaemonError):
            places.socket_path().unlink(missing_ok=True)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _words(pid: int, file: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []
