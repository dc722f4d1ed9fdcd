"""A run in the daemon, watched from a terminal: its output as it comes, Ctrl-C, deadlines, kills on either side, and reading it again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clients.cli.command import TIMEOUT_S, Command, Done, ended, wait_for

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and Unix sockets")

STEPS = """
from pathlib import Path
import sys, time
from openprogram import agentic_function


@agentic_function
def steps():
    print("begun é", end="", flush=True)
    while not Path("go").exists():
        time.sleep(0.01)
    print(" and done", file=sys.stderr)
    return "result"


@agentic_function
def lines():
    while True:
        print("line")


@agentic_function(input={"secret": {"hidden": True}})
def hidden(secret: int = 0):
    return secret


made = agentic_function(lambda a: a)
print("imported")
"""


def running(command: Command, function: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A run whose function has begun."""
    process = command.start("run", function, *arguments)
    wait_for((command.folder / "waiting").exists, "the run to begin")
    return process


def states(command: Command, *arguments: str) -> list[str]:
    return [run["state"] for run in command("runs", "--json", *arguments).json["runs"]]


def test_output_arrives_while_the_function_runs(shared: Command) -> None:
    """What it prints on either stream is on stdout at once, and the result follows; what its import printed comes first."""
    shared.write({"steps.py": STEPS})
    process = shared.start("run", "steps.py:steps")
    assert process.stdout is not None
    begun = "imported\nbegun é".encode()
    assert process.stdout.read(len(begun)) == begun
    (shared.folder / "go").touch()
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert Done(process.returncode, out.decode(), err.decode()).whole == (0, " and done\nresult\n", "")


def test_under_json_the_output_goes_to_stderr(shared: Command) -> None:
    """stdout is one document, which names the run."""
    shared.write({"steps.py": STEPS, "go": ""})
    done = shared("run", "steps.py:steps", "--json")
    assert done.told == "imported\nbegun é and done\n"
    assert done.json["result"] == "result"
    assert [run["runId"] for run in shared("runs", "--json").json["runs"]] == [done.json["runId"]]


def test_ctrl_c_cancels_the_run(shared: Command) -> None:
    """Exit code 130 in one line; the run and its node read cancelled, and nothing goes on."""
    done = ended(running(shared, "wait"), signal.SIGINT)
    assert done.whole == (130, "", "openprogram: interrupted\n")
    assert states(shared) == ["cancelled"]
    assert states(shared, "--active") == []
    assert [node["status"] for node in shared("dag", "--json").json["nodes"]] == ["cancelled"]


def test_a_second_ctrl_c_leaves_at_once(shared: Command) -> None:
    """A function that does not react is waited for after the first one only; it is killed all the same."""
    process = running(shared, "stubborn")
    process.send_signal(signal.SIGINT)
    wait_for(lambda: cancelling(shared), "the first one to be noticed")
    began = time.monotonic()
    assert ended(process, signal.SIGINT).code == 130
    assert time.monotonic() - began < 10
    wait_for(lambda: states(shared) == ["cancelled"], "the run to be killed")


def cancelling(command: Command) -> bool:
    """Whether the function of `stubborn` has swallowed an interrupt, and so the cancelling has begun."""
    return (command.folder / "interrupted").exists()


@pytest.mark.parametrize("function", ["wait", "stubborn"])
def test_a_deadline_ends_the_run(serving: Command, function: str) -> None:
    """--timeout is the run's own deadline: exit code 1, and its node says that it was the deadline."""
    assert serving("run", "add", "a=1").code == 0  # a worker is there, so that the deadline finds the function running
    done = serving("run", function, "--timeout", "0.5", "--json")
    assert (done.code, done.told) == (1, "openprogram: the run was ended after 0.5 s (--timeout)\n")
    assert done.json["error"]["type"] == "TimeoutError"
    node = serving("dag", "--node", done.json["node"], "--json").json["node"]
    assert (node["status"], node["metadata"]["error"]["message"]) == ("error", "the run was ended after 0.5 s")


