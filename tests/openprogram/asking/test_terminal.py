"""A person at a terminal: real processes on a pseudo-terminal, typed at."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")

LIMIT_S = 60.0
PROLOGUE = """
import asyncio, enum, threading, sys
from openprogram import AskTimeout, Runtime, UserDeclined
from openprogram.agentic_programming.asking import Ask
runtime = Runtime(call=lambda content: "hm")
"""


class Terminal:
    """A program whose terminal we are."""

    def __init__(self, program: str, folder: Path) -> None:
        import pty

        self._ours, theirs = pty.openpty()
        command = [sys.executable, "-c", PROLOGUE + program]
        self.process = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=_take_terminal)  # noqa: PLW1509 - the child needs it to own the terminal
        os.close(theirs)
        self.said = ""

    def wait_for(self, text: str, count: int = 1) -> None:
        """Until the program has written that, so many times."""
        deadline = time.monotonic() + LIMIT_S
        while self.said.count(text) < count:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come; the terminal reads:\n{self.said}"
            try:
                data = os.read(self._ours, 4096)
            except OSError:  # the other side is closed
                data = b""
            assert data, f"the program ended before {text!r}; the terminal reads:\n{self.said}"
            self.said += data.decode()

    def type(self, text: str) -> None:
        """As a person does."""
        os.write(self._ours, text.encode())

    def close(self) -> None:
        """End the program, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Those that a test opened, closed at its end."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_questions_are_asked_and_answered(terminals: list[Terminal], tmp_path: Path) -> None:
    """Options by number or label, several by commas, a default by Enter, a form whose wrong field alone is asked again, a secret that is not shown."""
    program = """
class C(enum.Enum): RED = "red"; BLUE = "blue"
print("can", runtime.can_ask())
print([runtime.ask("Name?"), runtime.ask("Which?", ["x", ("y", "the second")]), runtime.ask("Some?", [1, 2, 3], multi=True), runtime.confirm("Sure?", True)])
print(runtime.form("Fill in", {"n": int, "c": C, "tags": [str], "pin": {"secret": True}, "why": {"required": False}}))
print("end")
"""
    terminal = Terminal(program, tmp_path)
    terminals.append(terminal)
    answers = ["Ädä", "2", "1, 3", "", "x", "BLUE", "a, b", "hunter2", "", "7"]
    for number, answer in enumerate(answers, 1):
        terminal.wait_for("> ", number)
        terminal.type(f"{answer}\n")
    terminal.wait_for("\nend")
    said = terminal.said.replace("\r", "")
    assert "can True" in said
    assert "  2. y – the second" in said
    assert "['Ädä', 'y', [1, 3], True]" in said
    assert 'n is "x", expected an integer' in said
    assert "{'n': 7, 'c': <C.BLUE: 'blue'>, 'tags': ['a', 'b'], 'pin': 'hunter2', 'why': None}" in said
    assert said.count("hunter2") == 1  # what was printed at the end, not what was typed
    assert terminal.process.wait(LIMIT_S) == 0


def test_the_end_of_input_declines(terminals: list[Terminal], tmp_path: Path) -> None:
    """Ctrl-D is a refusal; a yes or no that is neither is asked again."""
    program = """
try:
    runtime.ask("Name?", default="d")
except UserDeclined as error:
    print("declined:", error)
print(runtime.confirm("Sure?"))
"""
    terminal = Terminal(program, tmp_path)
    terminals.append(terminal)
    terminal.wait_for("> ")
    terminal.type("\x04")
    terminal.wait_for("declined: the question was declined: Name?")
    terminal.wait_for("> ", 2)
    terminal.type("perhaps\n")
    terminal.wait_for("please answer y or n")
    terminal.type("y\n")
    terminal.wait_for("True")


def test_questions_of_several_threads_take_turns(terminals: list[Terminal], tmp_path: Path) -> None:
    """They are shown one after another, and each gets what was typed for it; one that is withdrawn leaves nothing that takes the next answer."""
    program = """
async def main():
    withdrawn = asyncio.ensure_future(runtime.async_ask("Withdrawn?"))
    await asyncio.sleep(0)
    others = [asyncio.to_thread(runtime.ask, f"Question {n}?") for n in range(3)]
    waiting = asyncio.gather(*others)
    await asyncio.to_thread(sys.stdin.fileno)
    first = asyncio.ensure_future(runtime.async_ask("Also withdrawn?", timeout=0.2, default="late"))
    print(await first)
    withdrawn.cancel()
    print(await waiting)
asyncio.run(main())
"""
    terminal = Terminal(program, tmp_path)
    terminals.append(terminal)
    terminal.wait_for("Withdrawn?")
    terminal.wait_for("late")
    for number in range(3):
        terminal.wait_for("Question", number + 1)
        terminal.wait_for("> ", number + 2)
        asked = terminal.said.rpartition("Question ")[2][0]
        terminal.type(f"answer {asked}\n")
    terminal.wait_for("['answer 0', 'answer 1', 'answer 2']")


def test_an_interrupt_ends_the_wait(terminals: list[Terminal], tmp_path: Path) -> None:
    """Ctrl-C arrives at once as KeyboardInterrupt, and the terminal echoes again afterwards, also when a secret was asked."""
    program = """
try:
    runtime.form("Log in", {"pin": {"secret": True}})
except KeyboardInterrupt:
    print("interrupted")
print(runtime.ask("Name?"))
"""
    terminal = Terminal(program, tmp_path)
    terminals.append(terminal)
    terminal.wait_for("> ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("interrupted")
    terminal.wait_for("> ", 2)
    terminal.type("visible\n")
    terminal.wait_for("visible", 2)


@pytest.mark.parametrize("stdin", [subprocess.DEVNULL, subprocess.PIPE], ids=["nothing", "a pipe"])
def test_a_program_without_a_terminal_asks_nobody(stdin: int, tmp_path: Path) -> None:
    """What stands in a pipe is no answer of a person."""
    program = PROLOGUE + "print(runtime.can_ask(), runtime.ask('Name?', default='d'))\nrun = runtime.ask('Name?')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, stdin=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.stdout == "False d\n"
    assert "AskTimeout: nobody is attached who could answer: Name?" in done.stderr
