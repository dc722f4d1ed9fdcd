"""stdout and stderr as a command needs them: no text that the terminal's encoding cannot hold, no traceback for a closed pipe.

stdout belongs to the result. Under ``--json`` whatever user code (or a process it starts) writes to file descriptor 1 goes to stderr instead.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Generator
from pathlib import Path


def prepare() -> None:
    """Never raise UnicodeEncodeError: a character that cannot be shown becomes its escape. A stream that is closed becomes one that leads nowhere.

    Lines are written as they come, so that what a function prints keeps its order with what its child processes print.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - it stays open as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


def holds(text: str) -> bool:
    """Whether stdout's encoding has all these characters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def as_utf8(word: str) -> str:
    """A word of the command line as the UTF-8 text that was typed, also where the locale says ASCII; bytes that are no UTF-8 stay escaped."""
    try:
        return os.fsencode(word).decode()
    except UnicodeError:
        return word


def is_broken() -> bool:
    """Whether nobody reads stdout any more (``openprogram … | head -1``)."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    except (OSError, ValueError):
        return False
    return False


def discard_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain about it at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


@contextlib.contextmanager
def stdout_to_stderr() -> Generator[None]:
    """Let everything written to stdout in here, by Python or by a child process, arrive on stderr."""
    try:
        out, err = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # not files: a test or a notebook replaced them
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(out)
    os.dup2(err, out)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(kept, out)
        os.close(kept)
