"""Ending what runs: functions that sleep, loop or refuse, nodes that are being written, and everything at once when the daemon dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from openprogram_daemon.hosts.process import Worker
from openprogram_protocol import dag

from openprogram import wire
from openprogram.context.call import Call, Frame
from openprogram.store.memory import MemoryStore
from tests.daemon.hosts.support import Served, is_alive, running, served, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

ROOT = Path(__file__).parents[3]

ENDLESS = """@agentic_function
def sleeping():
    print("begun")
    time.sleep(300)

@agentic_function
def looping():
    print("begun")
    while True:
        pass

@agentic_function
def deaf():
    print("begun")
    while True:
        try:
            time.sleep(300)
        except Exception:
            pass

@agentic_function
def waiting():
    print("begun")
    subprocess.run(["sleep", "300"])

@agentic_function
async def napping():
    print("begun")
    await asyncio.sleep(300)

@agentic_function
async def blocking():
    print("begun")
    time.sleep(300)

@agentic_function
def in_c():
    print("begun")
    sum(range(10**11))

@agentic_function
def refusing():
    print("begun")
    while True:
        try:
            time.sleep(300)
        except BaseException:
            pass

@agentic_function
def tidy():
    print("begun")
    try:
        time.sleep(300)
    finally:
        print("tidied up")

@agentic_function
def swallowing():
    print("begun")
    try:
        time.sleep(300)
    except BaseException:
        return "kept"

@agentic_function
def quick(x: int):
    return x
"""


async def begin(here: Served, name: str) -> Any:
    assignment = await here.start(f"a.py:{name}")
    await until(lambda: "begun" in here.printed.get(assignment.run.run_id, ""))
    return assignment


@pytest.mark.parametrize("name", ["sleeping", "looping", "deaf", "waiting", "napping", "blocking", "tidy"])
def test_python_code_is_interrupted(tmp_path: Path, name: str) -> None:
    """Whatever a function waits for, it ends by itself long before the grace is over, its cleaning up done; the next run works."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": ENDLESS}) as here:
            assignment = await begin(here, name)
            began = time.monotonic()
            assert await here.hosts.cancel(assignment.run.run_id, 20.0) == "cancelled"
            assert time.monotonic() - began < 5
            done = await assignment.done
            assert done.status == "cancelled" and done.error is not None and done.error["type"] == "CancelledError"
            assert name != "tidy" or here.printed[assignment.run.run_id].endswith("tidied up\n")
            assert await here.call("a.py:quick", x=1) == 1

    running(test)


@pytest.mark.parametrize("name", ["in_c", "refusing"])
def test_what_cannot_be_interrupted_is_killed(tmp_path: Path, name: str) -> None:
    """After the grace its process is ended, and the run says so."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": ENDLESS}) as here:
            assignment = await begin(here, name)
            assert await here.hosts.cancel(assignment.run.run_id, 0.3) == "killed"
            done = await assignment.done
            assert done.status == "cancelled" and done.error is not None and "was killed" in done.error["message"]
            assert not is_alive(assignment.pid)
            assert await here.call("a.py:quick", x=1) == 1

    running(test)


def test_a_cancel_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    """A run that ended stays as it is, one that catches the interrupt has its value, and the worker's next run is not disturbed."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": ENDLESS}) as here:
            first = await here.start("a.py:quick", x=1)
            await first.done
            first.worker.cancel(first.run.run_id)
            second = await begin(here, "sleeping")
            assert second.pid == first.pid
            first.worker.cancel(first.run.run_id)
            assert await here.hosts.cancel(first.run.run_id, 5.0) == "ended"
            assert not second.done.done()
            third = await begin(here, "swallowing")
            assert await here.hosts.cancel(third.run.run_id, 5.0) == "ended"
            assert (await third.done).result == "kept"
            assert not second.done.done()

    running(test)


