"""Exit codes, and the exception that ends a command with one of them and a line for stderr."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
UNAVAILABLE = 3
INTERRUPTED = 130


class Stop(Exception):
    """End the command: ``message`` (one or two lines, may be empty) goes to stderr, ``code`` is the exit code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def usage(message: str) -> Stop:
    """The user's mistake: exit code 2."""
    return Stop(USAGE, message)
