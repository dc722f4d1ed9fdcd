"""``TARGET`` as the daemon is told: the workspace it belongs to, and the function as written from there. Nothing is imported and no source is read."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from openprogram_protocol.paths import workspace_of

from openprogram_cli.exits import usage


class Address(NamedTuple):
    """``function`` as `openprogram_clients.Client.start` takes it."""

    root: Path
    function: str


def address_of(target: str, folder: Path) -> Address:
    """Where ``target``, seen from ``folder``, is. Raises Stop (2) for a file or module that does not exist."""
    check_named(target)
    where, colon, name = target.rpartition(":")
    if colon and where and not (os.name == "nt" and len(where) == 1):
        path = folder / where if looks_like_path(where) else _file_of(where, folder)
        return _in_file(path, where, name)
    if looks_like_path(target):
        return _in_file(folder / target, target, "")
    return Address(workspace_of(folder), target)


def check_named(target: str) -> None:
    """Raise Stop (2) for a target that is nothing but punctuation."""
    if not target.strip(": "):
        raise usage(f"{target!r} names no function; write package.module:function, path/file.py:function or a function's name")


def _in_file(path: Path, shown: str, name: str) -> Address:
    require_file(path, shown)
    place = path.parent.resolve() / path.name
    root = workspace_of(place)
    return Address(root, f"{place.relative_to(root).as_posix()}{':' if name else ''}{name}")


def looks_like_path(text: str) -> bool:
    """Whether a part of a target is a file's path, not a module's name."""
    return text in (".", "..") or text.endswith(".py") or "/" in text or os.sep in text or Path(text).is_file()


def require_file(path: Path, shown: str) -> None:
    """Raise Stop (2) unless the file exists; ``shown`` is how it was written."""
    if path.is_dir():
        raise usage(f"{shown!r} is a folder; name a file and a function, as in {shown.rstrip('/')}/file.py:function")
    if not path.exists():
        near = difflib.get_close_matches(path.name, _neighbours(path.parent), n=3)
        raise usage(f"there is no file {shown!r}{guess(near)}")


def _neighbours(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir() if entry.suffix == ".py"]
    except OSError:
        return []


def guess(near: Iterable[str]) -> str:
    """The end of a message that offers what was perhaps meant."""
    names = list(near)
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _file_of(module: str, folder: Path) -> Path:
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        raise usage(f"{module!r} is no module name; a file is written path/to/file.py:function")
    root = workspace_of(folder)
    for base in dict.fromkeys((folder, root, root / "src")):
        place = base.joinpath(*parts)
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if file.is_file():
                return file
    raise usage(f"there is no module {module!r} in {root}; a file is written path/to/file.py:function, and what is installed elsewhere runs with --local")
