"""How a run ends other than by returning: deadlines, Ctrl-C, kill, closed pipes; and what is shown while it takes long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clients.cli.command import TIMEOUT_S, Command, ended, wait_for


def test_a_reader_that_goes_away_is_no_failure(agents: Command) -> None:
    """A closed pipe ends the command quietly."""
    agents.write({"big.py": "from openprogram import agentic_function\n@agentic_function\ndef big():\n    return 'line\\n' * 200_000\n"})
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, *agents.line("run", "big.py:big")],
        cwd=agents.folder,
        env=agents.environment(),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=False,
    )
    os.close(writing)
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_a_failure_in_one_line(agents: Command) -> None:
    """A result that cannot be written makes exit code 1, with the reason and no traceback."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, *agents.line("run", "echo", "text=x")]
        done = subprocess.run(
            command, cwd=agents.folder, env=agents.environment(), stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def status_of_last(command: Command) -> list[str]:
    return [node["status"] for node in command("dag", "--json").json["nodes"]]


@pytest.mark.parametrize("function", ["wait", "stubborn"])
def test_a_timeout_ends_the_run(agents: Command, function: str) -> None:
    """After --timeout the run is over with exit code 1 and a message, its node is closed; a function that ignores it is ended with the process."""
    done = agents("run", function, "--timeout", "0.3")
    assert done.code == 1
    assert "ended after 0.3 s" in done.err
    assert "Traceback" not in done.err
    assert status_of_last(agents) == ["cancelled" if function == "wait" else "interrupted"]
    if function == "wait":
        assert "TimedOut: the run was ended after 0.3 s (--timeout)" in agents("dag").out


def test_a_timeout_that_is_not_reached_changes_nothing(agents: Command) -> None:
    """A run that is quicker than its deadline gives its result."""
    assert agents("run", "add", "a=1", "--timeout", "1e6") == (0, "3\n", "")


def test_a_timeout_does_not_wait_for_threads(agents: Command) -> None:
    """Threads that an ended run leaves behind do not keep the command alive."""
    started = time.monotonic()
    assert agents("run", "left_behind", "--timeout", "0.3").code == 1
    assert time.monotonic() - started < 30


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_cancels_the_run(agents: Command) -> None:
    """Ctrl-C ends the run with exit code 130 and without a traceback; its node reads cancelled."""
    process = agents.start("run", "wait")
    wait_for((agents.folder / "waiting").exists, "the run to begin")
    done = ended(process, signal.SIGINT)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert status_of_last(agents) == ["cancelled"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_run_reads_interrupted(agents: Command) -> None:
    """After kill -9 in the middle of a model call every acknowledged node is there and the open ones read interrupted, in the tree too."""
    process = agents.start("run", "talk")
    wait_for((agents.folder / "waiting").exists, "the second model call to begin")
    assert ended(process, signal.SIGKILL).code == -signal.SIGKILL
    nodes = agents("dag", "--json").json["nodes"]
    assert [(node["role"], node["output"], node["status"]) for node in nodes] == [
        ("code", None, "interrupted"),
        ("llm", "done", "completed"),
        ("llm", None, "interrupted"),
    ]
    assert agents("dag").out.count("interrupted") == 2


def test_a_long_run_shows_one_line_of_progress(agents: Command) -> None:
    """A run of more than a second says so on stderr, once when that is no terminal; a short one says nothing."""
    done = agents("run", "wait", "seconds=1.2")
    assert (done.code, done.out) == (0, "waited\n")
    assert done.err == "still running… 1 s\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo terminals")
def test_progress_on_a_terminal_leaves_nothing_behind(agents: Command) -> None:
    """On a terminal the line counts, makes room for what the function prints, and is gone at the end."""
    body = "    time.sleep(1.2)\n    print('printed')\n"
    agents.write({"slow.py": f"import time\nfrom openprogram import agentic_function\n@agentic_function\ndef slow():\n{body}"})
    code, shown = agents.on_terminal(*agents.line("run", "slow.py:slow"))
    assert (code, shown) == (0, b"\r\x1b[Kstill running\xe2\x80\xa6 1 s\r\x1b[Kprinted\r\n")


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo terminals")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_progress_never_touches_a_line_that_holds_output(agents: Command, stream: str) -> None:
    """While what the function wrote stands in an unfinished line, no progress is shown there."""
    body = f"    print('half a line', end='', file=sys.{stream}, flush=True)\n    time.sleep(1.2)\n    print(' and its end', file=sys.{stream})\n"
    agents.write({"slow.py": f"import sys, time\nfrom openprogram import agentic_function\n@agentic_function\ndef slow():\n{body}"})
    assert agents.on_terminal(*agents.line("run", "slow.py:slow")) == (0, b"half a line and its end\r\n")
