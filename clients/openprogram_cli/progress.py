"""A sign of life on stderr for what takes longer than a second: a counting line on a terminal, a few lines ever further apart elsewhere.

The line never touches one that holds other output: it waits until that has ended. What the library logs about loading a model is shown in it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Any

LOADING = "openprogram.providers.host_process"  # the logger that says when a model begins to load and when it is there


def moments(terminal: bool) -> Iterator[float]:
    """When to say something, in seconds from the start: each second on a terminal, after 1, 10, 60, 120, 180 … elsewhere."""
    return itertools.count(1.0) if terminal else itertools.chain((1.0, 10.0), itertools.count(60.0, 60.0))


class Progress:
    """Use within `progress`. ``note`` changes what is being done; `quiet` ends the line before other text appears."""

    def __init__(self, what: str) -> None:
        self.doing = what
        self._usual = what
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._shown = False
        self._within_a_line = False
        self._stream = sys.stderr
        self._terminal = self._stream.isatty()
        self._thread = threading.Thread(target=self._run, name="openprogram-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._started = time.monotonic()
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

    def write(self, stream: Any, text: str) -> int:
        """Write other output where the line may stand."""
        with self._lock:
            self.clear()
            if text:
                self._within_a_line = not text.endswith("\n")
            return int(stream.write(text))

    def _run(self) -> None:
        for moment in moments(self._terminal):
            if self._ended.wait(self._started + moment - time.monotonic()):
                return
            with self._lock:
                if self._ended.is_set():
                    return
                if not self._within_a_line:
                    self._show(f"{self.doing}… {time.monotonic() - self._started:.0f} s")

    def _show(self, line: str) -> None:
        self._write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
        self._shown = True

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


class _Beside:
    """stdout or stderr that ends where the progress line is shown."""

    def __init__(self, stream: Any, progress: Progress) -> None:
        self._stream = stream
        self._progress = progress

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._progress.write(self._stream, text)

    def writelines(self, lines: Any) -> None:
        self._progress.write(self._stream, "".join(lines))


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


def _in_one_place() -> bool:
    """Whether stdout and stderr end in the same terminal, pipe or file."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()) or (sys.stdout.isatty() and sys.stderr.isatty())
    except (OSError, ValueError):  # not files: a test or a notebook replaced them
        return False


@contextlib.contextmanager
def progress(what: str | Progress) -> Generator[Progress]:
    """Show progress around a piece of work whose own output may end in the same place."""
    line = Progress(what) if isinstance(what, str) else what
    with line, _loading_shown(line):
        before: tuple[Any, Any] = sys.stdout, sys.stderr
        if _in_one_place():
            sys.stdout = _Beside(before[0], line)  # pyright: ignore[reportAttributeAccessIssue] - a stream in all but name
        sys.stderr = _Beside(before[1], line)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield line
        finally:
            sys.stdout, sys.stderr = before
