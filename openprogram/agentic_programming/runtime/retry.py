"""When a failed model request is made again, and how long to wait first."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

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


class ConsumerFailed(Exception):
    """``on_stream`` raised; its error is the cause. That is no failure of the model, so nothing is tried again."""


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
    """Seconds to wait after the attempt of that index (from 0): base × 2^attempt, ±25 %, at most two minutes, and not less than the server asked for."""
    delay = min(_base(), LONGEST_WAIT_S) * 2 ** min(attempt, 30) * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - jitter, not a secret
    return max(min(delay, LONGEST_WAIT_S), retry_after_s or 0.0)


def _base() -> float:
    text = os.environ.get("OPENPROGRAM_RETRY_BACKOFF_BASE") or BACKOFF_BASE_S
    try:
        base = float(text)
    except ValueError:
        base = -1.0
    if not 0 <= base < float("inf"):
        raise ValueError(f"OPENPROGRAM_RETRY_BACKOFF_BASE is a number of seconds, not {text!r}")
    return base


class Attempts:
    """The attempts of one model request.

    ``run`` makes it until it succeeds, fails for good, or ``most`` attempts are spent. ``timeout_s`` is for the whole exec, which began at ``started`` on the
    clock of `time.monotonic`: a wait that would pass its end is not begun. TypeError and NotImplementedError are programming mistakes and raised as they are.
    """

    def __init__(
        self, most: int, *, on_retry: Callable[[RetryInfo], object] | None, provider: str, model: str, started: float, timeout_s: float | None = None
    ) -> None:
        self._most = most
        self._on_retry = on_retry
        self._provider = provider
        self._model = model
        self._started = started
        self._timeout_s = timeout_s
        self._report: list[str] = []
        self._under_way = False

    async def run(self, request: Callable[[], Awaitable[T]]) -> T:
        """The request's result. Raises LLMError with the report of every attempt."""
        while True:
            self._under_way = True  # and stays so when it is cancelled
            try:
                result = await request()
            except Exception as error:
                self._under_way = False
                if isinstance(error, (TypeError, NotImplementedError, ConsumerFailed)):
                    raise
                self._report.append(f"Attempt {len(self._report) + 1}: {type(error).__name__}: {error}")
                if isinstance(error, OpenProgramError) and not isinstance(error, LLMError):
                    raise
                await asyncio.sleep(self._wait(error, known(error)))
            else:
                self._under_way = False
                return result

    def _wait(self, error: Exception, failure: LLMError) -> float:
        """Seconds until the next attempt, which ``on_retry`` was told of. Raises LLMError where there is none."""
        spent = len(self._report)
        if spent >= self._most or not _is_transient(failure):
            raise self._final(failure) from error
        delay = backoff(spent - 1, failure.retry_after_s)
        if delay > LONGEST_WAIT_S:
            raise self._final(failure, f"The server asks to wait {delay:g} s; exec() waits {LONGEST_WAIT_S:g} s at most.") from error
        if self._timeout_s is not None and time.monotonic() + delay >= self._started + self._timeout_s:
            raise self.timed_out(failure) from error
        self._tell(RetryInfo(attempt=spent, max_attempts=self._most, error=error, delay_s=delay))
        return delay

    def _tell(self, info: RetryInfo) -> None:
        logger.info("attempt %d of %d failed (%s); next in %.1f s", info.attempt, info.max_attempts, type(info.error).__name__, info.delay_s)
        if self._on_retry is None:
            return
        try:
            self._on_retry(info)
        except Exception:
            logger.exception("on_retry raised; the retry goes on")

    def _final(self, failure: LLMError, note: str = "", **fields: Any) -> LLMError:
        lines = [f"exec() failed after {len(self._report)} attempt(s):", *self._report, *([note] if note else ())]
        kept: dict[str, Any] = {
            "reason": failure.reason,
            "retryable": failure.retryable,
            "http_status": failure.http_status,
            "retry_after_s": failure.retry_after_s,
            "attempts": len(self._report),
            "elapsed_s": time.monotonic() - self._started,
            "provider": failure.provider or self._provider,
            "model": failure.model or self._model,
            "transport_exhausted": failure.transport_exhausted,
        }
        return LLMError("\n".join(lines), **{**kept, **fields})

    def timed_out(self, failure: LLMError | None = None) -> LLMError:
        """The error for ``timeout_s`` spent, or not enough for another wait after ``failure``."""
        attempts = max(1, len(self._report) + self._under_way)
        error = self._final(failure or LLMError(""), reason=Reason.TIMEOUT, retryable=False, attempts=attempts)
        error.args = ("\n".join([f"exec() was not done within timeout_s={self._timeout_s:g} seconds, in {attempts} attempt(s)", *self._report]),)
        return error


def known(error: Exception) -> LLMError:
    """The error as an LLMError. Other libraries' errors are read by what they commonly carry: ``status_code``, ``response.headers``, ``retryable``."""
    if isinstance(error, LLMError):
        return error
    if isinstance(error, _FILES):
        return LLMError(str(error), reason=Reason.BAD_REQUEST)
    status: Any = getattr(error, "status_code", None)
    if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
        from openprogram.providers.transport import classify, retry_after

        reason, retryable = classify(status, str(error))
        headers: Any = getattr(getattr(error, "response", None), "headers", None)
        after = retry_after(cast("Mapping[str, str]", headers)) if isinstance(headers, Mapping) else None
        return LLMError(str(error), reason=reason, retryable=retryable, http_status=status, retry_after_s=after)
    reason = Reason.TIMEOUT if isinstance(error, TimeoutError) else Reason.CONNECTION if isinstance(error, ConnectionError) else Reason.UNKNOWN
    return LLMError(str(error), reason=reason, retryable=getattr(error, "retryable", True) is not False and not isinstance(error, AssertionError))


_FILES = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def _is_transient(failure: LLMError) -> bool:
    """An error of more than one attempt comes from somebody who has tried again already."""
    return failure.retryable and not failure.transport_exhausted and failure.attempts <= 1
