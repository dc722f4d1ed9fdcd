"""A sign of life on stderr for what takes longer than a second: a counting line on a terminal, one single line elsewhere.

What the library logs about loading a model is shown in that line.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Generator
from types import TracebackType
from typing import Any

DELAY_S = 1.0
LOADING = "openprogram.providers.host_process"  # the logger that says when a model begins to load and when it is there


class Progress:
    """Use as a context manager. ``note`` changes what is being done; `quiet` ends the line before other text appears."""

    def __init__(self, what: str) -> None:
        self.doing = what
        self._usual = what
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._shown = False
        self._terminal = sys.stderr.isatty()
        self._thread = threading.Thread(target=self._run, name="openprogram-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.quiet()

    def note(self, what: str | None) -> None:
        """Say what is being done now; None goes back to what was said at first."""
        with self._lock:
            self.doing = self._usual if what is None else what

    def quiet(self) -> None:
        """Show nothing from now on."""
        self._ended.set()
        self.clear()

    def clear(self) -> None:
        """Take the line away; it comes back within a second unless `quiet` was called."""
        with self._lock:
            if self._shown and self._terminal:
                self._write("\r\x1b[K")
            self._shown = False

    def _run(self) -> None:
        wait = DELAY_S
        while not self._ended.wait(wait):
            with self._lock:
                if self._ended.is_set():
                    return
                line = f"{self.doing}… {time.monotonic() - self._started:.0f} s"
                self._write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
                self._shown = True
            if not self._terminal:
                return
            wait = 1.0

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


class _Clearing:
    """stdout on the same terminal as the progress line: each write takes the line away first."""

    def __init__(self, stream: Any, progress: Progress) -> None:
        self._stream = stream
        self._progress = progress

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._progress.clear()
        return int(self._stream.write(text))

    def writelines(self, lines: Any) -> None:
        self._progress.clear()
        self._stream.writelines(lines)


class _Loading(logging.Handler):
    """Takes what is logged about loading into the line, and passes on only what would have been logged without it."""

    def __init__(self, progress: Progress, parent: logging.Logger) -> None:
        super().__init__()
        self._progress = progress
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._progress.note(text.rstrip(" …") if text.startswith("loading ") else None)
        if self._parent.isEnabledFor(record.levelno):
            self._parent.handle(record)


@contextlib.contextmanager
def _loading_shown(progress: Progress) -> Generator[None]:
    logger = logging.getLogger(LOADING)
    level, propagate = logger.level, logger.propagate
    handler = _Loading(progress, logger.parent or logging.root)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@contextlib.contextmanager
def progress(what: str) -> Generator[Progress]:
    """Show progress around a piece of work whose own output may share the terminal."""
    with Progress(what) as shown, _loading_shown(shown):
        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            yield shown
            return
        stdout: Any = sys.stdout
        sys.stdout = _Clearing(stdout, shown)  # pyright: ignore[reportAttributeAccessIssue] - a stream in all but name
        try:
            yield shown
        finally:
            sys.stdout = stdout
