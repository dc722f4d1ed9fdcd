"""Ending what the main thread of a worker does, from another thread.

A signal raises `CancelledError` in the main thread, wherever user code stands, so that a sleep or a loop of Python ends at once. While the library writes a
message or opens or closes a node it is put off to the next line of user code, which tracing finds: half a message would break the connection, and a node whose
end is lost would stay open.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from openprogram_clients import connection

from openprogram.agentic_programming import bodies, function
from openprogram.context import scope

SIGNAL = signal.SIGUSR1

_WRITING = frozenset({scope.__file__, connection.__file__})
_RUNNING = frozenset({bodies.__file__, function.__file__})
_OPENING_OR_CLOSING = frozenset({"activate", "completed", "failed", "release", "__enter__", "__exit__"})
_AGAIN_S = 0.002
_INSIST_S = 5.0


class Interrupts:
    """Which run is current, and who wants it to end. ``own`` are files whose code must not be interrupted while it is the innermost."""

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own | _RUNNING
        self._main = threading.main_thread().ident or 0
        self._wanted: str | None = None
        self._task: tuple[str, asyncio.AbstractEventLoop, asyncio.Task[object]] | None = None
        self._asked: set[str] = set()
        self._armed = False
        self.current: str | None = None

    def listen(self) -> None:
        """Take the signal; a run before may have taken it for itself."""
        signal.signal(SIGNAL, self._interrupt)

    def begin(self, run_id: str) -> None:
        """From now on a cancel reaches this run."""
        self.listen()
        self._asked.clear()
        self.current = run_id

    def end(self) -> None:
        """From now on none does."""
        self.current = None
        self._task = None
        if self._armed:
            self._armed = False
            sys.settrace(None)

    def entered_loop(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
        """The current run is an async function: its task is cancelled first."""
        if self.current is not None:
            self._task = (self.current, loop, task)

    def cancel(self, run_id: str) -> None:
        """End a run if it is current. A second call interrupts an async function where it stands, which helps when it blocks its own loop."""
        if run_id != self.current:
            return
        entered = self._task
        if entered is not None and entered[0] == run_id and run_id not in self._asked:
            self._asked.add(run_id)
            try:
                entered[1].call_soon_threadsafe(entered[2].cancel)
            except RuntimeError:  # its loop has ended meanwhile
                return
            return
        self._wanted = run_id
        threading.Thread(target=self._insist, args=(run_id,), name="openprogram-cancel", daemon=True).start()

    def _insist(self, run_id: str) -> None:
        deadline = time.monotonic() + _INSIST_S
        while self._wanted == run_id == self.current and time.monotonic() < deadline:
            signal.pthread_kill(self._main, SIGNAL)
            time.sleep(_AGAIN_S)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        if self._wanted is None or self._wanted != self.current:
            return
        if not self._must_wait(frame):
            self._raise()
        self._armed = True
        while frame is not None:
            frame.f_trace = self._trace
            frame = frame.f_back
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if event in ("call", "line") and self._wanted is not None and self._wanted == self.current and not self._must_wait(frame):
            self._raise()
        return self._trace

    def _raise(self) -> None:
        self._wanted = None
        raise function.CancelledError("the run was cancelled")

    def _must_wait(self, frame: FrameType | None) -> bool:
        if frame is None or frame.f_code.co_filename in self._own:
            return True
        while frame is not None:
            file = frame.f_code.co_filename
            if file in _WRITING or (file in _RUNNING and frame.f_code.co_name in _OPENING_OR_CLOSING):
                return True
            frame = frame.f_back
        return False
