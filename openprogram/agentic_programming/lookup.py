"""A name in a loaded module to the agentic function that it stands for. What cannot be run is told apart from what does not exist."""

from __future__ import annotations

import difflib
from types import ModuleType
from typing import Any

from openprogram.agentic_programming.function import AgenticFunction
from openprogram.errors import UnknownTargetError, UsageError

LISTED = 12


def function_in(module: ModuleType, name: str, shown: str) -> Any:
    """The function of that qualified name, or the one that models know by that name. ``shown`` is how errors call the module.

    Raises UnknownTargetError for a name that is not there, UsageError for one that cannot be run.
    """
    if "<locals>" in name:
        raise UsageError(f"{name!r} is defined inside another function and exists only while that runs; run the outer one")
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None) if part else None
    if value is None:
        value = next((item for item in vars(module).values() if is_agentic(item) and item.tool_name == name), None)
    if value is None:
        raise _unknown_in(module, name, shown)
    return _runnable(value, module, name, shown)


def is_agentic(value: Any) -> bool:
    """Whether a value was made by ``@agentic_function``."""
    return isinstance(value, AgenticFunction)


def listed(names: list[str]) -> str:
    """Names for a message, not too many."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _unknown_in(module: ModuleType, name: str, shown: str) -> UnknownTargetError:
    names = [key for key, value in vars(module).items() if is_agentic(value)]
    if not names:
        return UnknownTargetError(f"there is no function {name!r} in {shown}, nor any other agentic function")
    near = tuple(difflib.get_close_matches(name, names, n=3))
    rest = f"; did you mean {' or '.join(near)}?" if near else f"; it has {listed(names)}"
    return UnknownTargetError(f"there is no function {name!r} in {shown}{rest}", near=near)


def _runnable(value: Any, module: ModuleType, name: str, shown: str) -> Any:
    if not is_agentic(getattr(value, "__func__", value)):
        what = "a class" if isinstance(value, type) else "a function without @agentic_function" if callable(value) else f"a {type(value).__name__}"
        raise UsageError(f"{name!r} in {shown} is {what}; only functions decorated with @agentic_function are run")
    if _is_unbound_method(value, module, name):
        raise UsageError(f"{name!r} in {shown} is a method and needs an object; run a function that makes one")
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
