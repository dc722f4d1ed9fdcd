"""Whether files are still what was loaded. Content judges; a change that leaves the syntax tree the same is none."""

from __future__ import annotations

import ast
import hashlib
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import msgspec

from openprogram.loading import digest
from openprogram_daemon.discovery.watcher import Stamp, stamp

# A file written this shortly before it was read may be written again without a change of its times.
_RACY_NS = 2_000_000_000


class Loaded(msgspec.Struct):
    """A file as a generation runs it. ``seen`` is its digest on disk when that was last looked at, ``times`` what it was stamped with then."""

    digest: str
    data: bytes
    seen: str
    times: Stamp | None = None


class Sources:
    """The files that a generation was made of. Not for several threads at once."""

    def __init__(self) -> None:
        self.files: dict[str, Loaded] = {}

    def add(self, imported: dict[str, str]) -> bool:
        """Note what a worker compiled, as path → digest. False if a file has changed since, so that its text cannot be had any more."""
        whole = True
        for path, name in imported.items():
            if path in self.files and self.files[path].digest == name:
                continue
            data, times = _read(path)
            if data is None or digest(data) != name:
                whole = False
                continue
            self.files[path] = Loaded(digest=name, data=data, seen=name, times=times)
        return whole

    def texts(self) -> dict[str, bytes]:
        """The contents, for a worker that is to run the same as the others."""
        return {path: loaded.data for path, loaded in self.files.items()}

    def current(self) -> bool:
        """Whether the files on disk are those that were loaded, or mean the same."""
        return all(_is_current(path, loaded) for path, loaded in list(self.files.items()))  # others may add some meanwhile


def _read(path: str) -> tuple[bytes | None, Stamp | None]:
    times = stamp(Path(path))
    try:
        data = Path(path).read_bytes()
    except OSError:
        return None, None
    settled = times is not None and time.time_ns() - max(times[0], times[1]) > _RACY_NS
    return data, times if settled else None


def _is_current(path: str, loaded: Loaded) -> bool:
    if loaded.times is not None and stamp(Path(path)) == loaded.times:
        return True
    data, times = _read(path)
    if data is None:
        return False
    now = digest(data)
    if now != loaded.seen and _meaning(data) != _meaning(loaded.data):
        return False
    loaded.seen, loaded.times = now, times
    return True


def _meaning(data: bytes) -> bytes:
    """A digest of the syntax tree without positions; of the bytes where there is no tree."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return hashlib.sha256(ast.dump(ast.parse(data)).encode()).digest()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return data


def unchanged(digests: dict[str, str]) -> bool:
    """Whether files still have these contents."""
    return bool(digests) and all(_digest_of(path) == name for path, name in digests.items())


def _digest_of(path: str) -> str | None:
    data, _ = _read(path)
    return None if data is None else digest(data)


def relative(path: str, root: Path) -> str:
    """How a file is shown."""
    return Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else path


def listed(paths: Iterable[str], root: Path) -> str:
    """Files as they are shown in a sentence."""
    return ", ".join(sorted(relative(path, root) for path in paths))
