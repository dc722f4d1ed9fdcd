"""One call of user code in this process: recorded in a session, ended by a deadline or Ctrl-C, its failure told as the user's own.

The call runs in the main thread. The deadline interrupts it there as Ctrl-C would, so that its nodes close as cancelled; code that does not react is ended
with the process after a grace period, and its nodes then read interrupted.
"""

from __future__ import annotations

import _thread
import contextlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from openprogram.errors import ConfigurationError, LLMError, Reason, StoreError
from openprogram.tracebacks import users_traceback
from openprogram_cli import output, streams
from openprogram_cli.exits import FAILED, INTERRUPTED, OK, UNAVAILABLE, Stop
from openprogram_cli.outcome import Failure, Outcome, ended_after
from openprogram_cli.progress import Progress, progress

if TYPE_CHECKING:
    from openprogram.agentic_programming.session import Session

GRACE_S = 2.0
MOST_CAUSES = 20


class TimedOut(KeyboardInterrupt):
    """What the deadline raises in user code, so that the node it closes says what ended it."""


class Deadline:
    """Interrupts the main thread after ``seconds`` (None: never)."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.expired = False
        self.unread = False
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._before: Any = None

    def __enter__(self) -> Deadline:
        if self.seconds is not None:
            self._before = signal.signal(signal.SIGINT, self._raise)
            threading.Thread(target=self._watch, args=(self.seconds,), name="openprogram-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:  # once this is left, no interrupt can come any more
            self._ended.set()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _raise(self, number: int, frame: object) -> None:
        raise TimedOut(self.message()) if self.expired else KeyboardInterrupt

    def _watch(self, seconds: float) -> None:
        self._ended.wait(seconds)
        with self._lock:
            if self._ended.is_set():
                return
            self.expired = True
            _interrupt_main_thread()
        if self._ended.wait(GRACE_S):
            return
        output.complain(f"{self.message()}; it did not stop when interrupted, so the process was ended")
        os._exit(FAILED)

    def interrupt(self) -> None:
        """End the run now, unless it has ended: nobody reads what it says."""
        with self._lock:
            if not self._ended.is_set():
                self.unread = True
                _interrupt_main_thread()

    def message(self) -> str:
        """What the user is told."""
        return ended_after(self.seconds or 0.0)


def _interrupt_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):  # wakes a blocking call, which interrupt_main does not
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def open_session(session_id: str | None, title: str) -> Session | None:
    """The session to record in. One that was asked for must open; without it a broken store costs a warning, not the run."""
    from openprogram.agentic_programming.session import session

    try:
        return session(session_id, title=title)
    except (StoreError, OSError) as error:
        if session_id is not None:
            raise Stop(FAILED, f"session {session_id!r} cannot be recorded: {error}") from error
        output.complain(f"this run is not recorded: {error}")
        return None


def execute(
    call: Callable[[], Any], *, session: Session | None, deadline: Deadline, what: str | Progress, role: str = "code", name: str | None = None
) -> Outcome:
    """Make the call and say what it came to. ``role`` and ``name`` are those of the node it opens."""
    before = _last_seq(session)
    result: Any = None
    failure: Failure | None = None
    try:
        with deadline, progress(what) as shown:
            try:
                with session or contextlib.nullcontext():
                    result = _complete(call)
            finally:
                shown.quiet()
    except BaseException as error:
        failure = _failure(error, deadline)
    is_lost = failure is not None and failure.code == UNAVAILABLE
    node = None if is_lost else _node_since(session, before, role, name)
    return Outcome(result, session.id if session else None, node, failure)


def _complete(call: Callable[[], Any]) -> Any:
    """The call's value: a coroutine awaited, a generator's items as a list."""
    value = call()
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        import asyncio

        return asyncio.run(_awaited(value))
    return list(value) if inspect.isgenerator(value) else value


async def _awaited(value: Any) -> Any:
    if inspect.isasyncgen(value):
        return [item async for item in value]
    return await value


def _failure(error: BaseException, deadline: Deadline) -> Failure:
    details = {"type": type(error).__name__, "message": _message(error)}
    if deadline.expired:
        return Failure(FAILED, deadline.message(), {"type": "TimeoutError", "message": deadline.message()}, ended=True)
    if deadline.unread and isinstance(error, KeyboardInterrupt):
        return Failure(OK, "", details, ended=True)
    if isinstance(error, KeyboardInterrupt):
        return Failure(INTERRUPTED, "interrupted", details, ended=True)
    if (lost := _lost(error)) is not None:
        return Failure(UNAVAILABLE, str(lost), {"type": "ConnectionLost", "message": str(lost)})
    if isinstance(error, ConfigurationError):
        return Failure(UNAVAILABLE, str(error), details)
    if isinstance(error, BrokenPipeError) and streams.is_broken():
        return Failure(FAILED, "", details)
    if isinstance(error, SystemExit):
        details["message"] = f"the function called sys.exit({error.code!r})"
        return Failure(FAILED, f"{details['message']}, so it did not return", details)
    if isinstance(error, LLMError) and (plainly := _plainly(error)):
        return Failure(FAILED, plainly, details)
    return Failure(FAILED, users_traceback(error).rstrip(), details)


def _plainly(error: LLMError) -> str:
    """A model request that failed, without the words for programs; empty when a function of the user made it, whose traceback says more."""
    if users_traceback(error).startswith("Traceback"):
        return ""
    said = str(error).rpartition("LLMError: ")[2]
    if error.reason == Reason.CONTEXT_LENGTH:
        return said
    return f"the model gave no answer{f' in {error.attempts} attempts' if error.attempts > 1 else ''}: {said}"


def _lost(error: BaseException) -> BaseException | None:
    """That the daemon went away, when that is behind an error."""
    if "openprogram_clients.errors" not in sys.modules:  # it had no part in this run
        return None
    from openprogram_clients.errors import ConnectionLost

    seen: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if seen is None or isinstance(seen, ConnectionLost):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the user's own __str__
        return "<the error cannot be printed>"


def _last_seq(session: Session | None) -> int:
    return session.store.session(session.id).nodes if session else 0


def _node_since(session: Session | None, before: int, role: str, name: str | None) -> str | None:
    """The node that the call opened: the first of its role without a caller. A failed read costs the id, not the result."""
    if session is None:
        return None
    try:
        after = before
        while page := session.store.page(session.id, after=after):
            for node in page:
                if node.role == role and node.caller is None and name in (None, node.name):
                    return node.id
            after = page[-1].seq
    except StoreError as error:
        output.complain(f"the run's node cannot be read: {error}")
    return None
