"""Where sessions are kept: one seam (`base.Store`), a backend per file, loaded at first use so that importing the library opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openprogram.store.base import Archive, Hit, Store
    from openprogram.store.memory import MemoryStore
    from openprogram.store.registry import open_store
    from openprogram.store.retention import prune
    from openprogram.store.sqlite import SqliteStore
    from openprogram.store.transfer import export_session, import_session

__all__ = ["Archive", "Hit", "MemoryStore", "SqliteStore", "Store", "export_session", "import_session", "open_store", "prune"]

_HOMES = {
    "Archive": "base",
    "Hit": "base",
    "MemoryStore": "memory",
    "SqliteStore": "sqlite",
    "Store": "base",
    "export_session": "transfer",
    "import_session": "transfer",
    "open_store": "registry",
    "prune": "retention",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
