"""A person at the terminal of this process.

Questions are shown on stderr, one after another in the order in which they were asked. The terminal is read as the loop hears of input, never by a thread that
waits in a read: a question that is withdrawn leaves nothing behind that could take the next answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

from openprogram.agentic_programming.asking.questions import Answer, Ask, Question

if TYPE_CHECKING:
    from rich.console import Console

YES = ("y", "yes", "true", "1")
NO = ("n", "no", "false", "0")


class _Turns:
    """First come, first served, across threads and event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Future[None] | None = None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        mine: Future[None] = Future()
        with self._lock:
            before, self._last = self._last, mine
        try:
            if before is not None:
                await asyncio.shield(asyncio.wrap_future(before))
            yield
        finally:
            if before is None or before.done():
                mine.set_result(None)
            else:  # whoever gives up while waiting passes the turn on when it comes
                before.add_done_callback(lambda _: mine.set_result(None))


class Terminal:
    """Asks on stderr and reads from stdin."""

    def __init__(self) -> None:
        self._turns = _Turns()

    def attached(self) -> bool:
        """Whether stdin and stderr are a terminal that this process may read: one in the background would be stopped by the system."""
        try:
            fd = sys.stdin.fileno()
            if not (os.isatty(fd) and os.isatty(sys.stderr.fileno())):
                return False
            return not hasattr(os, "tcgetpgrp") or os.tcgetpgrp(fd) == os.getpgrp()
        except (OSError, ValueError, AttributeError):  # no stdin, a closed one, or an object without a descriptor
            return False

    async def put(self, ask: Ask) -> Answer:
        async with self._turns.turn():
            return await _Screen().put(ask)


TERMINAL = Terminal()


class _Closed(Exception):
    """The person ended the input (Ctrl-D)."""


class _Screen:
    """One ask being shown."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console: Console = Console(file=sys.stderr, highlight=False, markup=False)
        self._fd = sys.stdin.fileno()
        self._rest = b""

    async def put(self, ask: Ask) -> Answer:
        is_alone = len(ask.questions) == 1 and ask.kind != "form"
        if not is_alone and ask.prompt and not ask.problems:
            self._console.print(ask.prompt, style="bold")
        values: dict[str, Any] = {}
        try:
            for question in ask.questions:
                if ask.problems and question.name not in ask.problems:
                    values[question.name] = ask.given.get(question.name)
                    continue
                if problem := ask.problems.get(question.name):
                    self._console.print(f"  {problem}", style="red")
                values[question.name] = await self._question(question, confirm=ask.kind == "confirm")
        except _Closed:
            self._console.print("(declined)", style="dim")
            return Answer(outcome="decline")
        except asyncio.CancelledError:
            self._console.print()
            raise
        return Answer(values=values)

    async def _question(self, question: Question, *, confirm: bool) -> Any:
        is_bool = confirm or question.schema.get("type") == "boolean"
        hint = _hint(question, is_bool)
        self._console.print(f"{question.prompt}{hint}", style="bold")
        for number, option in enumerate(question.options, 1):
            self._console.print(f"  {number}. {option.label}" + (f" – {option.description}" if option.description else ""))
        while True:
            text = await self._lines() if question.multiline else await self._line(secret=question.secret)
            if not text.strip():
                return None
            if not is_bool or (text.strip().lower() in (*YES, *NO)):
                return _value(question, text, is_bool)
            self._console.print("  please answer y or n", style="red")

    async def _lines(self) -> str:
        """Lines up to an empty one."""
        lines: list[str] = []
        while line := await self._line():
            lines.append(line)
        return "\n".join(lines)

    async def _line(self, *, secret: bool = False) -> str:
        with _without_echo(self._fd) if secret else contextlib.nullcontext():  # first: who is quick may type as soon as the prompt is there
            sys.stderr.write("> ")
            sys.stderr.flush()
            line = await self._read()
        if secret:
            self._console.print()
        return line

    async def _read(self) -> str:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        while b"\n" not in self._rest:
            ready = loop.create_future()
            loop.add_reader(self._fd, _tell, ready)
            try:
                await ready
            finally:
                loop.remove_reader(self._fd)
            data = os.read(self._fd, 65536)
            if not data:
                raise _Closed
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r")


def _tell(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _hint(question: Question, is_bool: bool) -> str:
    """What is said behind a prompt: how to answer, and what holds without an answer."""
    if is_bool:
        return f" [{'Y/n' if question.default else 'y/N'}]" if question.has_default else " [y/n]"
    notes: list[str] = []
    if question.multi:
        notes.append("several, separated by commas")
    if question.custom:
        notes.append("or your own words")
    if question.multiline:
        notes.append("end with an empty line")
    if question.placeholder:
        notes.append(f"such as {question.placeholder}")
    if question.has_default and question.default is not None and not question.secret:
        given: Any = question.default
        default = cast("list[Any]", given) if isinstance(given, list) else [given]
        shown = ", ".join(map(str, default))
        notes.append(f"default: {shown}")
    elif not question.required:
        notes.append("optional")
    return f" ({'; '.join(notes)})" if notes else ""


def _value(question: Question, text: str, is_bool: bool) -> Any:
    """What was typed as an answer: a number stands for the option with that number, unless it is one's own label."""
    if is_bool:
        return text.strip().lower() in YES
    labels = [option.label for option in question.options]
    if labels:
        parts = [part.strip() for part in text.split(",")] if question.multi and text.strip() not in labels else [text.strip()]
        picked = [labels[int(part) - 1] if part not in labels and part.isdecimal() and 0 < int(part) <= len(labels) else part for part in parts if part]
        return picked if question.multi else picked[0]
    if question.schema.get("type") == "array" and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


@contextlib.contextmanager
def _without_echo(fd: int) -> Generator[None]:
    import termios

    before = termios.tcgetattr(fd)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(fd, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
