"""Secrets by name: what is stored of an argument called ``api_key`` is the word ``[redacted]``.

A name is read as words (``apiKey``, ``api-key`` and ``API_KEY`` are the same two). Values that cannot be a secret (None, a bool, an empty string) are kept,
because whether a key was passed at all is worth knowing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, cast

REDACTED = "[redacted]"

_LISTS: frozenset[type] = frozenset({list, tuple})

# Below this depth a value is kept as it is: `values.encode` cuts it there anyhow.
_MAX_DEPTH = 50

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_ALWAYS = frozenset(
    {"password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "authorization", "credential", "credentials"}
    | {"apikey", "apikeys", "apitoken", "authtoken", "accesskey", "privatekey", "secretkey"}
)
_LAST = frozenset({"token", "tokens", "auth", "bearer", "cookie", "cookies", "jwt"})
_KEY_OWNERS = frozenset({"api", "access", "private", "secret", "auth", "signing", "encryption", "ssh", "account", "service", "client", "subscription"})
# A token that is a place in a list or a unit of text, not a key to something.
_HARMLESS_TOKENS = frozenset(
    {"page", "next", "continuation", "sync", "stop", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "start", "end", "special"}
    | {"input", "output", "prompt", "completion", "total", "max", "min", "num", "n", "used", "cached"}
)


@functools.lru_cache(maxsize=2048)
def is_secret(name: str) -> bool:
    """Whether an argument or field of that name holds a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    if not _ALWAYS.isdisjoint(words):
        return True
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in {"key", "keys"}:
        return before in _KEY_OWNERS
    return last in _LAST and not (last in {"token", "tokens"} and before in _HARMLESS_TOKENS) and not (last == "tokens" and not before)


def redact(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A copy in which every value under a secret's name, also in nested dicts, lists and tuples, is ``"[redacted]"``; the arguments stay as they are."""
    return {key: _under(key, value, 0) for key, value in arguments.items()}


def hidden(name: Any, value: Any) -> bool:
    """Whether ``value`` must not be stored under ``name``."""
    return type(name) is str and value is not None and type(value) is not bool and value != "" and is_secret(name)


def _under(name: Any, value: Any, depth: int) -> Any:
    try:
        return REDACTED if hidden(name, value) else _inside(value, depth)
    except Exception:  # a value whose == raises is no reason to fail the call that is recorded
        return REDACTED if type(name) is str and is_secret(name) else value


def _inside(value: Any, depth: int) -> Any:
    kind = cast("type[Any]", type(value))
    if depth > _MAX_DEPTH:
        return value
    if kind is dict:
        old = cast("dict[Any, Any]", value)
        new = {key: _under(key, item, depth + 1) for key, item in old.items()}
        return value if all(new[key] is item for key, item in old.items()) else new
    if kind in _LISTS:
        if set(map(type, cast("list[Any]", value))).isdisjoint({dict, list, tuple}):
            return value
        items: list[Any] = [_inside(item, depth + 1) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else kind(items)
    return value
