"""One run in the daemon, watched from here: what it prints arrives as it prints it, Ctrl-C cancels it, its end is told like that of a run in this process.

The run does not depend on who watches: only Ctrl-C and a reader that went away end it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from openprogram_protocol.admin import RunEvent
from openprogram_protocol.runs import RunInfo, Word

from openprogram_cli import output, streams
from openprogram_cli.address import address_of
from openprogram_cli.exits import FAILED, INTERRUPTED, UNAVAILABLE, Stop
from openprogram_cli.outcome import Failure, Outcome, ended_after
from openprogram_cli.progress import Progress, progress
from openprogram_cli.shared import connected, import_failed, warn_of_settings

if TYPE_CHECKING:
    from openprogram_clients import Client, Run


WORTH_COUNTING_S = 1.0
"""What a long import takes of a deadline counts; the moment that asking takes would only make its figure odd."""


class Asked(NamedTuple):
    """A run as the command line asks for it."""

    target: str
    words: Sequence[Word]
    session: str | None
    model: str | None
    workdir: Path | None
    seconds: float | None


def run_there(asked: Asked, folder: Path) -> Outcome:
    """Start the run, watch it to its end, and say what it came to. Running a function trusts its workspace. Raises Stop."""
    from openprogram_clients import ConnectionLost

    place = address_of(asked.target, folder)
    warn_of_settings(place.root)
    begun = time.monotonic()
    with connected(place.root, trust=True) as client, progress("still running") as shown:
        args = _arguments(client, place.function, asked)
        spent = time.monotonic() - begun
        left = asked.seconds if asked.seconds is None or spent < WORTH_COUNTING_S else max(asked.seconds - spent, 0.001)
        with CtrlC(client, shown) as interrupts:
            run = client.start(
                place.function,
                args,
                session=asked.session,
                model=asked.model,
                workdir=None if asked.workdir is None else str(asked.workdir.resolve()),
                deadline_s=left,
                watch=True,
            )
            interrupts.run = run
            try:
                read = _watch(run)
                info = run.info()
            except ConnectionLost as error:
                raise Stop(UNAVAILABLE, f"{error}; the run {run.id} then reads interrupted") from error
        shown.quiet()
    return outcome_of(info, seconds=asked.seconds, pressed=interrupts.pressed > 0, read=read)


def _arguments(client: Client, function: str, asked: Asked) -> dict[str, Any]:
    from openprogram_clients import calls

    if (broken := next((word for word in asked.words if not _is_utf8(word.text)), None)) is not None:
        raise Stop(2, f"argument {broken.name}: its bytes are no UTF-8 text, which the daemon takes only; `--local` takes them")
    wanted = calls.arguments(client.workspace, function, list(asked.words), f"openprogram run {asked.target}", asked.seconds)
    read = client.ask(wanted)
    _printed(read.output)
    return read.args


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printed(text: str) -> None:
    """What user code printed, on our stdout as it is."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _watch(run: Run) -> bool:
    """Show what the run prints until it has ended; False when nobody reads it any more, and the run was cancelled for that."""
    read, warned, gap = True, False, False
    for event in run.events():
        if event.gap and not gap:
            gap = True
            output.complain("the run prints faster than this terminal reads; some of it was left out")
        if not warned and (warning := _warning_in(event)) is not None:
            warned = True
            output.complain(warning)
        if event.kind == "output" and read:
            try:
                _printed(str(event.data))
            except BrokenPipeError:
                read = False
                streams.discard_stdout()
                run.cancel()
    return read


def _warning_in(event: RunEvent) -> str | None:
    """What the caller must know of the version that answers; the first event of a run tells it, and the last."""
    if isinstance(event.data, RunInfo):
        return event.data.warning
    found: Any = event.data
    return cast("dict[str, Any]", found).get("warning") if isinstance(found, dict) else None


class CtrlC:
    """While it is entered, the first Ctrl-C cancels the run and the second leaves at once."""

    def __init__(self, client: Client, shown: Progress) -> None:
        self.pressed = 0
        self._client = client
        self._shown = shown
        self._known = threading.Event()
        self._asked = threading.Event()
        self._run: Run | None = None
        self._before: Any = None

    @property
    def run(self) -> Run | None:
        """What is cancelled; set it once it is started."""
        return self._run

    @run.setter
    def run(self, run: Run) -> None:
        self._run = run
        self._known.set()

    def __enter__(self) -> CtrlC:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        # It waits already: starting it from the handler could meet a lock that the interrupted thread holds.
        threading.Thread(target=self._cancel, name="openprogram-cancel", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: object) -> None:
        self.pressed += 1
        if self.pressed > 1:
            raise KeyboardInterrupt
        self._asked.set()

    def _cancel(self) -> None:
        from openprogram_clients import ClientError

        self._asked.wait()
        self._shown.note("cancelling the run, Ctrl-C again leaves at once")
        self._known.wait()
        if self._run is not None:
            with contextlib.suppress(ClientError):  # whoever waits for the run is told
                self._run.cancel()


def outcome_of(info: RunInfo, *, seconds: float | None = None, pressed: bool = False, read: bool = True) -> Outcome:
    """A run that has ended. ``seconds`` is the deadline that it had, ``pressed`` whether Ctrl-C was, ``read`` whether somebody reads stdout."""
    failure = None if info.state == "completed" else _failure(info, seconds, pressed, read)
    result = plain_result(info.result) if failure is None else None
    return Outcome(result, info.session, info.node, failure, info.run_id, info.warning)


def _failure(info: RunInfo, seconds: float | None, pressed: bool, read: bool) -> Failure:
    error = info.error or {}
    kind, message, trace = (str(error.get(name) or "") for name in ("type", "message", "trace"))
    told = {"type": kind or info.state, "message": message}
    if not read:
        return Failure(0, "", told)
    if info.state == "cancelled":
        if pressed:
            return Failure(INTERRUPTED, "interrupted", told)
        return Failure(FAILED, "the run was cancelled" + (f": {message}" if message and kind == "Cancelled" else ""), told)
    if info.state == "interrupted":
        return Failure(UNAVAILABLE, message or "the run was interrupted: the daemon ended while it ran", told)
    if kind == "TimeoutError" and not trace:
        message = message if seconds is None else ended_after(seconds)
        return Failure(FAILED, message, {**told, "message": message})
    if "ConfigurationError" in error.get("kinds", ()):
        return Failure(UNAVAILABLE, message, told)
    if kind == "SystemExit":
        return Failure(FAILED, f"{message}, so it did not return", told)
    if error.get("file"):
        return Failure(FAILED, f"openprogram: {import_failed(error)}" if trace else message, told)
    return Failure(FAILED, trace.rstrip() or f"{kind}: {message}", told)


def plain_result(value: Any) -> Any:
    """A result as the daemon tells it, with the types that JSON lacks as `output.plain` shows them."""
    if not _has_form(value):
        return value
    import json

    from openprogram.store.values import decode

    return output.plain(_without_forms(decode(json.dumps(value))))


def _has_form(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_form(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        return "$type" in mapping or any(_has_form(item) for item in mapping.values())
    return False


def _without_forms(value: Any) -> Any:
    """A record that only its class could restore becomes its fields."""
    if isinstance(value, list):
        return [_without_forms(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    mapping = cast("dict[Any, Any]", value)
    if isinstance(mapping.get("$type"), str) and "value" in mapping and mapping.keys() <= {"$type", "name", "value"}:
        return _without_forms(mapping["value"])
    return {key: _without_forms(item) for key, item in mapping.items()}