def test_a_run_outlives_the_command_that_started_it(shared: Command) -> None:
    """After kill -9 of the command the run goes on; its result is read by its id's beginning, any number of times."""
    shared.write({"steps.py": STEPS})
    process = shared.start("run", "steps.py:steps")
    wait_for(lambda: states(shared, "--active") == ["running"], "the run to begin")
    ended(process, signal.SIGKILL)
    run_id = shared("runs", "--active", "--json").json["runs"][0]["runId"]
    waiting = shared("result", run_id, "--timeout", "0.05")
    assert waiting.code == 1
    assert "it goes on" in waiting.err
    (shared.folder / "go").touch()
    assert shared("result", run_id[:8]).whole == (0, "result\n", "")
    assert shared("result", run_id, "--json").json["result"] == "result"


def test_a_run_is_cancelled_by_its_id(shared: Command) -> None:
    """`cancel` ends what another terminal started, which is told so; a run that has ended stays as it is."""
    process = running(shared, "wait")
    run_id = shared("runs", "--active", "--json").json["runs"][0]["runId"]
    assert shared("cancel", run_id[:6], "--json").json == {"runId": run_id, "outcome": "cancelled", "state": "cancelled"}
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (1, b"")
    assert err.decode().splitlines()[-1] == "openprogram: the run was cancelled"
    assert shared("cancel", run_id).out == f"the run {run_id} had ended before; it is cancelled\n"
    assert shared("result", run_id).code == 1


