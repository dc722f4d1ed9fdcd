"""Exceptions → errors on the wire. The only place where that is decided; a message says what its exception says, ``data`` holds the exception's fields."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from openprogram_protocol.errors import ErrorCode, WireError

from openprogram import errors


class RefusedError(Exception):
    """An answer that is an error of the protocol itself."""

    def __init__(self, code: ErrorCode, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data or {}


CODES: tuple[tuple[type[BaseException], ErrorCode], ...] = (
    # The first row that fits is used: subclasses stand before their bases.
    (msgspec.ValidationError, ErrorCode.INVALID_PARAMS),
    (msgspec.DecodeError, ErrorCode.PARSE),
    (asyncio.CancelledError, ErrorCode.REQUEST_CANCELLED),
    (errors.UnknownTargetError, ErrorCode.UNKNOWN_TARGET),
    (errors.ArgumentError, ErrorCode.ARGUMENT),
    (errors.UsageError, ErrorCode.USAGE),
    (errors.NoModelError, ErrorCode.NO_MODEL),
    (errors.ConfigurationError, ErrorCode.CONFIGURATION),
    (errors.LLMError, ErrorCode.LLM),
    (errors.DecisionError, ErrorCode.DECISION),
    (errors.StructuredOutputError, ErrorCode.STRUCTURED_OUTPUT),
    (errors.UnknownSessionError, ErrorCode.UNKNOWN_SESSION),
    (errors.StoreError, ErrorCode.STORE),
    (ValueError, ErrorCode.USAGE),
    (TimeoutError, ErrorCode.USAGE),  # a limit that whoever asks has set
)


def to_wire(error: BaseException) -> WireError:
    """The error of a reply."""
    if isinstance(error, RefusedError):
        return WireError(code=error.code, message=str(error), data=error.data)
    code = next((code for kind, code in CODES if isinstance(error, kind)), ErrorCode.INTERNAL)
    message = str(error) or type(error).__name__
    if code == ErrorCode.REQUEST_CANCELLED:
        message = "the request was cancelled"
    elif code == ErrorCode.INTERNAL:
        message = f"{type(error).__name__}: {message}"
    return WireError(code=code, message=message, data={"type": type(error).__name__, **_fields(error)})


def _fields(error: BaseException) -> dict[str, Any]:
    """What the exception holds and JSON can: numbers, texts, and tuples of texts."""
    fields: dict[str, Any] = {}
    for name, value in vars(error).items():
        if isinstance(value, tuple):
            fields[name] = [str(item) for item in cast("tuple[Any, ...]", value)]
        elif not name.startswith("_") and isinstance(value, str | int | float | bool):
            fields[name] = value
    return fields
