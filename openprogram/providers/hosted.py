"""A provider of the catalogue, put together: its row, the user's configuration, and a given environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from openprogram.errors import ConfigurationError, NoModelError, UnknownModelError, UsageError
from openprogram.providers.anthropic import AnthropicWire
from openprogram.providers.catalog import ROWS, Row
from openprogram.providers.config import Config, ProviderConfig, user_config
from openprogram.providers.gemini import GeminiWire
from openprogram.providers.http import HttpProvider
from openprogram.providers.keys import find_key
from openprogram.providers.openai_chat import ChatWire
from openprogram.providers.openai_responses import ResponsesWire
from openprogram.providers.profiles import profile_of
from openprogram.providers.wire import Wire

_WIRES: dict[str, Callable[..., Wire]] = {"chat": ChatWire, "responses": ResponsesWire, "anthropic": AnthropicWire, "gemini": GeminiWire}


def hosted(name: str, *, environ: Mapping[str, str] | None = None, api_key: str | None = None, base_url: str | None = None, **options: Any) -> HttpProvider:
    """The provider of that name.

    ``environ`` holds keys, addresses, proxies and certificates (None: this process's own); ``api_key`` and ``base_url`` go before it. ``options`` are those of
    `HttpProvider`. Raises NoModelError without a key where one is needed or without an address, UnknownModelError for an unknown name, ConfigurationError for
    what cannot be used.
    """
    environ = os.environ if environ is None else environ
    config = user_config()
    row = config.row(name)
    if row is None:
        raise UnknownModelError(f"there is no provider {name!r}; known: {', '.join(sorted({*ROWS, *config.providers}))}")
    own = config.providers.get(name, ProviderConfig())
    settings: dict[str, Any] = {
        "headers": own.headers,
        "limits": own.limits,
        "connect_timeout_s": own.connect_timeout_s,
        "read_timeout_s": own.read_timeout_s,
        **options,
    }
    try:
        return HttpProvider(
            _WIRES[row.wire](**row.options),
            base_url or address(name, row, environ, own),
            key_of(name, row, environ, api_key),
            name=name,
            profile=_profiles(name, row, config),
            environ=environ,
            **settings,
        )
    except UsageError as error:
        raise ConfigurationError(f"the provider {name}: {error}") from None


def address(name: str, row: Row, environ: Mapping[str, str], own: ProviderConfig) -> str:
    """The base URL: what the environment says, then the user's configuration, then the catalogue. Raises NoModelError where there is none."""
    named = next((value for variable in row.urls if (value := environ.get(variable, "").strip())), "") or own.base_url or row.base_url
    if not named:
        raise NoModelError(f"the provider {name} needs an address: set {row.urls[0]}, or base_url of [providers.{name}] in config.toml")
    url = named if "://" in named else f"http://{named}"
    url = url.replace("://0.0.0.0", "://127.0.0.1")  # what a server listens on, not where it is reached
    if not row.folder:
        return url
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return url  # refused with a reason where it is used
    return url if parsed.path.strip("/") else str(parsed.copy_with(path=row.folder))


def key_of(name: str, row: Row, environ: Mapping[str, str], given: str | None) -> str | None:
    """The key. Raises NoModelError where one is needed and there is none."""
    if given is not None and given.strip():
        return given
    found = find_key(name, row.keys, environ)
    if found is None and row.needs_key:
        raise NoModelError(f"the provider {name} needs an API key: {how_to_log_in(name, row)}")
    return None if found is None else found.value


def how_to_log_in(name: str, row: Row) -> str:
    """What mends a missing key."""
    return f"set {row.keys[0]}, or run: openprogram providers login {name}" if row.keys else f"run: openprogram providers login {name}"


def _profiles(name: str, row: Row, config: Config) -> Callable[[str], Any]:
    return lambda model: config.profile(name, model, profile_of(row.profiles or name, model))
