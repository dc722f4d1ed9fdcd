"""Finding the daemon of this home, or starting it: any number of clients at once get one daemon.

The status file is a hint and never trusted alone: a daemon is there when its socket accepts, its user is ours and it answers. Checking in order to start is
done under a lock, so that whoever waits for it finds the daemon that the other one started. A daemon of other files than ours is replaced while it is idle.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from openprogram_protocol import rpc
from openprogram_protocol.admin import Nothing, StatusResult, StopParams
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.runs import ConnectParams, ConnectResult, Role

from openprogram_clients.connection import Connection
from openprogram_clients.errors import ConnectionLost, DaemonError, NotRunningError, RemoteError, StartError, UnsafePathError, VersionError
from openprogram_clients.fingerprint import fingerprint
from openprogram_clients.places import (
    is_alive,
    locked,
    log_file,
    make_home,
    peer_uid,
    process_start,
    read_status,
    socket_path,
    start_lock,
)

if TYPE_CHECKING:
    from subprocess import Popen

KEPT = ("PATH", "HOME", "LANG")
KEPT_PREFIXES = ("LC_", "XDG_", "OPENPROGRAM_")
START_S = 30.0
STOP_S = 15.0
DRAIN_S = 60.0
LARGEST_LOG = 8 * 1024 * 1024


class Daemon(NamedTuple):
    """An open connection, what the daemon said of itself, and what its user should be told."""

    connection: Connection
    about: ConnectResult
    warning: str | None = None


class _OtherProtocolError(Exception):
    """The daemon's refusal of our protocol: its ``data`` say which one it speaks, its pid and whether it is idle."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self.theirs = f"{data.get('version', 'unknown')} (protocol {data.get('protocol', 'unknown')})"
        self.pid = int(data.get("pid", 0))
        self.is_idle = self.pid > 0 and not data.get("runs") and not data.get("clients")

    def for_user(self, why: str) -> VersionError:
        ours = f"this client speaks protocol {rpc.PROTOCOL}"
        return VersionError(f"the running daemon is of version {self.theirs}, {ours}, and {why}: `openprogram daemon restart` replaces the daemon")


def open_daemon(*, start: bool = True, role: Role = "client", client: str = "", on_wait: Callable[[str], None] | None = None) -> Daemon:
    """A connection to the daemon of this home, past `openprogram/connect`. ``on_wait`` is told what takes long.

    Raises NotRunningError with ``start`` false, StartError, VersionError, UnsafePathError.
    """
    params = ConnectParams(protocol=rpc.PROTOCOL, role=role, client=client, pid=os.getpid())
    tell = on_wait or _tell_nobody
    try:
        found = _attempt(params)
    except _OtherProtocolError as other:
        if not start:
            raise other.for_user("none was to be started") from None
        found = None
    if not start:
        if found is None:
            raise NotRunningError("no daemon is running; `openprogram daemon start` starts one")
        same = found.about.fingerprint == fingerprint()
        return found if same else found._replace(warning=_outdated(found.about, "restart it with `openprogram daemon restart`"))
    if found is not None and _is_stopping(found.about.pid):
        found.connection.close()
        tell("waiting for the daemon to end, which was told to stop")
        _wait_for_end(found.about.pid, DRAIN_S)
    elif found is not None:
        if found.about.fingerprint == fingerprint():
            return found
        found.connection.close()
    make_home()
    with locked(start_lock(), timeout_s=START_S + STOP_S):
        return _under_lock(params, tell)


def _tell_nobody(_: str) -> None:
    pass


def _is_stopping(pid: int) -> bool:
    status = read_status()
    return status is not None and status.pid == pid and status.stopping


