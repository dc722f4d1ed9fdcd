"""Ordinary Python functions whose next step a language model may choose, recorded as a session DAG.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openprogram.agentic_programming import decision
    from openprogram.agentic_programming.function import agentic_function
    from openprogram.agentic_programming.llm import llm
    from openprogram.agentic_programming.runtime import Runtime, create_runtime
    from openprogram.agentic_programming.session import session
    from openprogram.errors import AskTimeout, DecisionError, LLMError, NoModelError, OpenProgramError, UserDeclined
    from openprogram.functions import function
    from openprogram.remote import connect

__version__ = "0.1.0"
__all__ = [
    "AskTimeout",
    "DecisionError",
    "LLMError",
    "NoModelError",
    "OpenProgramError",
    "Runtime",
    "UserDeclined",
    "agentic_function",
    "connect",
    "create_runtime",
    "decision",
    "function",
    "llm",
    "session",
]

_HOMES = {
    "AskTimeout": "openprogram.errors",
    "DecisionError": "openprogram.errors",
    "LLMError": "openprogram.errors",
    "NoModelError": "openprogram.errors",
    "OpenProgramError": "openprogram.errors",
    "Runtime": "openprogram.agentic_programming.runtime",
    "UserDeclined": "openprogram.errors",
    "agentic_function": "openprogram.agentic_programming.function",
    "connect": "openprogram.remote",
    "create_runtime": "openprogram.agentic_programming.runtime",
    "function": "openprogram.functions",
    "llm": "openprogram.agentic_programming.llm",
    "session": "openprogram.agentic_programming.session",
}


def __getattr__(name: str) -> Any:
    if name == "decision":
        value: Any = importlib.import_module("openprogram.agentic_programming.decision")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'openprogram' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
