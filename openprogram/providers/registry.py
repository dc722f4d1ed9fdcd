"""Provider names → providers, and which one a program gets when it names none.

A model is written ``"provider:model"``. One row per provider; a row is imported when its provider is first asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from openprogram.errors import NoModelError, UnknownModelError
from openprogram.providers.base import Provider

if TYPE_CHECKING:
    from pathlib import Path

ROWS: dict[str, tuple[str, str, str]] = {
    # name: module, factory in it, default model
    "scripted": ("openprogram.providers.scripted", "ScriptFiles", ""),
    "local": ("openprogram.providers.local", "LocalProvider", "smollm2-135m"),
}

HOW_TO = "install the local model with `openprogram models install`, pass Runtime(call=…), or set OPENPROGRAM_MODEL to a 'provider:model'"


def split_model(name: str) -> tuple[str, str]:
    """``"local:smollm2-135m"`` → ("local", "smollm2-135m"); raises UnknownModelError naming the known providers."""
    provider, _, model = name.partition(":")
    if provider not in ROWS:
        raise UnknownModelError(f"model {name!r}: there is no provider {provider!r}; known: {', '.join(sorted(ROWS))}")
    return provider, model or ROWS[provider][2]


def make_provider(name: str) -> Provider:
    """A new provider of that name. Raises UnknownModelError for an unknown one, NoModelError when its extra is not installed."""
    if name not in ROWS:
        raise UnknownModelError(f"there is no provider {name!r}; known: {', '.join(sorted(ROWS))}")
    module, factory, _ = ROWS[name]
    make: Callable[[], Provider] = getattr(importlib.import_module(module), factory)
    return make()


def chosen_model(provider: str | None = None, model: str | None = None) -> str:
    """The ``"provider:model"`` to use: the arguments, else OPENPROGRAM_PROVIDER and OPENPROGRAM_MODEL (AGENTIC_* too), else the workspace's table, else the
    local model.

    Raises NoModelError when nothing is configured, UnknownModelError when what is configured is not known.
    """
    provider = provider or _environment("PROVIDER")
    model = model or _environment("MODEL") or (None if provider else _from_workspace())
    if model is not None and ":" in model and (provider is None or model.partition(":")[0] == provider):
        return ":".join(split_model(model))
    if provider is None and model is not None:
        raise UnknownModelError(f"model {model!r} names no provider; write 'provider:model', with one of: {', '.join(sorted(ROWS))}")
    if provider is not None:
        return ":".join(split_model(f"{provider}:{model or ''}"))
    if importlib.util.find_spec("xllamacpp") is None:
        raise NoModelError(f"no model is configured: {HOW_TO} (the local engine is missing: pip install 'openprogram[local]')")
    return ":".join(split_model("local:"))


def _environment(what: str) -> str | None:
    return os.environ.get(f"OPENPROGRAM_{what}") or os.environ.get(f"AGENTIC_{what}")


def _from_workspace() -> str | None:
    from pathlib import Path

    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _table(file).get("model")
    return None


def _table(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("openprogram", {})
    except (OSError, ValueError) as error:
        raise NoModelError(f"{file} cannot be read as TOML, so its [tool.openprogram] model is unknown: {error}") from None
