"""What a session may be called: ids end up in file names, URLs and terminals, so what is dangerous in any of them is refused before anything is written."""

from __future__ import annotations

from openprogram.errors import UsageError

MAX_LENGTH = 200


def check_session_id(session_id: str) -> str:
    """The id itself; raises UsageError (a ValueError) for one that is empty, too long, not printable or a path."""
    if not isinstance(session_id, str):
        raise UsageError(f"a session id is a string, not {type(session_id).__name__}")
    if not session_id:
        raise UsageError("a session id may not be empty; leave it out to get a new one")
    if len(session_id) > MAX_LENGTH:
        raise UsageError(f"a session id may have up to {MAX_LENGTH} characters, this one has {len(session_id)}: {session_id[:40]!r}…")
    if not session_id.isprintable():
        raise UsageError(f"a session id may hold printable characters only, this one does not: {session_id!r}")
    if session_id in {".", ".."} or "/" in session_id or "\\" in session_id:
        raise UsageError(f"a session id may not be a path: {session_id!r}; use letters, digits, '-' and '_'")
    return session_id
