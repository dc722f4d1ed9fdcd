"""What a program could run on here: which provider it gets when it names none, and what each one lacks.

The order: what the user's configuration names, then whose key is there (anthropic, openai, google), then the local model. Nothing is asked over the network.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import TypedDict

from openprogram.errors import ConfigurationError, NoModelError
from openprogram.providers.catalog import BY_KEY
from openprogram.providers.config import Config, ProviderConfig, user_config
from openprogram.providers.hosted import address, how_to_log_in
from openprogram.providers.keys import find_key

HOW_TO = (
    "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, run `openprogram providers login NAME`, install the local model with "
    "`openprogram models install`, pass Runtime(call=…), or set OPENPROGRAM_MODEL to a 'provider:model'"
)


class Status(TypedDict):
    """``source`` says where the key is from, ``url`` where requests go, ``hint`` what mends a provider that is not available (empty for one that is)."""

    available: bool
    model: str
    source: str
    url: str
    hint: str


def detect_provider(environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """(provider, model) that a program gets when neither it, the environment nor the workspace names one. Raises NoModelError, which says what to do."""
    environ = os.environ if environ is None else environ
    config = user_config()
    if config.model is not None:
        provider, _, model = config.model.partition(":")
        return provider, model or _default_model(config, provider)
    for name in BY_KEY:
        row = config.row(name)
        if row is not None and find_key(name, row.keys, environ) is not None:
            return name, row.model
    if _local_hint():
        raise NoModelError(f"no model is configured: {HOW_TO} ({_local_hint()})")
    return "local", _local_model()


def _default_model(config: Config, provider: str) -> str:
    row = config.row(provider)
    return "" if row is None else row.model


def check_providers(environ: Mapping[str, str] | None = None) -> dict[str, Status]:
    """Every provider by name: whether it can be used from here, and what it lacks. Keys are looked for and never shown; no server is asked."""
    from openprogram.providers.catalog import ROWS

    environ = os.environ if environ is None else environ
    config = user_config()
    found = {name: _hosted(name, config, environ) for name in (*ROWS, *(name for name in config.providers if name not in ROWS))}
    hint = _local_hint()
    return {**found, "local": Status(available=not hint, model=_local_model(), source="", url="", hint=hint)}


def _hosted(name: str, config: Config, environ: Mapping[str, str]) -> Status:
    row = config.row(name)
    assert row is not None  # `user_config` has refused any other
    own = config.providers.get(name, ProviderConfig())
    try:
        url, hint = address(name, row, environ, own), ""
    except NoModelError as error:
        url, hint = "", str(error)
    try:
        key = find_key(name, row.keys, environ)
    except ConfigurationError as error:
        key, hint = None, hint or str(error)
    if key is None and row.needs_key:
        hint = hint or how_to_log_in(name, row)
    return Status(available=not hint, model=row.model, source="" if key is None else key.source, url=url, hint=hint)


def _local_model() -> str:
    from openprogram.providers.weights import DEFAULT

    return DEFAULT


def _local_hint() -> str:
    """What the local model lacks, empty for nothing."""
    from openprogram.providers.weights import path_of

    if importlib.util.find_spec("xllamacpp") is None:
        return "the local engine is missing: pip install 'openprogram[local]'"
    return "" if path_of(_local_model()) is not None else "the local model is not installed: openprogram models install"
