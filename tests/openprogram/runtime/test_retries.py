"""When a request is made again, how often, and what is reported."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from openprogram import Runtime
from openprogram.agentic_programming.runtime.retry import LONGEST_WAIT_S, RetryInfo, backoff
from openprogram.agentic_programming.session import Session
from openprogram.errors import LLMError, NoModelError, Reason
from openprogram.providers.base import TextDelta
from openprogram.providers.scripted import Reply, ScriptedProvider

BUSY = LLMError("busy", reason=Reason.OVERLOADED, retryable=True, http_status=529)

ASKING: dict[str, Callable[[Runtime], Any]] = {
    "exec": lambda runtime: runtime.exec("?"),
    "async_exec": lambda runtime: asyncio.run(runtime.async_exec("?")),
}


@pytest.fixture(params=ASKING)
def ask(request: pytest.FixtureRequest) -> Callable[[Runtime], Any]:
    """Sync and async callers get the same."""
    return ASKING[request.param]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_max_retries_counts_attempts(attempts: int, ask: Callable[[Runtime], Any], recorded: Session | None) -> None:
    """``max_retries=3`` makes three requests, the first included, then raises with that count; one node is left."""
    provider = ScriptedProvider([BUSY], repeat=True)
    with pytest.raises(LLMError) as caught:
        ask(Runtime(provider=provider, max_retries=attempts))
    assert len(provider.requests) == attempts
    assert caught.value.attempts == attempts
    assert recorded is None or [node.status for node in recorded.nodes()] == ["error"]


@pytest.mark.parametrize("failures", [1, 5])
def test_a_success_ends_the_attempts(failures: int, ask: Callable[[Runtime], Any], recorded: Session | None) -> None:
    """By default a request may fail five times and succeed the sixth."""
    provider = ScriptedProvider([*[BUSY] * failures, "at last"])
    assert ask(Runtime(provider=provider)) == "at last"
    assert len(provider.requests) == failures + 1
    assert recorded is None or [node.status for node in recorded.nodes()] == ["completed"]


def test_every_attempt_sends_the_same_request() -> None:
    """Nothing of a failed attempt leaks into the next prompt."""
    provider = ScriptedProvider([BUSY, BUSY, "a"])
    Runtime(provider=provider).exec("?")
    assert provider.prompts[0] == provider.prompts[1] == provider.prompts[2]


PERMANENT: dict[str, Exception] = {
    "not retryable": LLMError("bad key", reason=Reason.AUTH, http_status=401),
    "spent below": LLMError("gone", retryable=True, transport_exhausted=True),
    "a missing file": FileNotFoundError("cat.png"),
}


@pytest.mark.parametrize("error", PERMANENT)
def test_a_permanent_failure_is_raised_at_once(error: str, ask: Callable[[Runtime], Any]) -> None:
    """One request, and an LLMError that keeps what was known."""
    provider = ScriptedProvider([PERMANENT[error]], repeat=True)
    with pytest.raises(LLMError) as caught:
        ask(Runtime(provider=provider))
    assert len(provider.requests) == 1
    assert caught.value.attempts == 1
    assert caught.value.__cause__ is PERMANENT[error]


@pytest.mark.parametrize("error", [TypeError("wrong call"), NotImplementedError("not yet"), NoModelError("install it")], ids=lambda error: type(error).__name__)
def test_a_mistake_is_raised_as_it_is_and_at_once(error: Exception, ask: Callable[[Runtime], Any]) -> None:
    """A programming mistake or a missing configuration is neither retried nor wrapped."""
    provider = ScriptedProvider([error], repeat=True)
    with pytest.raises(type(error)) as caught:
        ask(Runtime(provider=provider))
    assert caught.value is error
    assert len(provider.requests) == 1


@pytest.mark.parametrize("function", ["sync", "async"])
def test_errors_of_a_call_function_follow_the_same_rules(function: str, ask: Callable[[Runtime], Any]) -> None:
    """Any other error of a ``call=`` function may be transient; TypeError is raised at once."""
    calls: list[int] = []

    def failing(content: Any) -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("reset")
        raise TypeError("wrong")

    async def failing_later(content: Any) -> str:
        return failing(content)

    with pytest.raises(TypeError, match="wrong"):
        ask(Runtime(call=failing if function == "sync" else failing_later, max_retries=5))
    assert len(calls) == 2


def test_the_report_names_every_attempt() -> None:
    """The text lists them; the fields are those of the last one, with the count and the model that was asked."""
    replies: list[Reply] = [ConnectionError("reset"), BUSY, TimeoutError("slow")]
    with pytest.raises(LLMError) as caught:
        Runtime(provider=ScriptedProvider(replies), model="big", max_retries=3).exec("?")
    assert str(caught.value) == (
        "exec() failed after 3 attempt(s):\nAttempt 1: ConnectionError: reset\nAttempt 2: LLMError: busy\nAttempt 3: TimeoutError: slow"
    )
    assert (caught.value.reason, caught.value.provider, caught.value.model, caught.value.retryable) == (Reason.TIMEOUT, "scripted", "big", True)
    assert caught.value.elapsed_s >= 0


def test_fields_of_the_last_failure_are_kept() -> None:
    """Status, reason and the server's hint come through."""
    error = LLMError("slow down", reason=Reason.RATE_LIMIT, retryable=True, http_status=429, retry_after_s=0.0, provider="acme", model="m1")
    with pytest.raises(LLMError) as caught:
        Runtime(provider=ScriptedProvider([error]), max_retries=1).exec("?")
    kept = {name: value for name, value in vars(caught.value).items() if name != "elapsed_s"}
    assert kept == {name: value for name, value in vars(error).items() if name != "elapsed_s"}


