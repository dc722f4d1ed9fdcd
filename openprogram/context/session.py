"""The former home of `openprogram.agentic_programming.session`, which opens a store and so stands above this layer; its names are still found here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openprogram.agentic_programming.session import Session, session

__all__ = ["Session", "session"]


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("openprogram.agentic_programming.session"), name)
