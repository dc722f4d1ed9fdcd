"""``TARGET`` to the function it names: ``package.module:function``, ``path/file.py:function``, or a bare name that is unique in the workspace.

A bare name is looked up in source text, so that only the module that is going to run is imported.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from openprogram_daemon.discovery.workspace import Workspace, root_of
from openprogram_protocol.functions import FunctionInfo, FunctionList

from openprogram_cli.address import check_named, guess, looks_like_path, require_file
from openprogram_cli.exits import usage
from openprogram_cli.loading import load_file, load_module


class Target(NamedTuple):
    """A loaded function. ``root`` is the workspace it belongs to."""

    function: Any
    written: str
    root: Path


def resolve(target: str, folder: Path) -> Target:
    """The function that ``target`` names, seen from ``folder``. Raises Stop: 2 for what does not exist, 1 for a module that raises."""
    check_named(target)
    where, colon, name = target.rpartition(":")
    if colon and where and not (os.name == "nt" and len(where) == 1):
        if looks_like_path(where):
            if not name:
                return _only_function_of(folder / where, where)
            return _from_file(folder / where, where, name)
        module = load_module(where, folder)
        return Target(_function_in(module, name, where), target, root_of(Path(getattr(module, "__file__", None) or folder)))
    if looks_like_path(target):
        return _only_function_of(folder / target, target)
    return _by_bare_name(target, folder)


def _from_file(path: Path, shown: str, name: str) -> Target:
    require_file(path, shown)
    return Target(_function_in(load_file(path, shown), name, shown), f"{shown}:{name}", root_of(path))


def _only_function_of(path: Path, shown: str) -> Target:
    from openprogram.agentic_programming.lookup import listed

    require_file(path, shown)
    names = [info.qualname for info in Workspace(root_of(path)).scan([path]).functions if not info.is_nested]
    if len(names) == 1:
        return _from_file(path, shown, names[0])
    choices = f"; it has {listed(names)}" if names else ""
    raise usage(f"name a function of {shown}, as in {shown}:{names[0] if names else 'function'}{choices}")


def _by_bare_name(name: str, folder: Path) -> Target:
    from openprogram.agentic_programming.lookup import listed

    workspace = Workspace(root_of(folder))
    found = workspace.scan()
    matches = _called(name, found)
    if len(matches) > 1:
        raise usage(f"{name!r} is ambiguous; write one of: {listed([_written(info, workspace.root, folder) for info in matches])}")
    if not matches:
        raise usage(_nothing_called(name, found))
    info = matches[0]
    return _from_file(workspace.root / info.file, os.path.relpath(workspace.root / info.file, folder), info.qualname)


def _called(name: str, found: FunctionList) -> list[FunctionInfo]:
    """The functions of a name, each once however often its file defines it; those that can be run as they stand hide methods and inner functions."""
    named = [info for info in found.functions if name in (info.name, info.qualname, info.qualname.rpartition(".")[2])]
    runnable = [info for info in named if not info.is_nested and info.kind != "method"]
    return list({(info.file, info.qualname): info for info in runnable or named}.values())


def _written(info: FunctionInfo, root: Path, folder: Path) -> str:
    return f"{Path(os.path.relpath(root / info.file, folder)).as_posix()}:{info.qualname}"


def _nothing_called(name: str, found: FunctionList) -> str:
    near = difflib.get_close_matches(name, dict.fromkeys(info.name for info in found.functions), n=3)
    broken = f" ({len(found.errors)} file{'s' if len(found.errors) > 1 else ''} could not be read)" if found.errors else ""
    if near:
        return f"there is no function {name!r} in {found.root}{broken}{guess(near)}"
    return f"there is no function {name!r} in {found.root}{broken}; `openprogram functions` lists them, another folder is written path/file.py:{name}"


def _function_in(module: ModuleType, name: str, shown: str) -> Any:
    from openprogram.agentic_programming.lookup import function_in

    return function_in(module, name, shown)
