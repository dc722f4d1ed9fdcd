"""API keys: found in the environment that was handed in, the system's keyring, or a file that only the user can read. A key is never printed.

The first place that holds one counts, in that order. `Key` shows where a key is from, not what it is.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from openprogram.errors import ConfigurationError, UsageError

logger = logging.getLogger("openprogram.providers")

SERVICE = "openprogram"


class Key:
    """``value`` is the key, ``source`` says in words where it is kept."""

    __slots__ = ("source", "value")

    def __init__(self, value: str, source: str) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"Key(from {self.source})"


def find_key(provider: str, names: Sequence[str], environ: Mapping[str, str]) -> Key | None:
    """The key of a provider, None if there is none. Blank values count as absent. Raises ConfigurationError for a key file that others can read."""
    for name in names:
        if value := environ.get(name, "").strip():
            return Key(value, name)
    if value := _from_keyring(provider):
        return Key(value, "the system's keyring")
    if value := _file_keys().get(provider, "").strip():
        return Key(value, str(key_file()))
    return None


def save_key(provider: str, value: str) -> str:
    """Keep a key and say where: the keyring where there is one, else the file. Raises UsageError for an empty key, ConfigurationError when neither can be
    written."""
    from openprogram.providers.http import checked_key

    value = checked_key(value, provider) or ""
    if not value:
        raise UsageError(f"the key for {provider} is empty")
    if _to_keyring(provider, value):
        _write({name: key for name, key in _file_keys().items() if name != provider})
        return "the system's keyring"
    _write({**_file_keys(), provider: value})
    return str(key_file())


def delete_key(provider: str) -> bool:
    """Forget the key that was kept for a provider; whether there was one. What the environment holds stays."""
    found = _forgotten_by_keyring(provider)
    kept = _file_keys()
    if provider in kept:
        _write({name: key for name, key in kept.items() if name != provider})
    return found or provider in kept


def key_file() -> Path:
    """Where keys are kept without a keyring; it need not exist."""
    from openprogram_protocol.paths import home

    return home() / "keys.json"


def _file_keys() -> dict[str, str]:
    path = key_file()
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
                raise ConfigurationError(f"{path} holds keys and others can read it; run: chmod 600 {path}")
            found: Any = json.loads(opened.read())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # its content must not be quoted
        raise ConfigurationError(f"{path} cannot be read as JSON ({type(error).__name__}); delete it and log in again") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no keys by provider; delete it and log in again")
    return {name: key for name, key in cast("dict[str, Any]", found).items() if isinstance(key, str)}


def _write(keys: dict[str, str]) -> None:
    path = key_file()
    if not keys and not path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            json.dump(keys, opened)
        draft.replace(path)
    except OSError as error:
        raise ConfigurationError(f"the key cannot be kept in {path}: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)


# The keyring's backends raise errors of any kind; none of them may stop a program that has its key elsewhere.


def _from_keyring(provider: str) -> str:
    import keyring

    try:
        return (keyring.get_password(SERVICE, provider) or "").strip()
    except Exception as error:
        logger.debug("the system's keyring cannot be read: %s", type(error).__name__)
        return ""


def _to_keyring(provider: str, value: str) -> bool:
    import keyring

    try:
        keyring.set_password(SERVICE, provider, value)
        return keyring.get_password(SERVICE, provider) == value  # the null backend takes everything and keeps nothing
    except Exception as error:
        logger.debug("the system's keyring cannot be written: %s", type(error).__name__)
        return False


def _forgotten_by_keyring(provider: str) -> bool:
    import keyring

    try:
        found = keyring.get_password(SERVICE, provider) is not None
        if found:
            keyring.delete_password(SERVICE, provider)
    except Exception as error:
        logger.debug("the system's keyring cannot be changed: %s", type(error).__name__)
        return False
    return found