def test_on_retry_is_told_before_each_wait(ask: Callable[[Runtime], Any]) -> None:
    """Once per failed attempt that another follows, not after the last; what it raises changes nothing."""
    told: list[RetryInfo] = []

    def on_retry(info: RetryInfo) -> None:
        told.append(info)
        raise ValueError("the observer is broken")

    provider = ScriptedProvider([BUSY], repeat=True)
    runtime = Runtime(provider=provider, max_retries=3)
    with pytest.raises(LLMError):
        runtime.exec("?", on_retry=on_retry)
    assert [(info.attempt, info.max_attempts, info.error, info.delay_s) for info in told] == [(1, 3, BUSY, 0.0), (2, 3, BUSY, 0.0)]


def test_the_environment_sets_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPENPROGRAM_MAX_RETRIES where the runtime does not say; the argument wins."""
    monkeypatch.setenv("OPENPROGRAM_MAX_RETRIES", "2")
    assert Runtime(call=str).max_retries == 2
    assert Runtime(call=str, max_retries=4).max_retries == 4
    monkeypatch.delenv("OPENPROGRAM_MAX_RETRIES")
    assert Runtime(call=str).max_retries == 6


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
def test_a_count_of_attempts_is_a_positive_whole_number(value: Any) -> None:
    """Anything else is a ValueError that shows it."""
    with pytest.raises(ValueError, match=repr(value)):
        Runtime(call=str, max_retries=value)


@pytest.mark.parametrize("value", ["0", "many", "-1", "2.5"])
def test_a_bad_environment_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the runtime is made, not at the first failure."""
    monkeypatch.setenv("OPENPROGRAM_MAX_RETRIES", value)
    with pytest.raises(ValueError, match="max_retries"):
        Runtime(call=str)


def test_waits_double_with_a_quarter_of_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Base × 2^attempt, at most two minutes, and never less than the server asked for."""
    monkeypatch.delenv("OPENPROGRAM_RETRY_BACKOFF_BASE")
    for attempt, middle in enumerate([1.5, 3.0, 6.0, 12.0]):
        waits = [backoff(attempt, None) for _ in range(50)]
        assert all(0.75 * middle <= wait <= 1.25 * middle for wait in waits)
        assert len(set(waits)) > 1
    assert backoff(0, 30.0) == 30.0
    assert backoff(0, 4000.0) == 4000.0
    assert backoff(20, None) == backoff(10**9, None) == LONGEST_WAIT_S


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_a_bad_base_of_the_waits_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable."""
    monkeypatch.setenv("OPENPROGRAM_RETRY_BACKOFF_BASE", value)
    with pytest.raises(ValueError, match="OPENPROGRAM_RETRY_BACKOFF_BASE"):
        backoff(0, None)


@pytest.mark.parametrize("seconds", [121.0, 86400.0, 9999999999.0])
def test_a_wait_longer_than_ours_is_not_begun(seconds: float) -> None:
    """A server that asks for hours is not waited for: the error comes at once and says for how long it asked (d03)."""
    busy = LLMError("slow down", reason=Reason.RATE_LIMIT, retryable=True, http_status=429, retry_after_s=seconds)
    provider = ScriptedProvider([busy], repeat=True)
    told: list[RetryInfo] = []
    with pytest.raises(LLMError, match="asks to wait") as caught:
        Runtime(provider=provider).exec("?", timeout_s=5, on_retry=told.append)
    assert (caught.value.reason, caught.value.retry_after_s, caught.value.attempts) == (Reason.RATE_LIMIT, seconds, 1)
    assert (len(provider.requests), told) == (1, [])


