"""What an author writes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openprogram.agentic_programming.function import agentic_function as agentic_function
    from openprogram.agentic_programming.runtime import Runtime as Runtime
    from openprogram.agentic_programming.runtime import create_runtime as create_runtime


def __getattr__(name: str) -> Any:
    if name in ("agentic_function", "Runtime", "create_runtime"):
        import openprogram

        return getattr(openprogram, name)
    raise AttributeError(f"module 'openprogram.agentic_programming' has no attribute {name!r}")
