"""One table of situations for all four wire formats, against a server that speaks them and misbehaves."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from openprogram.errors import LLMError, Reason
from openprogram.providers.base import Finish, TextDelta, ThinkingDelta, ToolCall
from tests.openprogram.providers.wires import KEY, WIRES, answered, ask, every_wire, failed, text_of
from tests.support.http_server import Answer, Server, whole
from tests.support.speaking import KINDS, Call, Say, bytes_of, encoded, say

SSE = {"Content-Type": "text/event-stream"}
ERROR_SHAPES: dict[str, dict[str, Any]] = {
    "chat": {"message": "Overloaded", "type": "overloaded_error", "code": 529},
    "responses": {"message": "Overloaded", "code": "529"},
    "anthropic": {"message": "Overloaded", "type": "overloaded_error"},
    "gemini": {"message": "Overloaded", "code": 503, "status": "UNAVAILABLE"},
}


@every_wire
def test_text_is_streamed_and_ends_in_one_finish_with_usage(kind: str) -> None:
    """Pieces come in order; prompt, cached, output and reasoning tokens are counted alike, and priced where the price is known."""
    *events, finish = answered(kind, say("Hel", "lo"))
    assert events == [TextDelta("Hel"), TextDelta("lo")]
    assert isinstance(finish, Finish) and finish.reason == "stop" and finish.usage is not None
    assert finish.usage.cost is not None and finish.usage.cost > 0
    counted = {name: value for name, value in finish.usage.as_dict().items() if name != "cost"}
    assert counted == {"input_tokens": 12, "output_tokens": 5, "cache_read": 4, "cache_create": 0, "reasoning_tokens": 2, "total_tokens": 17}


def test_the_same_tokens_cost_what_the_price_says() -> None:
    """Cached input is cheaper: 8 × 3 $ + 4 × 0.3 $ + 5 × 15 $ per million for that model."""
    finish = answered("anthropic", say("x"))[-1]
    assert isinstance(finish, Finish) and finish.usage is not None and finish.usage.cost is not None
    assert finish.usage.cost == pytest.approx((8 * 3 + 4 * 0.3 + 5 * 15) / 1e6)


@every_wire
def test_the_key_is_shown_in_a_header_only(kind: str) -> None:
    """Neither the address nor the body holds it."""
    with Server(say("x")) as server:
        ask(kind, server.url)
        (request,) = server.requests
    assert KEY in "".join(request.headers.values())
    assert KEY not in request.target and KEY.encode() not in request.body


@every_wire
@pytest.mark.parametrize("ending", ["close", "keep", "reset", "hang", "cut"])
def test_a_whole_reply_counts_however_the_connection_ends(kind: str, ending: Any) -> None:
    """Once the server said that the reply is over, a reset, a missing end or an open connection changes nothing."""
    assert text_of(answered(kind, say("Hello", ending=ending))) == "Hello"


@every_wire
@pytest.mark.parametrize("ending", ["close", "reset", "cut"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_reply_that_breaks_off_is_an_error(kind: str, ending: Any, count: int) -> None:
    """A stream that stops before it said so is a broken connection that may be tried again, never a short answer (d19)."""
    error = failed(kind, say("Hel", "lo", "there", cut=count, ending=ending))
    assert (error.reason, error.retryable, error.http_status) == (Reason.CONNECTION, True, None)


@every_wire
@pytest.mark.parametrize("ending", ["reset", "cut"])
def test_no_answer_at_all_is_a_broken_connection(kind: str, ending: Any) -> None:
    """A new connection that breaks before the first byte is told, not tried again unseen: how often is for the caller's budget."""
    with Server(Answer(status=0, ending=ending)) as server:
        with pytest.raises(LLMError) as caught:
            ask(kind, server.url)
        assert (caught.value.reason, caught.value.retryable) == (Reason.CONNECTION, True)
        assert len(server.requests) == 1


@every_wire
@pytest.mark.parametrize("texts", [[], ["Hello wor"]], ids=["before any text", "after some"])
def test_an_error_inside_a_stream_keeps_its_meaning(kind: str, texts: list[str]) -> None:
    """An overloaded server says so under status 200: it is retryable, and never an answer (d06)."""
    error = failed(kind, say(*texts, error=ERROR_SHAPES[kind]))
    assert (error.reason, error.retryable, error.http_status) == (Reason.OVERLOADED, True, None)
    assert "Overloaded" in str(error)


