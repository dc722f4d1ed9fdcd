"""What can go wrong between a client and the daemon, in one tree.

    ClientError
    ├── DaemonError                       no daemon to talk to
    │   ├── NotRunningError               there is none, and none was to be started
    │   ├── StartError                    it did not come up; the message ends with the tail of its log
    │   ├── VersionError                  it speaks another protocol and is busy
    │   └── UnsafePathError               a socket, folder or status file that another user could control
    ├── ConnectionLost (ConnectionError)  the daemon or the connection went away
    ├── RemoteError                       the daemon refused a request: code, message, data
    └── RunFailed                         a run did not complete: its ``info`` says how

They are apart from the library's errors, since clients do not import the library. Each pickles with all its fields.
"""

from __future__ import annotations

from typing import Any

from openprogram_protocol.runs import RunInfo


def _rebuild(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    return cls.__new__(cls, *args)


class ClientError(Exception):
    """The root of what clients raise on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args), self.__dict__


class DaemonError(ClientError):
    """There is no daemon to talk to."""


class NotRunningError(DaemonError):
    """No daemon runs for this home, and none was to be started."""


class StartError(DaemonError):
    """The daemon did not come up."""


class VersionError(DaemonError):
    """The daemon speaks another version of the protocol and cannot be replaced now."""


class UnsafePathError(DaemonError):
    """A path that another user owns or can write to: it is not used."""


class ConnectionLost(ClientError, ConnectionError):
    """The connection ended while a request waited, or before it could be sent. Whether the request was carried out is not known."""


class RemoteError(ClientError):
    """An error reply. ``code`` is one of `openprogram_protocol.errors.ErrorCode`, ``data["type"]`` the class of the exception behind it."""

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data: dict[str, Any] = data or {}


class RunFailed(ClientError):
    """A run that ended without a result: ``info.state`` is ``error``, ``cancelled`` or ``interrupted``, ``info.error`` has type, message and trace."""

    def __init__(self, info: RunInfo) -> None:
        error = info.error or {}
        detail = ": ".join(str(error[key]) for key in ("type", "message") if error.get(key))
        ended = {"cancelled": "was cancelled", "interrupted": "was interrupted"}.get(info.state, "failed")
        super().__init__(f"{info.function} {ended}" + (f": {detail}" if detail else ""))
        self.info = info