@pytest.mark.parametrize("name", ["sleeping", "in_c"])
def test_a_deadline_ends_a_run(tmp_path: Path, name: str) -> None:
    """It is an error that names the time."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": ENDLESS}) as here:
            done = await (await here.start(f"a.py:{name}", deadline_s=2.0)).done
            assert done.status == "error" and done.error == {"type": "TimeoutError", "kinds": [], "message": "the run was ended after 2 s", "trace": ""}

    running(test)


def test_a_run_can_be_given_up_while_its_module_is_imported(tmp_path: Path) -> None:
    """A module that never finishes importing is ended with its worker."""
    code = "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(300)\n@agentic_function\ndef f():\n    return 1\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            start = asyncio.create_task(here.start("a.py:f"))
            pid = int(await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            await until(lambda: not is_alive(pid))

    running(test)


class Recorder:
    """Answers the worker's half of the store seam from a store in memory, slowly enough for interrupts to come in between."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        info = self.store.create_session("s")
        entry = Call(id="entry", session="s", role="code", name="many", frame=info.frame, metadata={"frame": "frame-of-the-run"})
        self.store.append(entry, opens=Frame(id="frame-of-the-run", session="s", parent=info.frame, owner="entry"))

    async def __call__(self, worker: Worker, method: str, params: Any) -> Any:
        await asyncio.sleep(0.001)
        if isinstance(params, dag.AppendParams):
            opens = None if params.opens is None else wire.frame_of(params.opens)
            return dag.NodeResult(node=wire.node_of(self.store.append(wire.call_of(params.node), opens=opens)))
        if isinstance(params, dag.UpdateParams):
            return dag.NodeResult(node=wire.node_of(self.store.finish(wire.close_of(params))))
        if isinstance(params, dag.FrameParams):
            frame = self.store.frame(params.id)
            log = [(entry.node, entry.inner) for entry in self.store.log(params.id, params.start, params.stop)]
            return dag.FrameResult(frame=None if frame is None else wire.frame_info(frame), log=log)
        if isinstance(params, dag.NodesParams):
            return dag.NodesResult(nodes=[wire.node_of(node) for node in self.store.nodes(params.ids or [])])
        assert isinstance(params, dag.NodeParams), method
        node = self.store.node(params.id)
        return dag.NodeDetail(node=None if node is None else wire.node_of(node))


NESTED = """@agentic_function
def leaf(i: int):
    return i

@agentic_function
def branch(i: int):
    return [leaf(i), leaf(i + 1)]

@agentic_function
def many():
    print("begun", flush=True)
    while True:
        branch(1)
"""


def test_no_node_stays_open_whenever_the_interrupt_comes(tmp_path: Path) -> None:
    """Interrupted while nodes open and close, a run ends by itself: every node but its entry, which is its starter's, is closed."""

    async def test() -> None:
        for attempt in range(12):
            recorder = Recorder()
            async with served(tmp_path, {"a.py": NESTED}, dispatch=recorder) as here:
                assignment = await here.start("a.py:many", node="entry")
                await until(lambda: len(recorder.store.page("s")) > 8)  # noqa: B023 - asked within this turn
                await asyncio.sleep(attempt * 0.0007)
                assert await here.hosts.cancel(assignment.run.run_id, 10.0) == "cancelled"
                nodes = recorder.store.page("s")
                assert [node.id for node in nodes if node.is_open] == ["entry"]
                assert {node.status for node in nodes} <= {"running", "completed", "cancelled"}
                inside = [node for node in nodes if node.name == "branch"]
                assert {(node.caller, node.frame) for node in inside} == {("entry", "frame-of-the-run")}

    running(test)


ORPHANS = """
import asyncio, os, sys
from pathlib import Path
from tests.daemon.hosts.support import served

async def main():
    async with served(Path(sys.argv[1]), {"a.py": Path(sys.argv[1], "code.txt").read_text()}) as here:
        for _ in range(2):
            await here.start("a.py:f")
        await asyncio.sleep(300)

asyncio.run(main())
"""
CODE = """@agentic_function
def f():
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    grandchild = subprocess.run(["sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True)
    with open(f"pids-{os.getpid()}.part", "w") as file:
        print(os.getpid(), os.getppid(), child.pid, grandchild.stdout, file=file)
    os.rename(f"pids-{os.getpid()}.part", f"pids-{os.getpid()}")
    sum(range(10**11))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_survives_the_daemon(tmp_path: Path, number: int) -> None:
    """Killed while functions compute in C, with children in sessions of their own: zygote, workers and children are gone soon after."""
    (tmp_path / "code.txt").write_text(CODE)
    daemon = subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)], cwd=ROOT)
    try:

        async def test() -> None:
            def pids() -> list[int]:
                return [int(word) for file in tmp_path.glob("pids-*[0-9]") for word in file.read_text().split()]

            found = await until(lambda: len(list(tmp_path.glob("pids-*[0-9]"))) == 2 and pids())
            assert len(found) == 8 and all(is_alive(pid) for pid in found)
            os.kill(daemon.pid, number)
            await until(lambda: not any(is_alive(pid) for pid in found))

        running(test)
    finally:
        daemon.kill()
        daemon.wait()


def test_the_death_of_the_zygote_ends_its_runs_and_no_other(tmp_path: Path) -> None:
    """Runs of its workers end with an error; the next run gets a new zygote."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": ENDLESS + "\n@agentic_function\ndef parent():\n    return os.getppid()\n"}) as here:
            zygote = await here.call("a.py:parent")
            assignment = await begin(here, "sleeping")
            os.kill(zygote, signal.SIGKILL)
            done = await assignment.done
            assert done.status == "error" and done.error is not None and done.error["type"] == "WorkerDied"
            await until(lambda: not is_alive(assignment.pid))
            assert await here.call("a.py:parent") != zygote

    running(test)