@every_wire
@pytest.mark.parametrize(
    ("status", "reason", "retryable"),
    [(status, Reason.AUTH, False) for status in (401, 403)]
    + [(status, Reason.BAD_REQUEST, False) for status in (400, 404, 422)]
    + [(402, Reason.QUOTA, False), (413, Reason.CONTEXT_LENGTH, False), (425, Reason.BAD_REQUEST, True), (429, Reason.RATE_LIMIT, True)]
    + [(status, Reason.TIMEOUT, True) for status in (408, 504, 524)]
    + [(status, Reason.OVERLOADED, True) for status in (503, 529)]
    + [(status, Reason.SERVER, True) for status in (500, 502, 520, 521, 522, 523)],
)
def test_statuses(kind: str, status: int, reason: Reason, retryable: bool) -> None:
    """Every wire sorts an HTTP status alike (d34), whatever the body: none, a page of HTML, or JSON of any kind (d07)."""
    for body in (b"", b"<html><h1>Bad Gateway</h1></html>", b"[1]", b'"text"', b"7", b"{}"):
        error = failed(kind, Answer(chunks=[body], status=status))
        assert (error.reason, error.retryable, error.http_status) == (reason, retryable, status)


QUOTA = {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "check your plan"}}


@every_wire
def test_an_exhausted_quota_is_no_rate_limit(kind: str) -> None:
    """Waiting does not mend it (d05)."""
    error = failed(kind, whole(QUOTA, 429))
    assert (error.reason, error.retryable, error.http_status) == (Reason.QUOTA, False, 429)


TOO_LONG: list[tuple[int, Any]] = [
    (400, {"error": {"code": "context_length_exceeded", "message": "x"}}),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
    (400, {"error": {"status": "INVALID_ARGUMENT", "message": "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."}}),
    (413, {}),
    (500, {"error": {"message": "input token count exceeds the maximum"}}),
]


@every_wire
@pytest.mark.parametrize(("status", "body"), TOO_LONG)
def test_an_overlong_prompt_is_not_tried_again(kind: str, status: int, body: Any) -> None:
    """Whatever status it comes with, and the error says what to do (d32)."""
    error = failed(kind, whole(body, status))
    assert (error.reason, error.retryable) == (Reason.CONTEXT_LENGTH, False)
    assert "show the model less" in str(error)


RETRY_INFO = {"error": {"code": 429, "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.25s"}]}}


@every_wire
@pytest.mark.parametrize(
    ("headers", "body", "low", "high"),
    [
        ({"Retry_After": "7"}, {}, 7, 7),
        ({"Retry_After": "0", "retry_after_ms": "1500"}, {}, 1.5, 1.5),
        ({"Retry_After": "DATE"}, {}, 1, 60),
        ({"Retry_After": "86400"}, {}, 86400, 86400),
        ({}, RETRY_INFO, 1.25, 1.25),
        ({}, [RETRY_INFO], 1.25, 1.25),
    ],
)
def test_a_server_says_how_long_to_wait(kind: str, headers: dict[str, str], body: Any, low: float, high: float) -> None:
    """Seconds, a date, milliseconds, or Google's RetryInfo: the error holds a number of seconds (d01, d03, d04)."""
    sent = {name: formatdate(time.time() + 60, usegmt=True) if value == "DATE" else value for name, value in headers.items()}
    error = failed(kind, whole(body, 429, **sent))
    assert error.retry_after_s is not None and low <= error.retry_after_s <= high


def each_byte(chunks: list[bytes]) -> list[bytes]:
    return [bytes([byte]) for chunk in chunks for byte in chunk]


def replacing(*pairs: tuple[bytes, bytes]) -> Callable[[list[bytes]], list[bytes]]:
    return lambda chunks: [functools.reduce(lambda chunk, pair: chunk.replace(*pair), pairs, chunk) for chunk in chunks]


def with_comments(chunks: list[bytes]) -> list[bytes]:
    return [b"\xef\xbb\xbf: ping\n\n", *(part for chunk in chunks for part in (chunk, b": ping\n\n"))]


def with_ids(chunks: list[bytes]) -> list[bytes]:
    return [b"id: 1\nretry: 10\n" + chunk for chunk in chunks]


