"""From what a caller writes (``path/file.py:name``, ``package.module:name``, a bare name) to the function it means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from openprogram_protocol.functions import FunctionInfo, SourceError

from openprogram.errors import UnknownTargetError, UsageError
from openprogram.loading import module_name

LISTED = 12


def path_in(target: str, root: Path) -> Path | None:
    """The file that a target names as a path; None when it is written another way."""
    where, colon, _ = target.rpartition(":")
    where = where if colon else target
    return root / where if where.endswith(".py") else None


def unseen(target: str, root: Path) -> FunctionInfo | None:
    """A function of an existing file that its source does not show, if there is one: only its import can tell."""
    path = path_in(target, root)
    where, colon, name = target.rpartition(":")
    if path is None or not colon or not name or not path.is_file():
        return None
    return FunctionInfo(name=name, qualname=name, file=where, start_line=1, line=1, end_line=1, dynamic=["**"])


def broken(target: str, root: Path, errors: Iterable[SourceError]) -> UsageError | None:
    """Why no function of a target's file is known, when the file cannot be read as Python."""
    path = path_in(target, root)
    return next((UsageError(f"{error.file}:{error.line}: {error.message}") for error in errors if path == root / error.file), None)


def choose(target: str, functions: list[FunctionInfo], root: Path) -> FunctionInfo:
    """The one function that is meant. Raises UnknownTargetError with names that come close, UsageError when several are meant."""
    where, _, name = target.rpartition(":")
    path = path_in(target, root)
    if path is not None and ":" not in target:
        name = ""
    among = [info for info in functions if (not where and path is None) or _is_at(info, where, path, root)]
    called = [info for info in among if not name or name in _names(info)]
    runnable = [info for info in called if not info.is_nested and info.kind != "method"]
    found = list({(info.file, info.qualname): info for info in runnable or called}.values())
    if len(found) == 1:
        return _checked(found[0])
    if found:
        raise UsageError(f"{target!r} is ambiguous; write one of: {_listed(f'{info.file}:{info.qualname}' for info in found)}")
    raise _unknown(target, name, among or functions, root)


def _names(info: FunctionInfo) -> tuple[str, str, str]:
    return info.name, info.qualname, info.qualname.rpartition(".")[2]


def _is_at(info: FunctionInfo, where: str, path: Path | None, root: Path) -> bool:
    file = root / info.file
    return module_name(root, file)[0] == where if path is None else file in (path, path.resolve())


def _checked(info: FunctionInfo) -> FunctionInfo:
    if info.is_nested:
        raise UsageError(f"{info.qualname!r} is defined inside another function and exists only while that runs; run the outer one")
    if info.kind == "method":
        raise UsageError(f"{info.qualname!r} is a method and needs an instance; run a function, a classmethod or a staticmethod")
    return info


def _unknown(target: str, name: str, among: list[FunctionInfo], root: Path) -> UnknownTargetError:
    near = tuple(difflib.get_close_matches(name, dict.fromkeys(text for info in among for text in (info.name, info.qualname)), n=3))
    guess = f"; did you mean {' or '.join(near)}?" if near else "; `openprogram functions` lists what is there"
    return UnknownTargetError(f"there is no function {target!r} in {root}{guess}", near=near)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