@pytest.mark.parametrize("arguments", [("result", "zzz"), ("cancel", "zzz"), ("result", "0" * 32), ("cancel", "0" * 32), ("result", "")])
def test_an_unknown_run_is_a_usage_error(serving: Command, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and one line."""
    done = serving(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.told.startswith("openprogram: there is no run")
    assert len(done.told.splitlines()) == 1


def test_a_daemon_that_is_killed_is_one_line(shared: Command) -> None:
    """kill -9 of the daemon ends the waiting within moments with exit code 3; the next command starts a new one, where the run reads interrupted."""
    process = running(shared, "wait")
    os.kill(shared("daemon", "status", "--json").json["pid"], signal.SIGKILL)
    began = time.monotonic()
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert time.monotonic() - began < 10
    assert (process.returncode, out) == (3, b"")
    told = Done(process.returncode, "", err.decode()).told
    assert told.startswith("openprogram: the daemon ended")
    assert len(told.splitlines()) == 1
    assert shared("run", "add", "a=1").out == "3\n"
    assert states(shared) == ["completed", "interrupted"]
    assert shared("dag").code == 0


def test_a_reader_that_goes_away_ends_the_run_quietly(shared: Command) -> None:
    """After `| head -1` the run is cancelled, and nothing is said."""
    shared.write({"steps.py": STEPS})
    process = shared.start("run", "steps.py:lines")
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"imported\n"
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        told = Done(0, "", process.stderr.read().decode()).told
        assert [line for line in told.splitlines() if "left out" not in line] == []
    assert process.wait(TIMEOUT_S) == 0
    assert states(shared) == ["cancelled"]


def test_what_only_the_import_shows_is_run_too(serving: Command) -> None:
    """A function that no decorator in the text shows is found in the worker; a hidden parameter may be given by a person."""
    serving.write({"steps.py": STEPS})
    assert serving("run", "steps.py:made", "a=[1]").out.endswith("[\n  1\n]\n")
    assert serving("run", "steps.py:made").told.startswith("openprogram: missing argument: a (any value)\nusage: openprogram run steps.py:made a=…")
    assert serving("run", "steps.py:hidden", "secret=5").out.endswith("5\n")


def test_bytes_that_are_no_text_are_refused(serving: Command) -> None:
    """The daemon takes text; the error says how else it works."""
    done = serving("run", "echo", b"text=\xff")
    assert done.code == 2
    assert "--local" in done.err


def test_without_a_home_there_is_no_daemon(openprogram: Command) -> None:
    """A home that cannot be is one line with exit code 3, which says what works without it."""
    openprogram.local = False
    openprogram.home.write_text("a file where a folder should be")
    for arguments in (("run", "x.py:f"), ("sessions",), ("runs",), ("functions",)):
        (openprogram.folder / "x.py").touch()
        done = openprogram(*arguments)
        assert (done.code, done.out) == (3, "")
        assert "`--local` works without a daemon" in done.err
        assert len(done.told.splitlines()) == 1


def test_the_last_good_version_answers_and_says_so(shared: Command) -> None:
    """A saved edit runs at once; a syntax error in the file or in a helper is told on stderr and by `functions`, until it is mended."""
    good = "from openprogram import agentic_function\nimport helper\n@agentic_function\ndef go():\n    return 'one ' + helper.word()\n"
    shared.write({"ed.py": good, "helper.py": "def word(): return 'a'\n"})
    assert shared("run", "ed.py:go").whole == (0, "one a\n", "")
    shared.write({"ed.py": good.replace("one", "two")})
    assert shared("run", "ed.py:go").whole == (0, "two a\n", "")
    shared.write({"ed.py": good.replace("one", "two") + "def (\n"})
    served = shared("run", "ed.py:go", "--json")
    assert served.json["result"] == "two a"
    assert served.json["warning"].startswith("ed.py:6: SyntaxError: invalid syntax; the last good version")
    assert served.told == f"openprogram: {served.json['warning']}\n"
    assert "  line 6: error: invalid syntax  (the last good version answers)\n" in shared("functions", "ed.py").out
    shared.write({"ed.py": good})
    assert "error" not in shared("functions").out
    assert shared("run", "ed.py:go").whole == (0, "one a\n", "")
    for mistake, said in (("def (\n", "invalid syntax"), ("raise ValueError('é')\n", "ValueError: é")):
        shared.write({"helper.py": f"def word(): return 'b'\n{mistake}"})
        assert shared("run", "ed.py:go").out == "one a\n"
        assert f"  line 2: error: {said}" in shared("functions").out
        shared.write({"helper.py": "def word(): return 'a'\n"})
        assert "error" not in shared("functions").out
    shared.write({"helper.py": "def word(): return 'c'\n"})
    assert shared("run", "ed.py:go").whole == (0, "one c\n", "")


def test_files_that_a_function_makes_are_as_usual(shared: Command) -> None:
    """The daemon's own files are private; those of user code have the rights that the user's umask gives."""
    touch = "import pathlib\nfrom openprogram import agentic_function\n@agentic_function\ndef touch():\n    pathlib.Path('made').touch()\n"
    shared.write({"touch.py": touch})
    assert shared("run", "touch.py:touch").code == 0
    usual = shared.folder / "usual"
    usual.touch()
    assert (shared.folder / "made").stat().st_mode == usual.stat().st_mode
    assert {path.name: oct(path.stat().st_mode & 0o077) for path in shared.home.iterdir()} == {path.name: "0o0" for path in shared.home.iterdir()}


def test_daemon_commands(shared: Command) -> None:
    """start, status, restart, logs and stop; status without a daemon is exit code 3 and starts none."""
    assert shared("daemon", "status").code == 3
    assert not Path(shared.home, "daemon.json").exists()
    assert shared("daemon", "start").out.startswith("the daemon runs, pid ")
    first = shared("daemon", "status", "--json").json["pid"]
    assert shared("daemon", "start").out == f"the daemon runs, pid {first}\n"
    assert shared("daemon", "restart").code == 0
    second = shared("daemon", "status", "--json").json["pid"]
    assert second != first
    assert f"pid {second}" in shared("daemon", "status").out
    assert "listening at" in shared("daemon", "logs", "-n", "5").out
    assert shared("daemon", "stop").out == f"the daemon, pid {second}, has stopped\n"
    assert shared("daemon", "stop").code == 0