def in_one(chunks: list[bytes]) -> list[bytes]:
    return [b"".join(chunks)]


def without_the_last_line_ends(chunks: list[bytes]) -> list[bytes]:
    return [*chunks[:-1], chunks[-1].rstrip(b"\n")]


ODD = "你好😀 a\u2028b\u2029c\u0085d\u000be"
CRLF = replacing((b"\n", b"\r\n"))
CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "byte by byte": each_byte,
    "one chunk": in_one,
    "CRLF": CRLF,
    "CR": replacing((b"\n", b"\r")),
    "CRLF byte by byte": lambda chunks: each_byte(CRLF(chunks)),
    "no blank after the colon": replacing((b"data: ", b"data:"), (b"event: ", b"event:")),
    "comments and a byte order mark": with_comments,
    "several data lines": replacing((b'", "', b'",\ndata: "')),
    "ids and retry": with_ids,
    "no end of line at the end": without_the_last_line_ends,
}


@every_wire
@pytest.mark.parametrize("change", CHANGES)
def test_server_sent_events_are_read_as_the_standard_says(kind: str, change: str) -> None:
    """Line ends are LF, CR and CRLF only, wherever the network cuts (d11, d12, d13, d14, d15)."""
    chunks = CHANGES[change](bytes_of(kind, Say(texts=["<", ODD, ">"])))
    assert text_of(answered(kind, Answer(chunks=chunks, headers=SSE))) == f"<{ODD}>"


@every_wire
@pytest.mark.parametrize("kind_of_content", ["text/plain", "application/json", "application/octet-stream", "", "TEXT/Event-Stream; charset=utf-8"])
def test_a_stream_is_known_by_what_is_in_it(kind: str, kind_of_content: str) -> None:
    """A wrong content type does not hide a good reply."""
    assert text_of(answered(kind, Answer(chunks=bytes_of(kind, Say(texts=["Hello"])), headers={"Content-Type": kind_of_content}))) == "Hello"


@every_wire
def test_a_web_page_is_no_answer(kind: str) -> None:
    """A page under status 200 comes from something else than a model: the error asks for the address."""
    error = failed(kind, Answer(chunks=[b"<html>Sign in</html>"], headers={"Content-Type": "text/html; charset=utf-8"}))
    assert (error.reason, error.retryable) == (Reason.PROTOCOL, False)
    assert "right address" in str(error)


@every_wire
@pytest.mark.parametrize("body", [b"null", b"{}", b"[]", b'{"choices": null}', b'{"choices": [{"message": null}]}', b'{"candidates": []}', b'{"output": []}'])
def test_an_empty_document_is_an_error(kind: str, body: bytes) -> None:
    """Nothing is no answer (d09); another try may help."""
    error = failed(kind, Answer(chunks=[body], headers={"Content-Type": "application/json"}))
    assert (error.reason, error.retryable) == (Reason.PROTOCOL, True)


@every_wire
def test_an_error_document_under_status_200(kind: str) -> None:
    """A gateway's error counts as the status it names, with its text (d09)."""
    error = failed(kind, whole({"error": {"message": "upstream timeout", "code": 504}}))
    assert (error.reason, error.retryable) == (Reason.TIMEOUT, True)
    assert "upstream timeout" in str(error)


@every_wire
@pytest.mark.parametrize("data", ["{no json", "[" * 100_000, "[]", "7"])
def test_what_is_no_object_is_an_error(kind: str, data: str) -> None:
    """Broken or foreign JSON in a stream may be tried again, and is shown shortened."""
    error = failed(kind, Answer(chunks=[encoded((None, data))], headers=SSE))
    assert (error.reason, error.retryable) == (Reason.PROTOCOL, True)
    assert len(str(error)) < 1000


@every_wire
def test_a_redirect_is_not_followed(kind: str) -> None:
    """The key goes to the address that was named and nowhere else."""
    with Server(say("stolen")) as other:
        error = failed(kind, Answer(status=307, headers={"Location": f"{other.url}/v1"}))
        assert (error.reason, error.retryable, error.http_status) == (Reason.BAD_REQUEST, False, 307)
        assert other.url in str(error)
        assert other.requests == []


