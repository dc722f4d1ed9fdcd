"""JSON-RPC 2.0 messages and the version of this protocol."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from openprogram_protocol.errors import WireError

PROTOCOL = 1
"""Raised by one with every change that an older peer cannot speak; versioned apart from the package. It covers the workers' control channel too."""

Id = int | str | None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request (``id`` set) or a notification."""

    method: str
    params: Any = {}
    id: Id | msgspec.UnsetType = msgspec.UNSET
    jsonrpc: Literal["2.0"] = "2.0"


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that succeeded."""

    id: Id
    result: Any = None
    jsonrpc: Literal["2.0"] = "2.0"


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that failed."""

    id: Id
    error: WireError
    jsonrpc: Literal["2.0"] = "2.0"


def encode(message: Any) -> bytes:
    """A message as strict JSON in UTF-8: NaN and infinities become null. Raises TypeError for what JSON cannot hold, ValueError for lone surrogates."""
    return msgspec.json.encode(message)
