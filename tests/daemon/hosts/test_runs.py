"""Runs in real worker processes: what they return, raise and print, and what they cannot break."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from openprogram_daemon.errors import RefusedError
from openprogram_protocol.errors import ErrorCode

from openprogram.loading import digest
from tests.daemon.hosts.support import is_alive, rss_mib, running, served, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@pytest.mark.parametrize("spawn", [False, True], ids=["forked", "spawned"])
def test_a_run_returns_its_value(tmp_path: Path, spawn: bool) -> None:
    """Arguments are converted to the declared types, the value comes back, and the assignment names the source that ran."""
    code = "@agentic_function\ndef add(x: int, where: 'os.PathLike[str] | None' = None, *rest):\n    print('adding', x)\n    return {'sum': x + 1}\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}, spawn=spawn) as here:
            assignment = await here.start("a.py:add", x="41")
            assert (await assignment.done).result == {"sum": 42}
            assert here.printed[assignment.run.run_id] == "adding 41\n"
            assert assignment.source_hash == digest((tmp_path / "a.py").read_bytes())
            assert assignment.warning is None and is_alive(assignment.pid)

    running(test)


KINDS = """
@agentic_function
async def coroutine(x: int):
    await asyncio.sleep(0)
    return x

@agentic_function
def generator(x: int):
    yield from range(x)

@agentic_function
async def async_generator(x: int):
    for i in range(x):
        yield i

class Box:
    @staticmethod
    @agentic_function
    def static(x: int):
        return x

    @classmethod
    @agentic_function
    def of_class(cls, x: int):
        return [cls.__name__, x]

@agentic_function
def by_position(x: int, /, y: int = 1):
    return [x, y]

@agentic_function(name="other-name")
def named(x: int):
    return x
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("coroutine", 3),
        ("generator", [0, 1, 2]),
        ("async_generator", [0, 1, 2]),
        ("Box.static", 3),
        ("Box.of_class", ["Box", 3]),
        ("by_position", [3, 1]),
        ("other-name", 3),
    ],
)
def test_every_kind_of_function_runs(tmp_path: Path, name: str, value: Any) -> None:
    """Coroutines are awaited, generators collected, methods of classes found."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": KINDS}) as here:
            assert await here.call(f"a.py:{name}", x=3) == value

    running(test)


def test_an_exception_shows_the_users_code_only(tmp_path: Path) -> None:
    """The traceback begins in the user's file and holds no line of the machinery."""
    code = "from .helper import fail\n@agentic_function\ndef f():\n    fail()\n"
    helper = "def fail():\n    raise LookupError('not there')\n"

    async def test() -> None:
        async with served(tmp_path, {"pack/__init__.py": "", "pack/a.py": code, "pack/helper.py": helper}) as here:
            done = await here.run("pack/a.py:f")
            assert done.status == "error" and done.error is not None
            assert (done.error["type"], done.error["message"]) == ("LookupError", "not there")
            lines = [line.strip() for line in done.error["trace"].splitlines() if line.strip().startswith("File ")]
            assert lines == [f'File "{tmp_path}/pack/a.py", line 7, in f', f'File "{tmp_path}/pack/helper.py", line 2, in fail']
            assert "raise LookupError('not there')" in done.error["trace"]

    running(test)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("os._exit(1)", "ended with exit code 1"),
        ("ctypes.string_at(0)", "was killed by SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("os.killpg(0, 15)", "was killed by SIGTERM"),
    ],
)
def test_a_worker_that_dies_ends_its_run_only(tmp_path: Path, how: str, message: str) -> None:
    """The run ends with an error that says how; what was printed before is there; another run goes on, and the next one works."""
    code = f"@agentic_function\ndef die():\n    print('before')\n    {how}\n@agentic_function\ndef live(x: int):\n    time.sleep(0.3)\n    return x\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            other = await here.start("a.py:live", x=1)
            assignment = await here.start("a.py:die")
            done = await assignment.done
            assert done.status == "error" and done.error is not None and done.error["type"] == "WorkerDied"
            assert message in done.error["message"]
            assert here.printed[assignment.run.run_id].startswith("before\n")
            assert (await other.done).result == 1
            assert await here.call("a.py:live", x=2) == 2

    running(test)


