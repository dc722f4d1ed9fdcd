"""What an author writes with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openprogram.agentic_programming.function import agentic_function as agentic_function
    from openprogram.agentic_programming.runtime import Runtime as Runtime
    from openprogram.agentic_programming.runtime import create_runtime as create_runtime

_HOMES = {"agentic_function": "function", "Runtime": "runtime", "create_runtime": "runtime"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
