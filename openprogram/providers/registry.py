"""Provider names → providers, and which one a program gets when it names none.

A model is written ``"provider:model"``. One row per provider, here or in `openprogram.providers.catalog`; its code is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping

from openprogram.errors import NoModelError, UnknownModelError
from openprogram.providers.base import Provider
from openprogram.providers.catalog import ROWS as HOSTED

ROWS: dict[str, tuple[str, str, str]] = {
    # name: module, factory in it, default model
    "scripted": ("openprogram.providers.scripted", "ScriptFiles", ""),
    "recorded": ("openprogram.providers.recorded", "RecordedFiles", ""),
    "local": ("openprogram.providers.local", "LocalProvider", "smollm2-135m"),
    **{name: ("openprogram.providers.hosted", "hosted", row.model) for name, row in HOSTED.items()},
}


def split_model(name: str) -> tuple[str, str]:
    """``"local:smollm2-135m"`` → ("local", "smollm2-135m"), with the provider's default where none is named.

    Raises UnknownModelError naming the known providers, or for a provider that has no default.
    """
    provider, _, model = name.partition(":")
    if not is_known(provider):
        raise UnknownModelError(f"model {name!r}: there is no provider {provider!r}; known: {', '.join(known())}")
    model = model or _default(provider)
    if not model and provider not in ("scripted", "recorded"):
        raise UnknownModelError(f"the provider {provider} has no default model; write '{provider}:MODEL'")
    return provider, model


def is_known(provider: str) -> bool:
    """Whether there is a provider of that name, built in or of the user's own."""
    return provider in ROWS or provider in _own()


def known() -> list[str]:
    """The names of all providers."""
    return sorted({*ROWS, *_own()})


def _own() -> Mapping[str, object]:
    from openprogram.providers.config import user_config

    return user_config().providers


def _default(provider: str) -> str:
    if provider in ROWS and provider not in HOSTED:
        return ROWS[provider][2]
    from openprogram.providers.config import user_config

    row = user_config().row(provider)
    return "" if row is None else row.model


def make_provider(name: str, *, environ: Mapping[str, str] | None = None, api_key: str | None = None) -> Provider:
    """A new provider of that name.

    ``environ`` is where its keys, address, proxies and certificates are looked for (None: this process's own environment), ``api_key`` goes before them.
    Raises UnknownModelError for an unknown one, NoModelError when its key or extra is missing, ConfigurationError for what cannot be used.
    """
    if name in HOSTED or (name not in ROWS and is_known(name)):
        from openprogram.providers.hosted import hosted

        return hosted(name, environ=environ, api_key=api_key)
    if name not in ROWS:
        raise UnknownModelError(f"there is no provider {name!r}; known: {', '.join(known())}")
    module, factory, _ = ROWS[name]
    make: Callable[[], Provider] = getattr(importlib.import_module(module), factory)
    return make()


def chosen_model(provider: str | None = None, model: str | None = None, *, environ: Mapping[str, str] | None = None) -> str:
    """The ``"provider:model"`` to use.

    The arguments, else OPENPROGRAM_PROVIDER and OPENPROGRAM_MODEL (AGENTIC_* too), else the workspace's table, else the user's configuration, else the first of
    anthropic, openai and google that has a key, else the local model. With ``environ`` that mapping counts and neither this process's own environment nor its
    folder. Raises NoModelError when nothing is configured, UnknownModelError when what is configured is not known.
    """
    surroundings = os.environ if environ is None else environ
    provider = provider or _environment("PROVIDER", surroundings)
    model = model or _environment("MODEL", surroundings) or (None if provider or environ is not None else _from_workspace())
    if model is not None and ":" in model and (provider is None or model.partition(":")[0] == provider):
        return ":".join(split_model(model))
    if provider is None and model is not None:
        raise UnknownModelError(f"model {model!r} names no provider; write 'provider:model', with one of: {', '.join(known())}")
    if provider is not None:
        return ":".join(split_model(f"{provider}:{model or ''}"))
    from openprogram.providers.detect import detect_provider

    return ":".join(split_model(":".join(detect_provider(surroundings))))


def _environment(what: str, environ: Mapping[str, str]) -> str | None:
    return environ.get(f"OPENPROGRAM_{what}") or environ.get(f"AGENTIC_{what}")


def _from_workspace() -> str | None:
    from pathlib import Path

    from openprogram.settings import settings_of

    folder = next((folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "pyproject.toml").is_file()), None)
    if folder is None:
        return None
    settings = settings_of(folder)
    if settings.problem is not None:
        raise NoModelError(f"{folder / 'pyproject.toml'}: {settings.problem}")
    return settings.model