@pytest.mark.parametrize("code", ["3", "'a text'", ""])
def test_sys_exit_is_an_error_of_the_run(tmp_path: Path, code: str) -> None:
    """The worker goes on to serve."""
    text = f"@agentic_function\ndef leave():\n    sys.exit({code})\n@agentic_function\ndef pid():\n    return os.getpid()\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": text}) as here:
            assignment = await here.start("a.py:leave")
            done = await assignment.done
            assert done.status == "error" and done.error is not None
            assert (done.error["type"], done.error["message"]) == ("SystemExit", f"the function called sys.exit({code or None})")
            assert await here.call("a.py:pid") == assignment.pid

    running(test)


def test_a_gigabyte_of_output_stays_small_here(tmp_path: Path) -> None:
    """Head and tail are kept, memory is bounded, and the loop answers meanwhile."""
    code = "@agentic_function\ndef flood():\n    os.write(1, b'BEGIN')\n    for _ in range(1024):\n        sys.stdout.write('x' * 1048576)\n    print('END')\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            before = rss_mib()
            assignment = await here.start("a.py:flood")
            worst = 0.0
            while not assignment.done.done():
                began = asyncio.get_running_loop().time()
                await asyncio.sleep(0.01)
                worst = max(worst, asyncio.get_running_loop().time() - began)
            kept = assignment.output.text
            assert kept.startswith("BEGINxxx") and kept.endswith("xxxEND\n") and "characters left out" in kept
            assert len(kept) < 200_000
            assert rss_mib() - before < 100
            assert worst < 0.5

    running(test)


def test_whatever_writes_to_the_descriptors_is_output(tmp_path: Path) -> None:
    """Prints, raw writes, children and stderr arrive, in order, also when a run closed or replaced the streams before."""
    code = """@agentic_function
def say():
    print("one é")
    os.write(1, b"two\\n")
    subprocess.run(["echo", "three"])
    print("four", file=sys.stderr)
    print("five", end="")

@agentic_function
def spoil():
    sys.stdout.close()
    sys.stderr = None
"""

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            for _ in range(2):
                assignment = await here.start("a.py:say")
                await assignment.done
                assert here.printed[assignment.run.run_id] == "one é\ntwo\nthree\nfour\nfive"
                assert (await here.run("a.py:spoil")).status == "completed"

    running(test)


def test_standard_input_is_empty(tmp_path: Path) -> None:
    """Nothing that reads it waits."""
    code = "@agentic_function\ndef f():\n    return [os.read(0, 10).decode(), sys.stdin.read()]\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            assert await here.call("a.py:f") == ["", ""]

    running(test)


def test_a_child_that_outlives_its_run_harms_nothing(tmp_path: Path) -> None:
    """A run ends although a grandchild in a session of its own holds its output; the grandchild ends with the hosts."""
    code = "@agentic_function\ndef leave():\n    return subprocess.Popen(['sleep', '300'], start_new_session=True).pid\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            pid = await here.call("a.py:leave")
            assert is_alive(pid)
            assert await here.call("a.py:leave") != pid
        await until(lambda: not is_alive(pid))

    running(test)


def test_a_forked_copy_does_not_answer(tmp_path: Path) -> None:
    """A function that forks and returns twice has one result, and its worker goes on."""
    code = "@agentic_function\ndef f():\n    child = os.fork()\n    if child:\n        os.waitpid(child, 0)\n    return [os.getpid(), child]\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            for _ in range(2):
                assignment = await here.start("a.py:f")
                pid, child = (await assignment.done).result
                assert pid == assignment.pid and child != 0 and not is_alive(child)

    running(test)


