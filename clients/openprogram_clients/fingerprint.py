"""Which files of the package are installed: a daemon started from other ones is out of date.

Only names, sizes and times of change are read, so that it costs about a millisecond. Names are relative, so that two environments with the same files may
share a daemon.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

from openprogram_clients.places import digest

SERVED = ("openprogram", "openprogram_clients", "openprogram_daemon", "openprogram_protocol")
"""What a daemon loads. The command line is not among it: it is new with every command."""


def fingerprint() -> str:
    """Of the files as they are now: 16 hexadecimal digits."""
    return digest("".join(line for package in SERVED for line in sorted(_files(package))).encode("utf-8", "surrogateescape"))


def _files(package: str) -> Iterator[str]:
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        yield from _below(folder, package)


def _below(folder: str, name: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _below(entry.path, f"{name}/{entry.name}")
        elif entry.name.endswith(".py"):
            found = entry.stat()
            yield f"{name}/{entry.name}\0{found.st_size}\0{found.st_mtime_ns}\n"
