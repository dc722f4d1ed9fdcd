"""HTTP for providers: one transport per event loop, and every failure mapped to an `LLMError` in one place.

A transport belongs to the loop that opened its sockets, so `Transports` keeps one for each loop and closes it when that loop shuts down. No text of an
error holds the API key, nor the query or the user part of a URL.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx
import msgspec

from openprogram.errors import LLMError, OpenProgramError, Reason, UsageError

MAX_ERROR_BYTES = 64 << 10
_SHOWN = 600

_Loop = asyncio.AbstractEventLoop


class Transports:
    """One transport for each event loop that asks.

    Each is held by an async generator, since those are what a loop closes by itself when it shuts down. A forked child starts with none: the sockets are its
    parent's.
    """

    def __init__(self, make: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._leases: weakref.WeakKeyDictionary[_Loop, tuple[httpx.AsyncBaseTransport, AsyncGenerator[httpx.AsyncBaseTransport]]] = weakref.WeakKeyDictionary()
        self._pid = os.getpid()

    async def get(self) -> httpx.AsyncBaseTransport:
        """The running loop's transport."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._leases = os.getpid(), weakref.WeakKeyDictionary()
            lease = self._leases.get(loop)
        if lease is not None:
            return lease[0]
        generator = self._hold(loop)
        transport = await anext(generator)  # no suspension before its first yield, so no other task of this loop can come between
        with self._lock:
            self._leases[loop] = (transport, generator)
        return transport

    async def _hold(self, loop: _Loop) -> AsyncGenerator[httpx.AsyncBaseTransport]:
        transport = self._make()
        try:
            yield transport
        finally:
            with self._lock:
                self._leases.pop(loop, None)
            await transport.aclose()

    async def aclose(self) -> None:
        """Close the transports of every loop that still runs; the others closed theirs when they ended."""
        with self._lock:
            leases = list(self._leases.items())
        for loop, (_, generator) in leases:
            if loop is asyncio.get_running_loop():
                await generator.aclose()
            elif loop.is_running():
                with suppress(RuntimeError):  # it stopped in between
                    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close(generator), loop))


async def _close(generator: AsyncGenerator[httpx.AsyncBaseTransport]) -> None:
    await generator.aclose()


async def read_bounded(response: httpx.Response, limit: int) -> bytes:
    """At most the first ``limit`` bytes of a body, plus one chunk."""
    parts: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        parts.append(chunk)
        size += len(chunk)
        if size >= limit:
            break
    return b"".join(parts)


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Who was asked for what: the part that all error texts of one request share."""

    provider: str
    model: str
    url: str
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:  # tracebacks that show variables show this one
        return f"Where(provider={self.provider!r}, model={self.model!r}, url={self.url!r})"

    def clean(self, text: str) -> str:
        """``text`` in one short line, without the secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        text = " ".join(text.split())
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

    def error(self, text: str, reason: Reason, *, retryable: bool = False, status: int | None = None, retry_after_s: float | None = None) -> LLMError:
        """An error about this request. ``text`` continues ``provider (model): ``."""
        return LLMError(
            f"{self.provider} ({self.model}): {self.clean(text)}",
            reason=reason,
            retryable=retryable,
            http_status=status,
            retry_after_s=retry_after_s,
            provider=self.provider,
            model=self.model,
        )


def printable_url(url: httpx.URL) -> str:
    """The URL without what may be secret in it: user, password, query."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


# Failures before and below HTTP

_CONNECTION = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)


@contextmanager
def mapped(where: Where) -> Generator[None]:
    """Turn what httpx raises into our errors."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise transport_error(where, error) from error


def transport_error(where: Where, error: Exception) -> OpenProgramError:
    """The error for one of httpx's exceptions: time-outs and broken connections may be retried, a malformed request or a bad certificate not."""
    text = f"{error} ({type(error).__name__})" if str(error) else type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return where.error(f"{where.url} did not answer in time: {text}", Reason.TIMEOUT, retryable=True)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return where.error(f"{where.url} has a certificate that is not trusted here (SSL_CERT_FILE names others): {text}", Reason.CONNECTION)
    if isinstance(error, httpx.ConnectError):
        return where.error(f"cannot connect to {where.url}; is the server running and the address right? {text}", Reason.CONNECTION, retryable=True)
    if isinstance(error, _CONNECTION):
        return where.error(f"the connection to {where.url} broke: {text}", Reason.CONNECTION, retryable=True)
    if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol)):
        return UsageError(f"{where.provider}: the base URL {where.url} cannot be used: {where.clean(text)}")
    return where.error(f"the exchange with {where.url} failed: {text}", Reason.PROTOCOL)


# Failures that the server reports

_TOO_LONG = re.compile(
    r"context[_ ]length|context[_ ]size|context window|maximum context|(prompt|input|request) is too long"
    r"|token count( \(\d+\))? exceeds|too many (input )?tokens",
    re.I,
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance", re.I)
_FILTER = re.compile(r"content_filter|content_policy|content management policy", re.I)
_STATUS_OF_TYPE = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "invalid_request_error": 400,
    "exceed_context_size_error": 400,
    "timeout_error": 504,
    "server_error": 500,
    "invalid_prompt": 400,
}
_RETRYABLE_4XX = frozenset({408, 425, 429})
_HINTS = {
    Reason.AUTH: "check the API key and what it may use",
    Reason.QUOTA: "waiting does not help: look at the plan and the billing of that account",
    Reason.CONTEXT_LENGTH: "show the model less (render_range=…, a shorter prompt) or choose a model with a larger window",
}


