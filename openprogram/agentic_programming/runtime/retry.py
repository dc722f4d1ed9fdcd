"""When a failed model request is made again, and how long to wait first."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from openprogram.errors import LLMError, OpenProgramError, Reason

logger = logging.getLogger("openprogram.retry")

T = TypeVar("T")

DEFAULT_ATTEMPTS = 6
BACKOFF_BASE_S = 1.5
LONGEST_WAIT_S = 120.0
JITTER = 0.25


class RetryInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What ``on_retry`` receives before each wait: the attempt that failed (from 1), of how many, the error and the wait in seconds."""

    attempt: int
    max_attempts: int
    error: BaseException
    delay_s: float


def attempts_from_environment() -> int:
    """OPENPROGRAM_MAX_RETRIES, else 6. Raises ValueError for anything but a whole number of at least 1."""
    text = os.environ.get("OPENPROGRAM_MAX_RETRIES")
    return check_attempts(DEFAULT_ATTEMPTS if not text else int(text) if text.isdigit() else text)


def check_attempts(value: object) -> int:
    """``max_retries`` counts attempts, the first included."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"max_retries counts attempts, the first included: a whole number of at least 1, not {value!r}")
    return value


def backoff(attempt: int, retry_after_s: float | None) -> float:
    """Seconds to wait after the attempt of that index (from 0): base × 2^attempt, ±25 %, not less than the server asked for, never over two minutes."""
    base = float(os.environ.get("OPENPROGRAM_RETRY_BACKOFF_BASE") or BACKOFF_BASE_S)
    delay = base * 2**attempt * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - jitter, not a secret
    return min(max(delay, retry_after_s or 0.0), LONGEST_WAIT_S)


async def with_retries(
    request: Callable[[], Awaitable[T]], *, max_attempts: int, on_retry: Callable[[RetryInfo], object] | None, provider: str, model: str
) -> T:
    """Make the request until it succeeds, fails for good, or ``max_attempts`` are spent; then raise LLMError with the report of every attempt.

    TypeError and NotImplementedError are programming mistakes and raised at once.
    """
    started = time.monotonic()
    report: list[str] = []
    for attempt in range(max_attempts):
        try:
            return await request()
        except (TypeError, NotImplementedError):
            raise
        except Exception as error:
            report.append(f"Attempt {attempt + 1}: {type(error).__name__}: {error}")
            if isinstance(error, OpenProgramError) and not isinstance(error, LLMError):
                raise
            if attempt + 1 >= max_attempts or not _is_transient(error):
                raise _final(error, report, started, provider, model) from error
            delay = backoff(attempt, getattr(error, "retry_after_s", None))
            _tell(on_retry, RetryInfo(attempt=attempt + 1, max_attempts=max_attempts, error=error, delay_s=delay))
            await asyncio.sleep(delay)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _is_transient(error: Exception) -> bool:
    if isinstance(error, LLMError):
        return error.retryable and not error.transport_exhausted
    return not isinstance(error, FileNotFoundError | AssertionError)


def _tell(on_retry: Callable[[RetryInfo], object] | None, info: RetryInfo) -> None:
    logger.info("attempt %d of %d failed (%s); next in %.1f s", info.attempt, info.max_attempts, type(info.error).__name__, info.delay_s)
    if on_retry is None:
        return
    try:
        on_retry(info)
    except Exception:
        logger.exception("on_retry raised; the retry goes on")


def _final(error: Exception, report: list[str], started: float, provider: str, model: str) -> LLMError:
    known = error if isinstance(error, LLMError) else LLMError(str(error), reason=_reason(error), retryable=_is_transient(error))
    return LLMError(
        f"exec() failed after {len(report)} attempt(s):\n" + "\n".join(report),
        reason=known.reason,
        retryable=known.retryable,
        http_status=known.http_status,
        retry_after_s=known.retry_after_s,
        attempts=len(report),
        elapsed_s=time.monotonic() - started,
        provider=known.provider or provider,
        model=known.model or model,
        transport_exhausted=known.transport_exhausted,
    )


def _reason(error: Exception) -> Reason:
    if isinstance(error, TimeoutError):
        return Reason.TIMEOUT
    return Reason.CONNECTION if isinstance(error, ConnectionError) else Reason.UNKNOWN
