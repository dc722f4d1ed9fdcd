"""A daemon in a process of its own, and a client that speaks the wire without any of our client code, right or wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from openprogram_clients import places
from openprogram_protocol.rpc import PROTOCOL

T = TypeVar("T")

SAFETY_S = 30.0

FUNCTIONS = '''
import os
import sys
import time
from pathlib import Path

from openprogram import agentic_function


@agentic_function
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@agentic_function
def outer(n: int) -> list[int]:
    return [add(i, 1) for i in range(n)]


@agentic_function
def wait_for(path: str, started: str = "") -> str:
    """Wait until a file is there."""
    if started:
        Path(started).write_text(str(os.getpid()))
    while not Path(path).exists():
        time.sleep(0.01)
    return Path(path).read_text()


@agentic_function
def say(text: str, times: int = 1) -> None:
    for _ in range(times):
        print(text, flush=True)


@agentic_function
def fail(message: str) -> None:
    raise ValueError(message)


@agentic_function
def ask(question: str, runtime=None) -> str:
    return runtime.exec(question)


@agentic_function
def environment(name: str) -> str | None:
    return os.environ.get(name)


@agentic_function
def print_for_ever(started: str) -> None:
    while True:
        print("x" * 1000)
        if not Path(started).exists():
            Path(started).write_text("")


@agentic_function
def count(path: str) -> int:
    with open(path, "a") as file:
        file.write("x")
    return Path(path).stat().st_size
'''


def until(look: Callable[[], T], *, timeout_s: float = SAFETY_S) -> T:
    """What ``look`` returns once that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{look} stayed {found!r}"
        time.sleep(0.005)
    return found


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    return bool(places.process_start(pid))


def children(pid: int) -> list[int]:
    """All processes below a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            direct = [int(child) for child in task.read_text().split()]
            found += direct + [below for child in direct for below in children(child)]
    return found


class Daemon:
    """A daemon's process. ``log`` is what it prints."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.log = home / "printed.log"
        with self.log.open("ab") as out:
            command = [sys.executable, "-m", "openprogram_daemon"]
            self.process = subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self._below: set[int] = set()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ready(self) -> Daemon:
        """Once it listens."""

        def look() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            status = places.read_status()
            return status is not None and status.pid == self.pid

        until(look)
        return self

    def descendants(self) -> list[int]:
        """All processes below it; `end` makes sure of their end."""
        found = children(self.pid)
        self._below.update(found)
        return found

    def kill(self) -> None:
        """As a crash."""
        self.descendants()
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """With a signal; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SAFETY_S)

    def end(self) -> None:
        """Whatever happened before."""
        if self.process.poll() is None:
            self.descendants()
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in self._below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Raw:
    """A connection that sends what it is told, and reads frames."""

    def __init__(self, path: str | None = None) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SAFETY_S)
        status = places.read_status()
        self.sock.connect(path or (status.socket if status else str(places.socket_path())))
        self._file = self.sock.makefile("rb")
        self._ids = iter(range(1, 1_000_000))
        self.others: list[dict[str, Any]] = []

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def put(self, message: Any) -> None:
        body = json.dumps(message, ensure_ascii=False).encode()
        self.send(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def get(self) -> dict[str, Any]:
        """The next message. Raises EOFError."""
        length = 0
        while (line := self._file.readline()) != b"\r\n":
            if not line:
                raise EOFError
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return json.loads(self._file.read(length))

    def ended(self) -> bool:
        """Whether the other side ends the connection; what it still sends is dropped."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionError:
            pass
        return True

    def notify(self, method: str, params: Any = None) -> None:
        self.put({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, params: Any = None) -> int:
        request_id = next(self._ids)
        self.put({"jsonrpc": "2.0", "id": request_id, "method": method, **({} if params is None else {"params": params})})
        return request_id

    def reply(self, request_id: Any) -> dict[str, Any]:
        """The reply to a request; what comes before it is kept in ``others``."""
        for message in self.others:
            if message.get("id") == request_id and "method" not in message:
                self.others.remove(message)
                return message
        while (message := self.get()).get("id") != request_id or "method" in message:
            self.others.append(message)
        return message

    def call(self, method: str, params: Any = None) -> Any:
        """The result; fails on an error."""
        reply = self.reply(self.request(method, params))
        assert "error" not in reply, reply
        return reply["result"]

    def error(self, method: str, params: Any = None) -> dict[str, Any]:
        """The error; fails on a result."""
        return self.reply(self.request(method, params))["error"]

    def event(self, kind: str) -> dict[str, Any]:
        """The params of the next event of that topic."""
        method = f"openprogram/event/{kind}"
        for message in self.others:
            if message.get("method") == method:
                self.others.remove(message)
                return message["params"]
        while (message := self.get()).get("method") != method:
            self.others.append(message)
        return message["params"]

    def connect(self) -> Raw:
        """Past the gate."""
        self.call("openprogram/connect", {"protocol": PROTOCOL, "client": "test", "pid": os.getpid()})
        return self

    def open(self, root: Path, *, trusted: bool = True, env: dict[str, str] | None = None) -> str:
        """A workspace's id."""
        given = {"PATH": os.environ["PATH"], **(env or {})}
        return self.call("openprogram/workspace/open", {"root": str(root), "python": sys.executable, "env": given, "trusted": trusted})["workspace"]

    def run(self, workspace: str, function: str, run_id: str = "", **args: Any) -> str:
        """Start a run; its id."""
        run_id = run_id or os.urandom(16).hex()
        self.call("openprogram/run", {"runId": run_id, "function": function, "workspace": workspace, "args": args})
        return run_id

    def result(self, run_id: str) -> dict[str, Any]:
        """The run when it has ended."""
        return self.call("openprogram/result", {"runId": run_id})

    def close(self) -> None:
        self._file.close()
        self.sock.close()