def status_error(where: Where, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
    """The error for an answer that is no success, whatever its body is."""
    payload, text = _payload(body)
    reason, retryable = classify(status, text)
    hint = f"; {_HINTS[reason]}" if reason in _HINTS else ""
    if status == 404:
        hint = f"; is {where.url} the right address, and the model's name?"
    if 300 <= status < 400:
        hint = f"; {where.url} redirects to {_target(headers)}, which is not followed, since the key would go along: name that as the base URL"
    after = retry_after(headers, payload)
    return where.error(f"HTTP {status}: {_detail(payload) or text or 'no details'}{hint}", reason, retryable=retryable, status=status, retry_after_s=after)


def _target(headers: Mapping[str, str]) -> str:
    try:
        return printable_url(httpx.URL(headers.get("location", "")))
    except httpx.InvalidURL:
        return "an address that is malformed"


def payload_error(where: Where, error: Any) -> LLMError:
    """The error for an error object inside an answer whose HTTP status was 200; it counts as the status that it stands for."""
    text = msgspec.json.encode(error).decode()
    reason, retryable = classify(_status_of(error), text)
    hint = f"; {_HINTS[reason]}" if reason in _HINTS else ""
    return where.error(f"the server reported: {_detail(error) or text}{hint}", reason, retryable=retryable, retry_after_s=retry_after({}, error))


def classify(status: int, text: str) -> tuple[Reason, bool]:
    """(reason, retryable) of an HTTP status and what the body says."""
    if status == 413 or ((status in (400, 422) or status >= 500) and _TOO_LONG.search(text)):
        return Reason.CONTEXT_LENGTH, False
    if status == 402 or (status == 429 and _QUOTA.search(text)):
        return Reason.QUOTA, False
    if status in (400, 403) and _FILTER.search(text):
        return Reason.CONTENT_FILTER, False
    if status == 429:
        return Reason.RATE_LIMIT, True
    if status in (503, 529) or "overloaded_error" in text:
        return Reason.OVERLOADED, True
    if status in (408, 504, 524):
        return Reason.TIMEOUT, True
    if status in (401, 403, 407):
        return Reason.AUTH, False
    if status >= 500:
        return Reason.SERVER, True
    return Reason.BAD_REQUEST, status in _RETRYABLE_4XX


def _status_of(error: Any) -> int:
    """The HTTP status an error object stands for; 500 where it does not say."""
    if not isinstance(error, dict):
        return 500
    fields = cast("dict[str, Any]", error)
    for key in ("code", "status", "http_status"):
        value = fields.get(key)
        if isinstance(value, (int, str)) and str(value).isdecimal() and 400 <= int(value) < 600:
            return int(value)
    names = (str(fields.get(key)) for key in ("type", "code"))
    return next((_STATUS_OF_TYPE[name] for name in names if name in _STATUS_OF_TYPE), 500)


def _payload(body: bytes) -> tuple[Any, str]:
    """The body as JSON (None if it is none) and as text."""
    text = body.decode("utf-8", "replace")
    try:
        return msgspec.json.decode(body), text
    except (msgspec.DecodeError, RecursionError):
        return None, text


def _detail(payload: Any) -> str:
    """The message in an error body, in the shapes that servers use."""
    if isinstance(payload, list) and payload:
        payload = cast("list[Any]", payload)[0]
    if isinstance(payload, str):
        return payload
    if not isinstance(payload, dict):
        return ""
    fields = cast("dict[str, Any]", payload)
    return next((found for key in ("error", "message", "detail", "msg") if (found := _detail(fields.get(key)))), "")


# Retry-After

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def retry_after(headers: Mapping[str, str], payload: Any = None) -> float | None:
    """Seconds to wait as the server asks: ``retry-after-ms``, ``retry-after`` (seconds or a date), or Google's ``RetryInfo``; None where it does not say."""
    found = [
        _scaled(_duration(headers.get("retry-after-ms", "")), 0.001),
        _duration(headers.get("retry-after", "")),
        _until(headers.get("retry-after", "")),
        _duration(_retry_delay(payload)),
    ]
    return max((seconds for seconds in found if seconds is not None), default=None)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _duration(text: str) -> float | None:
    """``"12"``, ``"0.8s"``, ``"1m3s"`` → seconds."""
    text = text.strip().lower()
    try:
        seconds = float(text)
    except ValueError:
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            return None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(text: str) -> float | None:
    """An HTTP date → seconds from now, at least 0."""
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _retry_delay(payload: Any) -> str:
    """``retryDelay`` of the first RetryInfo in a Google error body, or an empty text."""
    if isinstance(payload, list):
        payload = cast("list[Any]", payload)[0] if payload else None
    try:
        fields: Any = payload.get("error", payload)
        return next((str(item["retryDelay"]) for item in fields["details"] if "retryDelay" in item), "")
    except (AttributeError, KeyError, TypeError):
        return ""
