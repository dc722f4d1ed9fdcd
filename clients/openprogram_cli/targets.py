"""``TARGET`` to the function it names: ``package.module:function``, ``path/file.py:function``, or a bare name that is unique in the workspace.

A bare name is looked up in source text, so that only the module that is going to run is imported.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from openprogram_daemon.discovery.workspace import Workspace, root_of
from openprogram_protocol.functions import FunctionInfo, FunctionList

from openprogram_cli.exits import usage
from openprogram_cli.loading import load_file, load_module

LISTED = 12


class Target(NamedTuple):
    """A loaded function. ``root`` is the workspace it belongs to."""

    function: Any
    written: str
    root: Path


def resolve(target: str, folder: Path) -> Target:
    """The function that ``target`` names, seen from ``folder``. Raises Stop: 2 for what does not exist, 1 for a module that raises."""
    where, colon, name = target.rpartition(":")
    if colon and where and not (os.name == "nt" and len(where) == 1):
        if _looks_like_path(where):
            return _from_file(folder / where, where, name)
        module = load_module(where, folder)
        return Target(_function_in(module, name, where), target, root_of(Path(getattr(module, "__file__", None) or folder)))
    if _looks_like_path(target):
        return _only_function_of(folder / target, target)
    return _by_bare_name(target, folder)


def _looks_like_path(text: str) -> bool:
    return text in (".", "..") or text.endswith(".py") or "/" in text or os.sep in text or Path(text).is_file()


def _from_file(path: Path, shown: str, name: str) -> Target:
    _require_file(path, shown)
    return Target(_function_in(load_file(path, shown), name, shown), f"{shown}:{name}", root_of(path))


def _require_file(path: Path, shown: str) -> None:
    if path.is_dir():
        raise usage(f"{shown!r} is a folder; name a file and a function, as in {shown.rstrip('/')}/file.py:function")
    if not path.exists():
        near = difflib.get_close_matches(path.name, _neighbours(path.parent), n=3)
        raise usage(f"there is no file {shown!r}{_guess(near)}")


def _neighbours(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir() if entry.suffix == ".py"]
    except OSError:
        return []


def _guess(near: Iterable[str]) -> str:
    names = list(near)
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _only_function_of(path: Path, shown: str) -> Target:
    _require_file(path, shown)
    names = [info.qualname for info in Workspace(root_of(path)).scan([path]).functions if not info.is_nested]
    if len(names) == 1:
        return _from_file(path, shown, names[0])
    choices = f"; it has {_listed(names)}" if names else ""
    raise usage(f"name a function of {shown}, as in {shown}:{names[0] if names else 'function'}{choices}")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _by_bare_name(name: str, folder: Path) -> Target:
    workspace = Workspace(root_of(folder))
    found = workspace.scan()
    matches = _called(name, found)
    if len(matches) > 1:
        raise usage(f"{name!r} is ambiguous; write one of: {_listed([_written(info, workspace.root, folder) for info in matches])}")
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
        return f"there is no function {name!r} in {found.root}{broken}{_guess(near)}"
    return f"there is no function {name!r} in {found.root}{broken}; `openprogram functions` lists them, another folder is written path/file.py:{name}"


def _function_in(module: ModuleType, name: str, shown: str) -> Any:
    if "<locals>" in name:
        raise usage(f"{name!r} is defined inside another function and exists only while that runs; run the outer one")
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None) if part else None
    if value is None:
        value = next((item for item in vars(module).values() if is_agentic(item) and item.tool_name == name), None)
    if value is None:
        raise usage(_unknown_in(module, name, shown))
    return _runnable(value, module, name, shown)


def is_agentic(value: Any) -> bool:
    """Whether a value was made by ``@agentic_function``."""
    from openprogram.agentic_programming.function import AgenticFunction

    return isinstance(value, AgenticFunction)


def _unknown_in(module: ModuleType, name: str, shown: str) -> str:
    names = [key for key, value in vars(module).items() if is_agentic(value)]
    if not names:
        return f"there is no function {name!r} in {shown}, nor any other agentic function"
    near = difflib.get_close_matches(name, names, n=3)
    return f"there is no function {name!r} in {shown}{_guess(near) or f'; it has {_listed(names)}'}"


def _runnable(value: Any, module: ModuleType, name: str, shown: str) -> Any:
    if not is_agentic(getattr(value, "__func__", value)):
        what = "a class" if isinstance(value, type) else "a function without @agentic_function" if callable(value) else f"a {type(value).__name__}"
        raise usage(f"{name!r} in {shown} is {what}; `openprogram run` runs functions decorated with @agentic_function")
    if _is_unbound_method(value, module, name):
        raise usage(f"{name!r} in {shown} is a method and needs an object; run a function that makes one")
    return value


def _is_unbound_method(value: Any, module: ModuleType, name: str) -> bool:
    owner_name, dot, last = name.rpartition(".")
    if not dot:
        return False
    owner: Any = module
    for part in owner_name.split("."):
        owner = getattr(owner, part, None)
    classes: tuple[type, ...] = owner.__mro__ if isinstance(owner, type) else ()
    held = next((vars(cls)[last] for cls in classes if last in vars(cls)), None)
    return held is not None and not isinstance(held, staticmethod | classmethod) and value is held
