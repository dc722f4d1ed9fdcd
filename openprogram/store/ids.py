"""What a session may be called: ids end up in file names, URLs and terminals, so what is dangerous in any of them is refused before anything is written."""

from __future__ import annotations

from openprogram.errors import UsageError

MAX_LENGTH = 200


def check_session_id(session_id: str) -> str:
    """The id itself; raises UsageError (a ValueError) for one that is empty, too long, not printable or a path."""
    return _checked("session id", session_id)


def check_branch_name(name: str) -> str:
    """The name itself; raises UsageError as `check_session_id` does."""
    return _checked("branch name", name)


def _checked(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise UsageError(f"a {what} is a string, not {type(text).__name__}")
    if not text.strip():
        raise UsageError(f"a {what} may not be empty; leave it out to get a new one")
    if len(text) > MAX_LENGTH:
        raise UsageError(f"a {what} may have up to {MAX_LENGTH} characters, this one has {len(text)}: {text[:40]!r}…")
    if not text.isprintable():
        raise UsageError(f"a {what} may hold printable characters only, this one does not: {text!r}")
    if text in {".", ".."} or "/" in text or "\\" in text:
        raise UsageError(f"a {what} may not be a path: {text!r}; use no slashes, and '-' or '_' instead")
    return text
