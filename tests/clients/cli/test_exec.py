"""`openprogram exec` with a model whose reply takes its time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.clients.cli.command import TIMEOUT_S, Command

SLOW = """
import asyncio

from openprogram.providers.base import Finish, Profile, TextDelta


class Slow:
    name = "slow"

    def profile(self, model):
        return Profile()

    async def stream(self, request):
        if request.model == "endless":
            for _ in range(6000):
                yield TextDelta("line\\n")
                await asyncio.sleep(0.01)
        for piece in request.model.split("_"):
            if piece == "wait":
                await asyncio.sleep(1.2)
            elif piece == "cut":
                yield Finish(reason="length")
                return
            else:
                yield TextDelta(piece)
        yield Finish()

    async def aclose(self):
        pass
"""

MAIN = """
import sys

from openprogram.providers import registry
from openprogram_cli.app import run_command_line

registry.ROWS["slow"] = ("slow", "Slow", "")
sys.exit(run_command_line(sys.argv[1:]))
"""


@pytest.fixture
def slow(openprogram: Command) -> Command:
    """A folder with ``main.py``, which is the command with one provider more: ``slow:PIECE_PIECE``, where ``wait`` is a pause and ``cut`` the token limit."""
    openprogram.write({"slow.py": SLOW, "main.py": MAIN})
    return openprogram


def start(command: Command, model: str, *arguments: str, stderr: int) -> subprocess.Popen[bytes]:
    line = [sys.executable, "main.py", "exec", "hello", "--model", f"slow:{model}", "--local", *arguments]
    return subprocess.Popen(line, cwd=command.folder, env=command.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo terminals")
def test_progress_ends_with_the_first_text(slow: Command) -> None:
    """On a terminal the line is there until the answer begins, and never again: the answer stands whole."""
    shown = slow.on_terminal("main.py", "exec", "hello", "--model", "slow:wait_one_wait_two", "--local")
    assert shown == (0, b"\r\x1b[Kwaiting for the model\xe2\x80\xa6 1 s\r\x1b[Konetwo\r\n")


def test_an_answer_in_a_pipe_is_not_interrupted(slow: Command) -> None:
    """With stderr in the same pipe nothing lands in the middle of the answer."""
    out, _ = start(slow, "one_wait_two", stderr=subprocess.STDOUT).communicate(timeout=TIMEOUT_S)
    assert out == b"onetwo\n"


def test_a_reader_that_goes_away_ends_the_turn_quietly(slow: Command) -> None:
    """After `| head -1` nothing is said, the model is not asked for the rest, and the exit code is 0."""
    process = start(slow, "endless", stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.wait(TIMEOUT_S) == 0
    assert [node["status"] for node in slow("dag", "--json").json["nodes"]] == ["cancelled"]
