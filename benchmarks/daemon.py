"""What the daemon costs: a run beside a stock pygls echo, an exec in a worker beside one in process, a save, the status of a busy daemon."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from openprogram_clients import Client, connect
from openprogram_clients.connection import Connection

from benchmarks import Figure
from openprogram import Runtime, session
from openprogram.providers.scripted import ScriptedProvider
from openprogram.store.sqlite import SqliteStore

ROUNDS = 300
FUNCTIONS = """
import time

from openprogram import agentic_function

STEP = 1


@agentic_function
def trivial(n: int) -> int:
    return n + STEP


@agentic_function
def execs(n: int, runtime=None) -> list[float]:
    taken = []
    for _ in range(n):
        started = time.perf_counter()
        runtime.exec("?")
        taken.append(time.perf_counter() - started)
    return taken


@agentic_function
def block(seconds: float) -> None:
    time.sleep(seconds)


@agentic_function
def chatter(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        print("word " * 200)
"""

ECHO = """
from pygls.lsp.server import LanguageServer

server = LanguageServer("echo", "1")


@server.feature("openprogram/echo")
def echo(params):
    return params


server.start_io()
"""


def figures() -> Iterator[Figure]:
    """All over one daemon, started for it."""
    with tempfile.TemporaryDirectory() as folder, _daemon(Path(folder)) as client:
        yield from _runs(client)
        yield from _execs(client, Path(folder))
        yield from _saves(client, Path(folder))
        yield from _status(client)


@contextlib.contextmanager
def _daemon(folder: Path) -> Generator[Client]:
    before = os.environ.get("OPENPROGRAM_HOME")
    os.environ["OPENPROGRAM_HOME"] = str(folder / "home")
    (folder / "pyproject.toml").touch()
    (folder / "work.py").write_text(FUNCTIONS, "utf-8")
    try:
        with connect(folder, trust=True) as client:
            yield client
            client.stop()
    finally:
        os.environ.pop("OPENPROGRAM_HOME")
        if before is not None:
            os.environ["OPENPROGRAM_HOME"] = before


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextlib.contextmanager
def _echo() -> Generator[Callable[[], object]]:
    """A stock pygls server in a process of its own, spoken to over its pipes by the same framing as ours."""
    process = subprocess.Popen([sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin and process.stdout
    reading, writing = process.stdout, process.stdin

    ids = itertools.count(1)

    def ask(method: str, params: object) -> object:
        body = json.dumps({"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}).encode()
        writing.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        writing.flush()
        length = 0
        while (line := reading.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return json.loads(reading.read(length))

    try:
        ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        yield lambda: ask("openprogram/echo", {"n": 1})
    finally:
        process.kill()
        process.wait()


def _runs(client: Client) -> Iterator[Figure]:
    with _echo() as echo:
        for _ in range(30):
            client.run("trivial", n=1)
            echo()
        pairs = [(_timed(lambda: client.run("trivial", n=1)), _timed(echo)) for _ in range(ROUNDS)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    yield Figure("daemon.run", ours * 1000, "ms")
    yield Figure("daemon.pygls_echo", theirs * 1000, "ms")
    yield Figure("daemon.run_over_pygls_echo", ours / theirs, "ratio", bar=3)


def _execs(client: Client, folder: Path) -> Iterator[Figure]:
    script = folder / "replies.json"
    script.write_text(json.dumps(["hello"]), "utf-8")
    far: list[float] = []
    near: list[float] = []
    store = SqliteStore(folder / "near.sqlite3")
    for _ in range(10):
        far += client.start("execs", {"n": 20}, model=f"scripted:{script}").result()
        with Runtime(provider=ScriptedProvider(["hello"], repeat=True)) as runtime, session(store=store):
            near += [_timed(lambda runtime=runtime: runtime.exec("?")) for _ in range(20)]
    store.close()
    inside, beside = statistics.median(far), statistics.median(near)
    yield Figure("daemon.exec_in_worker", inside * 1000, "ms")
    yield Figure("daemon.exec_in_process", beside * 1000, "ms")
    yield Figure("daemon.exec_added", (inside - beside) * 1000, "ms", bar=0.5)


def _saves(client: Client, folder: Path) -> Iterator[Figure]:
    taken: list[float] = []
    for step in range(2, 12):
        (folder / "work.py").write_text(FUNCTIONS.replace("STEP = 1", f"STEP = {step}"), "utf-8")
        started = time.perf_counter()
        answer = client.run("trivial", n=0)
        taken.append(time.perf_counter() - started)
        assert answer == step, "old code answered"
    yield Figure("daemon.save_to_answer", statistics.median(taken) * 1000, "ms", bar=150)


def _status(client: Client) -> Iterator[Figure]:
    busy = [client.start("block", {"seconds": 90.0}), client.start("chatter", {"seconds": 90.0})]
    for run in busy:
        run.started()
    taken = [_timed(lambda: _ask_status(client.connection)) for _ in range(100)]
    for run in busy:
        run.cancel(0.5)
    yield Figure("daemon.status_when_busy", max(taken) * 1000, "ms", bar=100)


def _ask_status(connection: Connection) -> object:
    return connection.call("openprogram/status", {})
