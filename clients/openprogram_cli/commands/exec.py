"""``openprogram exec``: one turn with the model, its text shown as it arrives."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from openprogram_protocol.paths import workspace_of

from openprogram_cli import outcome, output
from openprogram_cli.exits import UNAVAILABLE, usage
from openprogram_cli.shared import Local, check_session, connected, warn_of_settings
from openprogram_cli.streams import as_utf8, discard_stdout

if TYPE_CHECKING:
    from openprogram.agentic_programming.session import Session
    from openprogram.context.call import Call
    from openprogram.remote import RemoteProvider as Provider
    from openprogram_cli.outcome import Outcome


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
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="Let the answer be at most so many tokens long.")] = None,
    local: Local = False,
) -> int:
    seconds = outcome.seconds_of(timeout)
    check_session(session)
    turn = _Turn(_prompt(prompt), system, model, max_tokens)
    warn_of_settings(workspace_of(Path.cwd()))
    with outcome.stdout_for(as_json):
        shown, found = _here(turn, session, seconds, as_json) if local else _there(turn, session, seconds, as_json)
    shown.end_line()
    if shown.cut_off:
        output.complain(f"the answer was cut off at the limit of {shown.cut_off}; --max-tokens N raises it")
    return outcome.report(found, as_json=as_json, show=shown.finish)


class _Turn(NamedTuple):
    """What is said, and to whom."""

    text: str
    system: str | None
    model: str | None
    max_tokens: int | None

    @property
    def title(self) -> str:
        """What the session is called."""
        return output.one_line(self.text, 60)


def _here(turn: _Turn, session: str | None, seconds: float | None, as_json: bool) -> tuple[Streamed, Outcome]:
    from openprogram_cli import running

    if turn.model is not None:
        os.environ["OPENPROGRAM_MODEL"] = turn.model
    return _take(turn, running.open_session(session, turn.title), seconds, as_json, None)


def _there(turn: _Turn, session: str | None, seconds: float | None, as_json: bool) -> tuple[Streamed, Outcome]:
    from openprogram.agentic_programming.session import Session
    from openprogram.providers.registry import chosen_model
    from openprogram.remote import RemoteProvider, RemoteStore

    model = chosen_model(model=turn.model)  # here, since the workspace of a prompt is not trusted by it
    with connected() as client:
        provider = RemoteProvider(client, model=model)
        recorded = Session(session, title=turn.title, store=RemoteStore(client))
        with _unrecorded() as complaints:
            shown, found = _take(turn, recorded, seconds, as_json, provider)
        if found.failure is None or found.failure.code != UNAVAILABLE:  # a daemon that is gone says it all
            for message in complaints:
                output.complain(message)
        return shown, found


@contextlib.contextmanager
def _unrecorded() -> Generator[list[str]]:
    """What the library logs of nodes that it could not record."""
    from openprogram.context.scope import logger

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def _take(turn: _Turn, recorded: Session | None, seconds: float | None, as_json: bool, provider: Provider | None) -> tuple[Streamed, Outcome]:
    from openprogram_cli import running
    from openprogram_cli.progress import Progress

    line, deadline = Progress("waiting for the model"), running.Deadline(seconds)
    shown = Streamed(begin=line.quiet, unread=deadline.interrupt)
    found = running.execute(lambda: _answer(turn, provider, None if as_json else shown), session=recorded, deadline=deadline, what=line, role="llm")
    if recorded is not None and found.node is not None and (node := recorded.store.node(found.node)) is not None:
        shown.cut_off = _limit_of(node)
    return shown, found


def _limit_of(node: Call) -> str:
    """The limit that ended an answer; empty when it ended by itself."""
    if node.metadata.get("finish_reason") != "length":
        return ""
    written = node.metadata.get("usage", {}).get("output_tokens")
    return f"{written} tokens" if written else "its length"


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
    """What of an answer is on the terminal already. ``begin`` is called before its first text, ``unread`` when nobody reads it any more.

    ``cut_off`` says which limit ended the answer, if one did.
    """

    def __init__(self, *, begin: Callable[[], None], unread: Callable[[], None]) -> None:
        self.started = False
        self.cut_off = ""
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


def _answer(turn: _Turn, provider: Provider | None, shown: Streamed | None) -> Any:
    from openprogram import Runtime, create_runtime

    with create_runtime() if provider is None else Runtime(provider=provider, model=provider.model) as runtime:
        if turn.system is not None:
            runtime.system = turn.system
        if shown is not None:
            runtime.on_stream = shown.event
        return runtime.exec(turn.text, model_settings=None if turn.max_tokens is None else {"max_output_tokens": turn.max_tokens})
