"""What a call of user code came to, wherever it ran: told on stdout and stderr, and as an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from openprogram_cli import output, streams
from openprogram_cli.exits import usage


class Failure(NamedTuple):
    """Why there is no result: exit code, lines for stderr, and the error as data for ``--json``. ``ended``: by the deadline, Ctrl-C or for want of a reader."""

    code: int
    message: str
    error: dict[str, str]
    ended: bool = False


class Outcome(NamedTuple):
    """What a call came to. ``session`` and ``node`` are None when nothing was recorded, ``run`` is None when the daemon had no part in it."""

    result: Any
    session: str | None
    node: str | None
    failure: Failure | None = None
    run: str | None = None
    warning: str | None = None


def report(outcome: Outcome, *, as_json: bool, show: Callable[[Any], None] = output.write_result) -> int:
    """Print an outcome and return the exit code."""
    if outcome.failure is not None and outcome.failure.message:
        _tell(outcome.failure)
    if as_json:
        output.write_json(document(outcome))
    elif outcome.failure is None:
        show(outcome.result)
    if outcome.failure is not None and outcome.failure.ended:
        _leave_threads_behind(outcome.failure.code)
    return 0 if outcome.failure is None else outcome.failure.code


def document(outcome: Outcome) -> dict[str, Any]:
    """An outcome as ``--json`` prints it."""
    found: dict[str, Any] = {"result": outcome.result, "session": outcome.session, "node": outcome.node}
    if outcome.run is not None:
        found["runId"] = outcome.run
    if outcome.warning is not None:
        found["warning"] = outcome.warning
    if outcome.failure is not None:
        found["error"] = outcome.failure.error
    return found


def _leave_threads_behind(code: int) -> None:
    """End the process when threads of an ended run still work: Python would wait for them for as long as they like."""
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _tell(failure: Failure) -> None:
    if failure.message.startswith(("Traceback", "  + ")) or "\n" in failure.message:
        print(failure.message, file=sys.stderr, flush=True)  # noqa: T201 - the user's traceback, as Python prints it
    else:
        output.complain(failure.message)


@contextlib.contextmanager
def stdout_for(as_json: bool) -> Generator[None]:
    """Keep stdout for the one JSON document."""
    with streams.stdout_to_stderr() if as_json else contextlib.nullcontext():
        yield


def seconds_of(text: str | None) -> float | None:
    """``--timeout`` as seconds; None when it was not given."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise usage(f"--timeout {text} is no number of seconds above 0")
    return seconds


def ended_after(seconds: float) -> str:
    """What the user is told of a run that its deadline ended."""
    return f"the run was ended after {seconds:g} s (--timeout)"