def _under_lock(params: ConnectParams, tell: Callable[[str], None]) -> Daemon:
    try:
        found = _attempt(params)
    except _OtherProtocolError as other:
        if not other.is_idle:
            raise other.for_user("the daemon is busy; wait until its runs and clients have ended, or replace it now") from None
        tell(f"replacing a daemon of version {other.theirs}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(other.pid, signal.SIGTERM)
        _wait_for_end(other.pid, STOP_S)
        found = None
    if found is not None and found.about.fingerprint != fingerprint():
        if busy := _busy(found.connection):
            return found._replace(warning=_outdated(found.about, f"it is not replaced now because {busy}: `openprogram daemon restart` does so"))
        tell("replacing a daemon that was started from an earlier installation")
        stop(found.connection, found.about.pid, drain=True)  # somebody's run may have begun since
        found = None
    if found is None:
        _spawn_and_wait(tell)
        found = _attempt(params)
    if found is None:
        raise StartError(f"the daemon ended right after it had started\n{_log_tail()}")
    return found


def _outdated(about: ConnectResult, advice: str) -> str:
    return f"the daemon (pid {about.pid}, version {about.version}) was started from other files than are installed now; {advice}"


def _attempt(params: ConnectParams) -> Daemon | None:
    """Connect and introduce ourselves; None when nobody is there. Raises _OtherProtocolError."""
    sock = connect_socket()
    if sock is None:
        return None
    connection = Connection(sock)
    try:
        return Daemon(connection, connection.call("openprogram/connect", params, START_S))
    except ConnectionLost:
        return None  # it was just ending
    except TimeoutError:
        connection.close()
        status = read_status()
        pid = "" if status is None else f" (pid {status.pid})"
        raise DaemonError(f"the daemon{pid} accepts connections and does not answer; `openprogram daemon restart` replaces it") from None
    except RemoteError as error:
        connection.close()
        if error.code != ErrorCode.VERSION:
            raise
        raise _OtherProtocolError(error.data) from None


def connect_socket() -> socket.socket | None:
    """A socket connected to the daemon of this home; None when nobody listens. Raises UnsafePathError when another user does."""
    for path in _candidates():
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(path)
            uid = peer_uid(sock)
        except OSError as error:
            sock.close()
            if error.errno == errno.EACCES:
                raise UnsafePathError(f"{path} exists and you may not use it: it belongs to another user; remove it, or set XDG_RUNTIME_DIR") from None
            continue
        if uid != os.getuid():
            sock.close()
            raise UnsafePathError(f"another user (uid {uid}) listens at {path}; it is not used: remove it, or set XDG_RUNTIME_DIR to a folder of your own")
        return sock
    return None


def _candidates() -> list[str]:
    """The socket that the status file names, since a daemon may have been started with another XDG_RUNTIME_DIR, then the one we would use."""
    status = read_status()
    named = [status.socket] if status is not None and is_alive(status) else []
    return list(dict.fromkeys([*named, str(socket_path())]))


def _busy(connection: Connection) -> str:
    """Why a daemon may not be replaced: empty when it may."""
    status: StatusResult = connection.call("openprogram/status", Nothing(), START_S)
    others = [one for one in status.clients if one.get("pid") != os.getpid()]
    parts = [f"{count} {what}{'s are' if count != 1 else ' is'} active" for count, what in ((status.runs, "run"), (len(others), "other client")) if count]
    return " and ".join(parts)


def stop(connection: Connection, pid: int, *, drain: bool = False, timeout_s: float = STOP_S) -> None:
    """Ask the daemon at the other end to stop and wait until its process is gone. Raises DaemonError if it is not."""
    with contextlib.suppress(ConnectionLost):
        connection.call("openprogram/stop", StopParams(drain=drain, timeout_s=timeout_s), timeout_s + STOP_S)
    connection.close()
    _wait_for_end(pid, STOP_S + (timeout_s if drain else 0))


def _wait_for_end(pid: int, timeout_s: float) -> None:
    born, deadline = process_start(pid), time.monotonic() + timeout_s
    while born and process_start(pid) == born:
        if time.monotonic() > deadline:
            raise DaemonError(f"the daemon (pid {pid}) was asked to stop and still runs after {timeout_s:g} s; `kill {pid}` ends it")
        time.sleep(0.01)


def daemon_environment() -> dict[str, str]:
    """What a daemon inherits: enough to find its files, and nothing that belongs to one of its clients, such as keys."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    return {**kept, "OPENPROGRAM_HOME": str(make_home())}


def _spawn_and_wait(on_wait: Callable[[str], None]) -> None:
    place = socket_path()
    before = _log_size()
    process = _spawn()
    begun = time.monotonic()
    told = False
    while not _accepts():
        code = process.poll()
        if code is not None:
            if _accepts():  # one that was started by hand at the same moment kept ours from starting
                return
            raise StartError(f"the daemon could not start: it ended with code {code} before it listened at {place}\n{_log_tail(before)}")
        waited = time.monotonic() - begun
        if waited > START_S:
            process.terminate()
            raise StartError(f"the daemon did not listen at {place} within {START_S:g} s and was ended\n{_log_tail(before)}")
        if waited > 1 and not told:
            told = True
            on_wait("waiting for the daemon to start")
        time.sleep(0.005)


def _accepts() -> bool:
    status = read_status()
    sock = None if status is None or not is_alive(status) else connect_socket()
    if sock is not None:
        sock.close()
    return sock is not None


def _spawn() -> Popen[bytes]:
    import subprocess

    if not sys.executable:
        raise StartError("this Python does not know its own program (sys.executable), so it cannot start a daemon; run `openprogram daemon start` first")
    with _open_log() as log:
        # -P: the folder that a client happens to stand in must not be where modules come from.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "openprogram_daemon"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=make_home(),
            env=daemon_environment(),
            start_new_session=True,
        )
    # It outlives us as a rule; if it ends first, nothing of it may stay behind.
    threading.Thread(target=process.wait, name="openprogram-daemon-reaper", daemon=True).start()
    return process


def _open_log() -> contextlib.AbstractContextManager[int]:
    path = log_file()
    with contextlib.suppress(OSError):
        if path.stat().st_size > LARGEST_LOG:
            path.replace(path.with_suffix(".log.1"))
    return _closing(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600))


@contextlib.contextmanager
def _closing(descriptor: int):
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _log_size() -> int:
    try:
        size = log_file().stat().st_size
    except OSError:
        return 0
    return 0 if size > LARGEST_LOG else size  # such a log is put aside first


def _log_tail(start: int = 0, *, lines: int = 20) -> str:
    """The last lines of the log, from the position ``start``."""
    path: Path = log_file()
    try:
        with path.open("rb") as file:
            file.seek(max(start, path.stat().st_size - 8192))
            tail = file.read().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError as error:
        return f"(its log {path} cannot be read: {error.strerror})"
    return f"the end of its log {path}:\n" + "\n".join(f"  {line}" for line in tail or ["(nothing)"])