@every_wire
def test_an_event_without_end_is_given_up(kind: str) -> None:
    """A body that never ends its line does not fill the memory."""
    error = failed(kind, Answer(chunks=[b"data: ", *[b"x" * (1 << 20)] * 40], headers=SSE))
    assert error.reason is Reason.PROTOCOL and "MB" in str(error)


@every_wire
def test_an_oversized_error_is_cut(kind: str) -> None:
    """Of a refusal only the beginning is read."""
    error = failed(kind, Answer(chunks=[b"x" * (1 << 16)] * 100, status=500))
    assert error.http_status == 500 and len(str(error)) < 1000


@every_wire
def test_slow_bytes_are_waited_for_and_silence_is_not(kind: str) -> None:
    """The read time-out is for the next piece, not for the whole reply."""
    slow = Answer(chunks=bytes_of(kind, Say(texts=["a"] * 8)), headers=SSE, pause_s=0.03)
    assert text_of(answered(kind, slow, read_timeout_s=0.25)) == "a" * 8
    error = failed(kind, say("Hello", "you", cut=1, ending="hang"), read_timeout_s=0.2)
    assert (error.reason, error.retryable) == (Reason.TIMEOUT, True)


CALLS = (Call("A", "f", '{"a": 1, "text": "é"}'), Call("B", "g", '{"b": 2}'))


@every_wire
@pytest.mark.parametrize("interleaved", [False, True])
def test_tool_calls_come_whole_before_the_finish(kind: str, interleaved: bool) -> None:
    """Pieces that interleave are kept apart (c05), and the reason of the end says that there are calls."""
    events = answered(kind, say("Let me see.", calls=CALLS, interleaved=interleaved))
    calls = [(event.id, event.name, json.loads(event.arguments)) for event in events if isinstance(event, ToolCall)]
    assert calls == [("A", "f", {"a": 1, "text": "é"}), ("B", "g", {"b": 2})]
    assert text_of(events) == "Let me see."
    assert isinstance(events[-1], Finish) and events[-1].reason == "tool_calls"


@every_wire
def test_thinking_is_apart_from_the_text(kind: str) -> None:
    """Reasoning comes as its own events."""
    events = answered(kind, say("Hello", thinking="hm"))
    assert [event for event in events if isinstance(event, ThinkingDelta)] == [ThinkingDelta("hm")]
    assert text_of(events) == "Hello"


@every_wire
def test_a_reply_cut_by_the_limit_says_so(kind: str) -> None:
    """The text that came is kept, the reason is ``length``."""
    events = answered(kind, say("Hel", finish="length"))
    assert text_of(events) == "Hel" and isinstance(events[-1], Finish) and events[-1].reason == "length"


@every_wire
def test_a_refusal_with_text_is_a_finish(kind: str) -> None:
    """What the model said is kept; its calls are not (d23)."""
    events = answered(kind, say("I cannot.", calls=CALLS, finish="refusal"))
    assert text_of(events) == "I cannot."
    assert not any(isinstance(event, ToolCall) for event in events)
    assert isinstance(events[-1], Finish) and events[-1].reason == ("content_filter" if kind == "gemini" else "refusal")


@every_wire
def test_a_withheld_reply_is_an_error(kind: str) -> None:
    """A filter that left nothing is told as such and not tried again: an empty text would pass for an answer."""
    error = failed(kind, say(calls=CALLS, finish="content_filter"))
    assert (error.reason, error.retryable) == (Reason.CONTENT_FILTER, False)


def one_document(kind: str) -> Any:
    """A whole reply as each vendor sends it without streaming."""
    if kind == "chat":
        return {
            "choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        }
    if kind == "responses":
        message: dict[str, Any] = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}
        return {"status": "completed", "output": [message], "usage": {"input_tokens": 3, "output_tokens": 1}}
    if kind == "anthropic":
        return {"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 1}}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 1}
    return [{"candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}], "usageMetadata": usage}]


@every_wire
def test_a_server_that_does_not_stream_is_understood(kind: str) -> None:
    """A reply in one document gives the same events."""
    events = answered(kind, whole(one_document(kind)))
    assert text_of(events) == "Hello"
    finish = events[-1]
    assert isinstance(finish, Finish) and finish.usage is not None and (finish.usage.input_tokens, finish.usage.output_tokens) == (3, 1)


def test_four_wires_are_tested() -> None:
    """The server and the providers know the same formats."""
    assert set(WIRES) == set(KINDS)