def test_runs_share_globals_and_nothing_else(tmp_path: Path) -> None:
    """A worker is used again: its modules keep their globals, each run has a context and a folder of its own."""
    code = """seen = contextvars.ContextVar("seen", default="nothing")
count = 0

@agentic_function
def f(folder: str | None = None):
    global count
    count += 1
    before = seen.get()
    seen.set("something")
    here = os.getcwd()
    os.chdir("/")
    return [count, before, here]
"""
    other = tmp_path / "other"
    other.mkdir()

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            assert await here.call("a.py:f") == [1, "nothing", str(tmp_path)]
            assert (await (await here.start("a.py:f", workdir=str(other))).done).result == [2, "nothing", str(other)]
            assert await here.call("a.py:f") == [3, "nothing", str(tmp_path)]

    running(test)


def test_runs_at_the_same_time_have_processes_of_their_own(tmp_path: Path) -> None:
    """One that blocks keeps nobody waiting."""
    code = "@agentic_function\ndef f(s: float):\n    time.sleep(s)\n    return os.getpid()\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            slow = await here.start("a.py:f", s=30)
            pids = {await here.call("a.py:f", s=0) for _ in range(3)}
            assert len(pids) == 1 and slow.pid not in pids and not slow.done.done()

    running(test)


def test_a_large_result_is_refused_with_its_size(tmp_path: Path) -> None:
    """What no message can carry is an error of the run, not of the connection."""
    code = "@agentic_function\ndef f(n: int):\n    return 'x' * n\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            done = await here.run("a.py:f", n=70_000_000)
            assert done.error is not None and "70,000,002 bytes" in done.error["message"] and done.error["kinds"][0] == "UsageError"
            assert await here.call("a.py:f", n=2) == "xx"

    running(test)


def test_an_unknown_argument_is_the_callers_mistake(tmp_path: Path) -> None:
    """The error names what is wrong and belongs to the branch of usage errors."""
    code = "@agentic_function\ndef f(count: int):\n    return count\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            done = await here.run("a.py:f", count="many")
            assert done.error is not None and done.error["kinds"][:2] == ["ArgumentError", "UsageError"] and "count" in done.error["message"]

    running(test)


def test_nothing_of_an_untrusted_workspace_is_imported(tmp_path: Path) -> None:
    """Its functions are listed, its module is not run, a start is refused; with trust it works."""
    code = "open('imported', 'w').close()\n@agentic_function\ndef f():\n    return 1\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            await here.open(trusted=False)
            assert [info.name for info in (await here.hosts.functions("w")).functions] == ["f"]
            with pytest.raises(RefusedError, match="not trusted") as refused:
                await here.start("a.py:f")
            assert refused.value.code == ErrorCode.UNTRUSTED and not (tmp_path / "imported").exists()
            await here.open(trusted=True)
            assert await here.call("a.py:f") == 1

    running(test)


def test_the_environment_is_that_of_the_workspace(tmp_path: Path) -> None:
    """A workspace that is opened with another environment gets other processes."""
    code = "@agentic_function\ndef f():\n    return [os.environ.get('KEY'), os.getppid()]\n"

    async def test() -> None:
        async with served(tmp_path, {"a.py": code}) as here:
            await here.open(env={"KEY": "one"})
            first = await here.call("a.py:f")
            await here.open(env={"KEY": "two"})
            second = await here.call("a.py:f")
            assert (first[0], second[0]) == ("one", "two") and first[1] != second[1]

    running(test)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo \"python: No module named 'openprogram_daemon'\" >&2; exit 1", "-m pip install openprogram"),
        ("echo something else >&2; exit 1", "something else"),
        (None, "cannot be started"),
    ],
)
def test_an_interpreter_that_cannot_serve_is_named(tmp_path: Path, script: str | None, message: str) -> None:
    """The error says what to do about it."""
    python = tmp_path / "python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)

    async def test() -> None:
        async with served(tmp_path, {"a.py": "@agentic_function\ndef f():\n    return 1\n"}) as here:
            await here.open(python=str(python))
            with pytest.raises(RefusedError, match=message) as refused:
                await here.start("a.py:f")
            assert refused.value.code == ErrorCode.INTERPRETER and str(python) in str(refused.value)
            await here.open()
            assert await here.call("a.py:f") == 1

    running(test)
