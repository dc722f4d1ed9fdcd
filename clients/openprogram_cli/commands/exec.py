"""``openprogram exec``: one turn with the model, its text shown as it arrives."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from openprogram_cli import output
from openprogram_cli.exits import usage
from openprogram_cli.streams import as_utf8, discard_stdout


def register(app: typer.Typer) -> None:
    app.command("exec", help="Send PROMPT to the model and print its answer as it arrives. `-` reads the prompt from standard input.")(exec_)


def exec_(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to say.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    model: Annotated[str | None, typer.Option(help="The model, as provider:model.")] = None,
    session: Annotated[str | None, typer.Option(help="Record in this session; one that exists goes on.")] = None,
    system: Annotated[str | None, typer.Option(help="The system text.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="SECONDS", help="Give up after this many seconds.")] = None,
) -> int:
    from openprogram_cli import running
    from openprogram_cli.progress import Progress

    seconds = running.seconds_of(timeout)
    text = _prompt(prompt)
    if model is not None:
        os.environ["OPENPROGRAM_MODEL"] = model
    recorded = running.open_session(session, output.one_line(text, 60))
    with running.stdout_for(as_json):
        line, deadline = Progress("waiting for the model"), running.Deadline(seconds)
        shown = Streamed(begin=line.quiet, unread=deadline.interrupt)
        outcome = running.execute(lambda: _turn(text, system, None if as_json else shown), session=recorded, deadline=deadline, what=line, role="llm")
    shown.end_line()
    return running.report(outcome, as_json=as_json, show=shown.finish)


def _prompt(prompt: str) -> str:
    if prompt == "-":
        try:
            prompt = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise usage(f"standard input is not UTF-8 text (byte {error.start})") from error
    prompt = as_utf8(prompt)
    if not prompt.strip():
        raise usage("the prompt is empty")
    return prompt


class Streamed:
    """What of an answer is on the terminal already. ``begin`` is called before its first text, ``unread`` when nobody reads it any more."""

    def __init__(self, *, begin: Callable[[], None], unread: Callable[[], None]) -> None:
        self.started = False
        self._text = ""
        self._begin = begin
        self._unread = unread
        self._is_read = True

    def event(self, event: dict[str, Any]) -> None:
        """Show a piece of text; other events say nothing to a reader."""
        if event.get("type") == "text" and event["text"]:
            if not self.started:
                self._begin()
            self.started = True
            self._text += event["text"]
            self._write(output.printable(event["text"]))
        elif event.get("type") in ("restart", "reset"):
            if self.started:
                self._write("\n[the answer starts over]\n")
            self._text = ""

    def _write(self, text: str) -> None:
        if not self._is_read:
            return
        try:
            output.write(text, end="")
        except BrokenPipeError:
            self._is_read = False
            discard_stdout()
            self._unread()

    def end_line(self) -> None:
        """End the last line of what was shown."""
        if self.started:
            self._write("\n")

    def finish(self, result: Any) -> None:
        """Print the answer unless it was shown as it came."""
        if result != self._text:
            output.write_result(result)


def _turn(text: str, system: str | None, shown: Streamed | None) -> Any:
    from openprogram import create_runtime

    with create_runtime() as runtime:
        if system is not None:
            runtime.system = system
        if shown is not None:
            runtime.on_stream = shown.event
        return runtime.exec(text)
