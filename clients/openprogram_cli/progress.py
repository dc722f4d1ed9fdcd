"""A sign of life on stderr for what takes longer than a second: a counting line on a terminal, one single line elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Generator
from types import TracebackType
from typing import Any

DELAY_S = 1.0


class Progress:
    """Use as a context manager. ``note`` changes what is being done; `quiet` ends the line before other text appears."""

    def __init__(self, what: str) -> None:
        self._what = what
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

    def note(self, what: str) -> None:
        """Say what is being done now."""
        with self._lock:
            self._what = what

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
                line = f"{self._what}… {time.monotonic() - self._started:.0f} s"
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


@contextlib.contextmanager
def progress(what: str) -> Generator[Progress]:
    """Show progress around a piece of work whose own output may share the terminal."""
    with Progress(what) as shown:
        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            yield shown
            return
        stdout: Any = sys.stdout
        sys.stdout = _Clearing(stdout, shown)  # pyright: ignore[reportAttributeAccessIssue] - a stream in all but name
        try:
            yield shown
        finally:
            sys.stdout = stdout
