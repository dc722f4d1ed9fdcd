"""``openprogram exec``: one turn with the model, its text shown as it arrives."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from openprogram_cli import output
from openprogram_cli.exits import usage
from openprogram_cli.streams import as_utf8


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

    seconds = running.seconds_of(timeout)
    text = _prompt(prompt)
    if model is not None:
        os.environ["OPENPROGRAM_MODEL"] = model
    shown = Streamed()
    recorded = running.open_session(session, output.one_line(text, 60))
    with running.stdout_for(as_json):
        outcome = running.execute(
            lambda: _turn(text, system, None if as_json else shown), session=recorded, timeout=seconds, what="waiting for the model", role="llm"
        )
    if shown.started:
        output.write()
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
    """What of an answer is on the terminal already."""

    def __init__(self) -> None:
        self.started = False
        self._text = ""

    def event(self, event: dict[str, Any]) -> None:
        """Show a piece of text; other events say nothing to a reader."""
        if event.get("type") == "text":
            self.started = True
            self._text += event["text"]
            output.write(output.printable(event["text"]), end="")
        elif event.get("type") in ("restart", "reset"):
            if self.started:
                output.write("\n[the answer starts over]")
            self._text = ""

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