def test_a_wait_that_would_pass_the_budget_is_not_begun() -> None:
    """There is no use in waiting for an attempt that ``timeout_s`` would not let happen: TIMEOUT at once, with what the server had said."""
    busy = LLMError("slow down", reason=Reason.RATE_LIMIT, retryable=True, http_status=429, retry_after_s=60.0)
    provider = ScriptedProvider([busy], repeat=True)
    started = time.monotonic()
    with pytest.raises(LLMError, match=r"timeout_s=30 [\s\S]*slow down") as caught:
        Runtime(provider=provider).exec("?", timeout_s=30)
    assert time.monotonic() - started < 20
    error = caught.value
    assert (error.reason, error.retryable, error.http_status, error.retry_after_s, error.attempts) == (Reason.TIMEOUT, False, 429, 60.0, 1)


def test_a_time_out_tells_what_had_failed_before() -> None:
    """The attempt that was under way counts, those before it are told."""
    release = threading.Event()
    calls: list[int] = []

    def failing_then_busy(content: Any) -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("reset")
        release.wait(60)
        return "late"

    try:
        with pytest.raises(LLMError, match=r"in 2 attempt\(s\)\nAttempt 1: ConnectionError: reset") as caught:
            Runtime(call=failing_then_busy).exec("?", timeout_s=0.2)
    finally:
        release.set()
    assert (caught.value.reason, caught.value.attempts) == (Reason.TIMEOUT, 2)


class Foreign(Exception):
    """An error as other libraries raise it."""

    def __init__(self, status_code: int | None = None, headers: dict[str, str] | None = None, **fields: Any) -> None:
        super().__init__("foreign")
        self.status_code = status_code
        self.response = SimpleNamespace(headers=headers or {})
        vars(self).update(fields)


@pytest.mark.parametrize(
    ("error", "requests", "reason"),
    [
        (Foreign(401), 1, Reason.AUTH),
        (Foreign(400), 1, Reason.BAD_REQUEST),
        (Foreign(429), 3, Reason.RATE_LIMIT),
        (Foreign(529), 3, Reason.OVERLOADED),
        (Foreign(retryable=False), 1, Reason.UNKNOWN),
        (Foreign(), 3, Reason.UNKNOWN),
        (Foreign(429, {"retry-after": "7200"}), 1, Reason.RATE_LIMIT),
        (PermissionError("cat.png"), 1, Reason.BAD_REQUEST),
        (ConnectionResetError("reset"), 3, Reason.CONNECTION),
    ],
)
def test_errors_of_other_libraries_are_read_by_what_they_carry(error: Exception, requests: int, reason: Reason) -> None:
    """A ``call=`` function that uses a vendor's client need not translate its errors: status, Retry-After and ``retryable`` are understood."""
    calls: list[int] = []

    def failing(content: Any) -> str:
        calls.append(1)
        raise error

    with pytest.raises(LLMError) as caught:
        Runtime(call=failing, max_retries=3).exec("?")
    assert (len(calls), caught.value.reason, caught.value.attempts) == (requests, reason, requests)
    assert caught.value.http_status == getattr(error, "status_code", None)


def test_what_was_tried_again_inside_is_not_tried_again_outside() -> None:
    """A ``call=`` function that asks another runtime: three attempts, not nine (13, c29)."""
    provider = ScriptedProvider([BUSY], repeat=True)
    inner = Runtime(provider=provider, max_retries=3)

    def outer(content: Any) -> Any:
        return inner.exec(content)

    with pytest.raises(LLMError):
        Runtime(call=outer, max_retries=3).exec("?")
    assert len(provider.requests) == 3


def test_a_retry_after_text_tells_the_consumer_to_start_over(recorded: Session | None) -> None:
    """What was shown of the failed attempt is void: the events say so, and only the second answer is returned and kept (d19)."""

    def broken(request: Any) -> Any:
        yield TextDelta("Hello wor")
        raise LLMError("reset", reason=Reason.CONNECTION, retryable=True)

    runtime = Runtime(provider=ScriptedProvider([broken, BUSY, "Hello world"]))
    events: list[dict[str, Any]] = []
    runtime.on_stream = events.append
    assert runtime.exec("?") == "Hello world"
    assert events == [{"type": "text", "text": "Hello wor"}, {"type": "restart"}, {"type": "text", "text": "Hello world"}]
    assert recorded is None or [node.output for node in recorded.nodes()] == ["Hello world"]
