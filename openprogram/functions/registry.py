"""Every tool that the program has defined: ``@function`` and ``@agentic_function`` put them here when they decorate.

The same function defined again (a notebook's cell, a reload) takes the place of its former self. Two functions of one name may both be registered; it is an
error only where one set of tools would hold both. Methods are no part of it: they are tools once they are bound.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

from openprogram.functions.decorated import Decorated

Place = tuple[str, str]
Registered = Decorated[Any]

_lock = threading.Lock()
_places: dict[Place, list[Registered]] = {}
_version = 0


def register(function: Registered) -> None:
    """Add a function, in place of what the same source defined before."""
    global _version
    if not function.options.as_tool or not function.options.register_globally or _is_of_a_class(function):
        return
    place = (function.__module__, function.__qualname__)
    with _lock:
        # One source may make several tools, each with a name of its own: a factory, or one function decorated twice.
        others = [item for item in _places.get(place, ()) if item.__code__ is function.__code__ and item.tool_name != function.tool_name]
        _places[place] = [*others, function]
        _version += 1


def _is_of_a_class(function: Registered) -> bool:
    owner, _, _ = function.__qualname__.rpartition(".")
    return bool(owner) and not owner.endswith("<locals>")


def unregister(function: Registered) -> None:
    """Take a function out again; one that is not registered is ignored."""
    global _version
    place = (function.__module__, function.__qualname__)
    with _lock:
        _places[place] = [item for item in _places.get(place, ()) if item is not function.root]
        _version += 1


def registered() -> list[Registered]:
    """Every registered function, by name and then by where it was defined, so that the order is always the same."""
    with _lock:
        found = [function for functions in _places.values() for function in functions]
    return sorted(found, key=lambda function: (function.tool_name, function.__module__, function.__qualname__))


def version() -> int:
    """Another number whenever something was registered or taken out."""
    return _version


@contextlib.contextmanager
def isolated() -> Generator[None]:
    """An empty registry inside, for tests; afterwards it is as it was."""
    global _version
    with _lock:
        kept = dict(_places)
        _places.clear()
        _version += 1
    try:
        yield
    finally:
        with _lock:
            _places.clear()
            _places.update(kept)
            _version += 1
