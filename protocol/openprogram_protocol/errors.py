"""Error codes on the wire: JSON-RPC's own, LSP's, and ours from -32000 down to -32099 minus what those use."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec


class ErrorCode(IntEnum):
    """``error.code`` of a reply."""

    PARSE = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL = -32603
    NOT_CONNECTED = -32002
    REQUEST_CANCELLED = -32800
    USAGE = -32010
    UNKNOWN_TARGET = -32011
    ARGUMENT = -32012
    LOAD = -32013
    CONFIGURATION = -32020
    NO_MODEL = -32021
    LLM = -32030
    DECISION = -32031
    STRUCTURED_OUTPUT = -32032
    STORE = -32040
    UNKNOWN_SESSION = -32041
    RUN_CONFLICT = -32050
    UNKNOWN_RUN = -32051
    STOPPING = -32060
    UNTRUSTED = -32061
    INTERPRETER = -32062
    VERSION = -32063


class WireError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``error`` of a reply; ``data`` holds the fields of the exception, ``data["type"]`` its class."""

    code: int
    message: str
    data: dict[str, Any] = {}
