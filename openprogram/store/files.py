"""The store's file on disk: where it is, who has it open, and what a failure of SQLite means.

The database file itself is only ever opened by SQLite: POSIX drops every lock a process holds on a file as soon as it closes any descriptor of it, so that a
harmless look at the header would take SQLite's locks away. Who has the store open is said by a shared lock on a file beside it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import stat
import time
from collections.abc import Generator
from pathlib import Path

from openprogram.errors import StoreCorruptError, StoreError

try:
    import fcntl
except ImportError:  # Windows has no such locks: SQLite's own still hold
    fcntl = None

LOCK_SUFFIX = "-lock"

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def resolve(where: str | Path) -> Path:
    """The real path of a store, so that one file has one name. Raises StoreError for a folder, a missing folder, or a path that leads nowhere."""
    try:
        path = Path(os.path.realpath(os.path.expanduser(where)))  # noqa: PTH111 - Path.resolve raises another error for a loop in each version
        if path.is_symlink():
            raise StoreError(f"the store {path} is a symbolic link that leads back to itself; remove it or name another file")
        if path.is_dir():
            raise StoreError(f"the store {path} is a folder; name a file in it")
        if not path.parent.is_dir():
            raise unreachable(path) or StoreError(f"the store {path} cannot be opened: there is no folder {path.parent}; create it first")
    except PermissionError as error:
        raise unreachable(Path(os.path.abspath(os.path.expanduser(where)))) or _unopened(where, error) from error  # noqa: PTH100, PTH111 - as above
    except (OSError, ValueError) as error:
        raise _unopened(where, error) from error
    return path


def _unopened(where: str | Path, error: Exception) -> StoreError:
    return StoreError(f"the store {str(where)!r} cannot be opened: {error}")


def exists(path: Path) -> bool:
    """Whether there is such a file. Raises StoreError where that cannot be known, since a folder on the way is none or may not be entered."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unreachable(path) or _unopened(path, error) from error
    return True


def unreachable(path: Path) -> StoreError | None:
    """What is wrong with the folders on the way to a file, None when they exist and may be entered or are merely missing."""
    for folder in reversed(path.parents):
        try:
            is_folder = stat.S_ISDIR(folder.stat().st_mode)
        except OSError:
            return None
        if not is_folder:
            return StoreError(f"the store {path} cannot be opened: {folder} is no folder; remove it or name another folder, with OPENPROGRAM_HOME for instance")
        if not os.access(folder, os.X_OK):
            return StoreError(
                f"the store {path} cannot be opened: you may not enter {folder}; give yourself the permission (chmod u+rwx {shlex.quote(str(folder))})"
                " or set OPENPROGRAM_HOME to another folder"
            )
    return None


def create(path: Path) -> None:
    """Make sure the file exists, readable by its user only; one with content is left as it is."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if path.stat().st_size == 0:
            path.chmod(0o600)
    except OSError as error:
        raise StoreError(f"the store {path} cannot be created: {error.strerror}") from error


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def translated(error: BaseException, path: Path) -> BaseException:
    """The error a caller is to see for one that came out of SQLite."""
    if isinstance(error, StoreError) or not isinstance(error, sqlite3.Error | OSError | ValueError | OverflowError):
        return error
    code = code_of(error) if isinstance(error, sqlite3.Error) else 0
    if code in _CORRUPT:
        return StoreCorruptError(f"the store {path} is damaged or no SQLite database ({error}); nothing was overwritten: move it away, or restore a copy")
    if code in BUSY:
        return StoreError(f"the store {path} is locked by another program ({error}); try again when it is done")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(f"the store {path} cannot be opened ({error}); check that you may read and write it and its folder")
    return StoreError(f"the store {path} failed: {error}")


@contextlib.contextmanager
def errors(path: Path) -> Generator[None]:
    """Turn what SQLite raises into store errors that name the file."""
    try:
        yield
    except Exception as error:
        if (seen := translated(error, path)) is error:
            raise
        raise seen from error


class OpenersLock:
    """A lock beside the store that each opener shares and a migration has alone."""

    def __init__(self, path: Path) -> None:
        self._store = path
        self._path = path.with_name(path.name + LOCK_SUFFIX)
        self._descriptor: int | None = None

    def share(self, timeout_s: float) -> None:
        """Join those who have the store open, or come back from having it alone; waits while a migration runs elsewhere."""
        if fcntl is None:
            return
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise StoreError(f"the store {self._store} needs the file {self._path} beside it, which cannot be made: {error.strerror}") from error
        deadline = time.monotonic() + timeout_s
        while not self._take(fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                raise StoreError(f"the store {self._store} is being migrated by process {self.holders()}; try again when it is done")
            time.sleep(0.01)

    def leave(self) -> None:
        """No longer share it: two that keep sharing while they want it alone would wait for each other for ever."""
        if fcntl is not None and self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def take_alone(self) -> bool:
        """Have the store alone, if nobody else has it open."""
        return fcntl is None or self._take(fcntl.LOCK_EX)

    def _take(self, kind: int) -> bool:
        assert fcntl is not None
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without such locks: SQLite's own must do
            return True
        return True

    def holders(self) -> str:
        """The processes that hold the lock, as far as the system tells."""
        assert self._descriptor is not None
        inode = os.fstat(self._descriptor).st_ino
        try:
            lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
        except OSError:
            return "unknown to this system"
        held = [line.split() for line in lines if " FLOCK " in line and "->" not in line]
        pids = sorted({fields[4] for fields in held if fields[5].rpartition(":")[2] == str(inode)})
        return ", ".join(pids) or "unknown to this system"

    def release(self) -> None:
        """Leave for good; may be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
