"""The thin client of the daemon that scripts, terminals and editors share.

    with openprogram_clients.connect() as client:
        client.run("triage.py:route", message="the invoice is wrong")

`connect` finds the daemon or starts it; `aconnect` is the same for programs with an event loop. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openprogram_clients.aclient import AsyncClient, AsyncRun, aconnect
    from openprogram_clients.client import Client, Run, connect
    from openprogram_clients.errors import (
        ClientError,
        ConnectionLost,
        DaemonError,
        NotRunningError,
        RemoteError,
        RunFailed,
        StartError,
        UnsafePathError,
        VersionError,
    )

_HOMES = {
    "AsyncClient": "aclient",
    "AsyncRun": "aclient",
    "Client": "client",
    "ClientError": "errors",
    "ConnectionLost": "errors",
    "DaemonError": "errors",
    "NotRunningError": "errors",
    "RemoteError": "errors",
    "Run": "client",
    "RunFailed": "errors",
    "StartError": "errors",
    "UnsafePathError": "errors",
    "VersionError": "errors",
    "aconnect": "aclient",
    "connect": "client",
}

__all__ = [
    "AsyncClient",
    "AsyncRun",
    "Client",
    "ClientError",
    "ConnectionLost",
    "DaemonError",
    "NotRunningError",
    "RemoteError",
    "Run",
    "RunFailed",
    "StartError",
    "UnsafePathError",
    "VersionError",
    "aconnect",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'openprogram_clients' has no attribute {name!r}")
    value: Any = getattr(importlib.import_module(f"openprogram_clients.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
