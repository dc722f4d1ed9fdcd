"""Which OpenProgram this is, and what is said to a client of another protocol."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.rpc import PROTOCOL

from openprogram_daemon.errors import RefusedError

if TYPE_CHECKING:
    from openprogram_daemon.core import Core


@functools.cache
def version() -> str:
    """The installed version of the distribution; empty where none is installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("openprogram")
    except PackageNotFoundError:
        return ""


def other_protocol(theirs: Any, core: Core) -> RefusedError:
    """The refusal, which says by ``runs`` and ``clients`` whether this daemon may be replaced."""
    counts = {"runs": len(core.runs.active()), "clients": sum(session.is_open for session in core.sessions)}
    data = {"protocol": PROTOCOL, "version": version(), "pid": os.getpid(), **counts}
    message = f"this daemon is of version {version()} and speaks protocol {PROTOCOL}, not {theirs!r}; `openprogram daemon restart` replaces it"
    return RefusedError(ErrorCode.VERSION, message, data)
