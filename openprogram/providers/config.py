"""The user's own defaults: ``config.toml`` in OpenProgram's home.

    model = "anthropic:claude-sonnet-4-6"

    [providers.openai]
    concurrency = 8

    [providers.work]
    wire = "chat"
    base_url = "https://models.example.org/v1"
    key_env = "WORK_API_KEY"

    [models."work:big"]
    context_window = 32000
    price = { input = 1.0, output = 2.0 }

Keys have no place in it. A mistake in it is an error that names the file and the place, never passed over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from openprogram.errors import ConfigurationError
from openprogram.providers.base import Profile
from openprogram.providers.catalog import ROWS, Row, Wire
from openprogram.providers.limits import Limits


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[providers.NAME]``: what differs from the built-in row, or a provider of one's own (``wire`` and ``base_url``)."""

    wire: Wire | None = None
    base_url: str | None = None
    key_env: str | None = None
    needs_key: bool | None = None
    model: str | None = None
    headers: dict[str, str] = {}
    concurrency: int | None = None
    requests_per_minute: int | None = None
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 600.0

    @property
    def limits(self) -> Limits:
        """How many requests may go out."""
        return Limits(concurrency=self.concurrency, requests_per_minute=self.requests_per_minute)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; ``models`` holds fields of `Profile` by ``"provider:model"``."""

    model: str | None = None
    providers: dict[str, ProviderConfig] = {}
    models: dict[str, dict[str, Any]] = {}

    def row(self, name: str) -> Row | None:
        """The row of a provider with what the user changed; None for a name that neither the user nor the catalogue knows."""
        known, changed = ROWS.get(name), self.providers.get(name)
        if changed is None:
            return known
        if known is None and changed.base_url is None:
            return None
        fields: dict[str, Any] = {"base_url": changed.base_url, "wire": changed.wire, "model": changed.model, "needs_key": changed.needs_key}
        if changed.key_env is not None:
            fields["keys"] = (changed.key_env,)
        row = known or Row(needs_key=changed.key_env is not None)
        if changed.wire not in (None, row.wire):
            fields["options"] = {}
        return msgspec.structs.replace(row, **{key: value for key, value in fields.items() if value is not None})

    def profile(self, name: str, model: str, profile: Profile) -> Profile:
        """The profile with what the user says of that model. Raises ConfigurationError for a field that no profile has."""
        changed = self.models.get(f"{name}:{model}")
        if not changed:
            return profile
        try:
            return msgspec.convert({**msgspec.to_builtins(profile), **changed}, _Strict)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f'{file()}: [models."{name}:{model}"]: {error}') from None


class _Strict(Profile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profile that refuses fields it does not have."""


def file() -> Path:
    """Where the configuration is; it need not exist."""
    from openprogram_protocol.paths import home

    return home() / "config.toml"


def user_config() -> Config:
    """The file, an absent one as an empty one. Raises ConfigurationError for a mistake in it."""
    path = file()
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    import tomllib

    try:
        config = msgspec.convert(tomllib.loads(text), Config)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    _check(config, path)
    return config


def _check(config: Config, path: Path) -> None:
    for name, provider in config.providers.items():
        if config.row(name) is None:
            known = ", ".join(sorted(ROWS))
            raise ConfigurationError(f"{path}: [providers.{name}] is none of {known}; a provider of your own needs a base_url")
        for field in ("concurrency", "requests_per_minute"):
            value = getattr(provider, field)
            if value is not None and value < 1:
                raise ConfigurationError(f"{path}: [providers.{name}] {field} = {value} lets nothing through; it must be at least 1")
