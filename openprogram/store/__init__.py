"""Where sessions are kept: one seam (`base.Store`), a backend per file, loaded at first use so that importing the library opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openprogram.store.base import Store
    from openprogram.store.memory import MemoryStore
    from openprogram.store.registry import open_store
    from openprogram.store.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteStore", "Store", "open_store"]

_HOMES = {"MemoryStore": "memory", "SqliteStore": "sqlite", "Store": "base", "open_store": "registry"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
