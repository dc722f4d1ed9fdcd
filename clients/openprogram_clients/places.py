"""Where a home's daemon is found: its socket, lock, log and status file. Daemon and clients use these functions, so that they always agree.

Whatever another user could have put there is refused, never used: a folder or file must be ours, and a folder for sockets closed to others.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
import time
import zlib
from collections.abc import Generator
from pathlib import Path

import msgspec
from openprogram_protocol.paths import home
from openprogram_protocol.runs import Wire

from openprogram_clients.errors import DaemonError, UnsafePathError

try:
    import fcntl
except ImportError:  # Windows: starting is not guarded there
    fcntl = None

LONGEST_SOCKET_PATH = 100
"""sockaddr_un holds 104 bytes on macOS, 108 on Linux."""

_YOUR_OWN = "set OPENPROGRAM_HOME to a folder that you may write to"


class DaemonStatus(Wire, frozen=True, kw_only=True):
    """The status file of a daemon. ``start_time`` is `process_start` of ``pid``, so that a reused pid is recognised; ``stopping``: it takes no new runs."""

    pid: int
    start_time: str
    protocol: int
    version: str
    fingerprint: str
    socket: str
    epoch: str
    stopping: bool = False


def status_file() -> Path:
    """Written by the daemon when it accepts, removed when it stops."""
    return home() / "daemon.json"


def log_file() -> Path:
    """What the daemon logs, and what it prints before it can."""
    return home() / "daemon.log"


def start_lock() -> Path:
    """Held by whoever checks for a daemon in order to start or replace it."""
    return home() / "start.lock"


def daemon_lock() -> Path:
    """Held by the daemon for as long as it lives."""
    return home() / "daemon.lock"


def make_home() -> Path:
    """The state directory, made if need be; only we may enter a new one. Raises DaemonError."""
    folder = home()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DaemonError(f"the state directory {folder} cannot be made: {error.strerror}; {_YOUR_OWN}") from error
    return folder


def digest(data: bytes) -> str:
    """16 hexadecimal digits that tell apart what is not made to be confused: hashlib would cost each command 4 ms."""
    return f"{zlib.crc32(data):08x}{zlib.crc32(data[::-1]):08x}"


def socket_path() -> Path:
    """Where a daemon of this home listens: a short name, however long the home's. The folder is made. Raises UnsafePathError."""
    name = digest(os.fsencode(os.path.realpath(home())))
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/") and len(os.fsencode(given)) + 32 < LONGEST_SOCKET_PATH and _is_private(Path(given)):
        return Path(given) / f"openprogram-{name}.sock"
    # Not tempfile.gettempdir(): clients with another TMPDIR must find the same socket.
    folder = Path(f"/tmp/openprogram-{os.getuid()}")  # noqa: S108 - checked to be ours alone
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_private(folder):
        raise UnsafePathError(f"{folder} is not a folder that only you can enter (mode 0700); remove it, or set XDG_RUNTIME_DIR to one that is")
    return folder / f"{name}.sock"


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def read_status() -> DaemonStatus | None:
    """What the status file says, alive or not; None without one or for one that cannot be read. Raises UnsafePathError for another user's."""
    path = status_file()
    try:
        with path.open("rb") as file:
            owner, content = os.fstat(file.fileno()).st_uid, file.read(65536)
    except OSError:
        return None
    if owner != os.getuid():
        raise UnsafePathError(f"{path} belongs to another user (uid {owner}); it is not used: remove it, or set OPENPROGRAM_HOME to a folder of your own")
    try:
        return msgspec.json.decode(content, type=DaemonStatus)
    except msgspec.MsgspecError:
        return None


def write_status(status: DaemonStatus) -> None:
    """Replace the status file in one step; only its user may read it."""
    path = status_file()
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(msgspec.json.encode(status))
    draft.replace(path)


def remove_status(epoch: str) -> None:
    """Remove the status file if it is still that of this life of the daemon."""
    found = read_status()
    if found is not None and found.epoch == epoch:
        status_file().unlink(missing_ok=True)


def is_alive(status: DaemonStatus) -> bool:
    """Whether the very process that wrote the status file still runs."""
    return process_start(status.pid) == status.start_time


def process_start(pid: int) -> str:
    """When a process started, in the system's own words; empty for one that is gone or only waits to be reaped."""
    if sys.platform.startswith("linux"):
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        # The second field is the program's name in parentheses and may hold anything.
        fields = text.rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return start_by_ps(pid)


def start_by_ps(pid: int) -> str:
    """`process_start` where there is no /proc."""
    import subprocess

    # Two terminals may differ in language and time zone; what is compared must not.
    surroundings = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=surroundings).stdout  # noqa: S603 - fixed
    state, _, start = said.strip().partition(" ")
    return "" if state.startswith("Z") else start.strip()


def peer_uid(connected: socket.socket) -> int:
    """The user at the other end of a Unix socket. Raises OSError where the system does not say."""
    if sys.platform.startswith("linux"):
        size = struct.calcsize("3i")
        return int(struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1])
    local, credentials = 0, 1  # SOL_LOCAL, LOCAL_PEERCRED: struct xucred begins with version and uid
    return int(struct.unpack_from("2I", connected.getsockopt(local, credentials, 76))[1])


@contextlib.contextmanager
def locked(path: Path, *, timeout_s: float) -> Generator[None]:
    """Hold an exclusive lock on a file of the home; it ends with the process too. Raises DaemonError when it cannot be had within ``timeout_s``."""
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DaemonError(f"{path} cannot be opened: {error.strerror}; {_YOUR_OWN}") from error
    try:
        deadline = time.monotonic() + timeout_s
        while fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise DaemonError(f"{path} is still held by another process after {timeout_s:g} s") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(file)
