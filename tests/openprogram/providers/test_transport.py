"""Failures of the transport, from the network up to what a server reports, and what is never shown: keys."""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from openprogram.context.messages import text_message
from openprogram.errors import ConfigurationError, LLMError, OpenProgramError, Reason, UsageError
from openprogram.providers.base import ModelRequest
from openprogram.providers.openai_chat import OpenAIChatProvider
from openprogram.providers.transport import Where, retry_after, transport_error
from tests.openprogram.providers.asking import HELLO, KEY, ask, collect, failed, text_of
from tests.support.http_server import Answer, Server, delta, raw_stream, stream, whole


@pytest.mark.parametrize(
    ("answer", "reason", "retryable"),
    [
        pytest.param(stream(delta("Hello wor"), done=False), Reason.CONNECTION, True, id="ends without a finish"),
        pytest.param(stream(delta("Hello wor"), done=False, ending="reset"), Reason.CONNECTION, True, id="reset"),
        pytest.param(stream(), Reason.PROTOCOL, True, id="nothing but [DONE]"),
        pytest.param(raw_stream(b"data: {no json\n\n"), Reason.PROTOCOL, True, id="no JSON"),
        pytest.param(raw_stream(b"data: " + b"[" * 100_000 + b"\n\n"), Reason.PROTOCOL, True, id="nested without end"),
        pytest.param(stream(delta("a"), {"error": {"message": "server had an error", "code": 500}}), Reason.SERVER, True, id="error object"),
        pytest.param(stream({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), Reason.OVERLOADED, True, id="overloaded"),
        pytest.param(raw_stream(b'event: error\ndata: {"message": "Overloaded", "code": "529"}\n\n'), Reason.OVERLOADED, True, id="error event"),
        pytest.param(stream({"error": {"type": "invalid_request_error", "message": "bad"}}), Reason.BAD_REQUEST, False, id="bad request in a stream"),
        pytest.param(stream({"error": "upstream"}), Reason.SERVER, True, id="error text"),
        pytest.param(stream(delta("a", "error")), Reason.SERVER, True, id="finish reason error"),
        pytest.param(whole({"error": {"message": "upstream timeout", "code": 504}}), Reason.TIMEOUT, True, id="gateway error under 200"),
        pytest.param(whole({"choices": None}), Reason.PROTOCOL, True, id="choices null"),
        pytest.param(whole({"choices": []}), Reason.PROTOCOL, True, id="choices empty"),
        pytest.param(whole({"choices": [{"message": None}]}), Reason.PROTOCOL, True, id="message null"),
        pytest.param(whole({}), Reason.PROTOCOL, True, id="empty object"),
        pytest.param(whole(None), Reason.PROTOCOL, True, id="null"),
        pytest.param(whole(["x"]), Reason.PROTOCOL, True, id="list"),
    ],
)
def test_a_reply_that_is_none_is_an_error(answer: Answer, reason: Reason, retryable: bool) -> None:
    """An error under status 200 keeps its own meaning; a broken or empty answer is never a short success."""
    error = failed(answer)
    assert (error.reason, error.retryable, error.http_status) == (reason, retryable, None)


TOO_LONG = {"error": {"code": "context_length_exceeded", "message": "too many"}}


@pytest.mark.parametrize(
    ("status", "body", "reason", "retryable"),
    [
        (400, b'{"error": {"message": "bad"}}', Reason.BAD_REQUEST, False),
        (401, b"{}", Reason.AUTH, False),
        (403, b"{}", Reason.AUTH, False),
        (404, b'{"error": "no such model"}', Reason.BAD_REQUEST, False),
        (408, b"{}", Reason.TIMEOUT, True),
        (413, b"", Reason.CONTEXT_LENGTH, False),
        (422, b'{"detail": "bad field"}', Reason.BAD_REQUEST, False),
        (425, b"{}", Reason.BAD_REQUEST, True),
        (429, b"{}", Reason.RATE_LIMIT, True),
        (500, b"", Reason.SERVER, True),
        (500, b'["a", "list"]', Reason.SERVER, True),
        (500, b"7", Reason.SERVER, True),
        (502, b"<html><h1>Bad Gateway</h1></html>", Reason.SERVER, True),
        (503, b'{"error": {"message": "Loading model"}}', Reason.OVERLOADED, True),
        (504, b"{}", Reason.TIMEOUT, True),
        (520, b"{}", Reason.SERVER, True),
        (529, b"{}", Reason.OVERLOADED, True),
        (302, b"", Reason.BAD_REQUEST, False),
        (400, json.dumps(TOO_LONG).encode(), Reason.CONTEXT_LENGTH, False),
        (400, b'{"error": {"type": "exceed_context_size_error", "message": "x"}}', Reason.CONTEXT_LENGTH, False),
        (400, b'{"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}', Reason.CONTEXT_LENGTH, False),
        (500, b"the input token count exceeds the maximum", Reason.CONTEXT_LENGTH, False),
        (400, b'{"error": {"code": "content_filter", "message": "x"}}', Reason.CONTENT_FILTER, False),
    ],
)
def test_statuses_say_whether_to_try_again(status: int, body: bytes, reason: Reason, retryable: bool) -> None:
    """408, 425, 429 and 5xx may be retried, other 4xx and an overlong prompt not, whatever the body is made of."""
    error = failed(Answer(chunks=[body], status=status))
    assert (error.reason, error.retryable, error.http_status) == (reason, retryable, status)
    assert (error.provider, error.model) == ("openai", "m1")


def test_an_exhausted_quota_is_not_retried() -> None:
    """A 429 that no waiting mends is told apart from a rate limit."""
    assert not failed(whole({"error": {"type": "insufficient_quota", "message": "check your plan"}}, 429)).retryable


def test_an_error_text_is_short_and_says_where() -> None:
    """A page of HTML is cut; a 404 names the address that was asked."""
    error = failed(Answer(chunks=[b"<p>x</p>" * 50_000], status=404))
    assert len(str(error)) < 1000
    with Server(whole({}, 404)) as server, pytest.raises(LLMError, match=f"{server.url}/v1/chat/completions"):
        ask(server.url)


RETRY_INFO = {"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.25s"}]}}


@pytest.mark.parametrize(
    ("headers", "payload", "seconds"),
    [
        ({"retry-after": "12"}, None, 12.0),
        ({"retry-after": "0", "retry-after-ms": "1500"}, None, 1.5),
        ({"retry-after": "9999999999"}, None, 9999999999.0),
        ({"retry-after": "-5"}, None, 0.0),
        ({"retry-after": "1m3s"}, None, 63.0),
        ({}, RETRY_INFO, 1.25),
        ({}, {"error": {"details": [{"retryDelay": 3}]}}, 3.0),
        ({"retry-after": "soon"}, {"error": "x"}, None),
        ({"retry-after": "nan"}, ["x"], None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None, 0.0),
        ({}, None, None),
    ],
)
def test_how_long_the_server_asks_to_wait(headers: dict[str, str], payload: Any, seconds: float | None) -> None:
    """Every form of the hint is understood, the longest counts, and nonsense is no hint."""
    assert retry_after(headers, payload) == seconds


def test_a_retry_date_becomes_seconds_on_the_error() -> None:
    """An HTTP date is turned into the seconds from now."""
    error = failed(whole({}, 429, Retry_After=formatdate(time.time() + 60, usegmt=True)))
    assert error.retry_after_s is not None and 50 < error.retry_after_s <= 61


def test_a_refused_connection_says_where() -> None:
    """Nobody listening is a connection error that may be retried and names the address."""
    with Server(HELLO) as server:
        url = server.url
    with pytest.raises(LLMError, match=url) as caught:
        ask(url)
    assert (caught.value.reason, caught.value.retryable) == (Reason.CONNECTION, True)


def test_silence_is_a_time_out() -> None:
    """A server that stops sending is given up after the read time-out."""
    with Server(stream(delta("a"), done=False, ending="hang")) as server, pytest.raises(LLMError) as caught:
        ask(server.url, read_timeout_s=0.2)
    assert (caught.value.reason, caught.value.retryable) == (Reason.TIMEOUT, True)


def subclasses(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(below for one in kind.__subclasses__() for below in subclasses(one))]


@pytest.mark.parametrize("kind", [*subclasses(httpx.HTTPError), *subclasses(httpx.InvalidURL), *subclasses(httpx.StreamError)], ids=lambda kind: kind.__name__)
def test_no_transport_error_is_missed(kind: type[Exception]) -> None:
    """Each of httpx's exceptions becomes one of ours, without the key, and only time-outs and broken connections may be retried."""
    error = kind.__new__(kind)
    Exception.__init__(error, f"about {KEY}")
    ours = transport_error(Where(provider="p", model="m", url="http://h", secrets=(KEY,)), error)
    assert isinstance(ours, OpenProgramError) and KEY not in str(ours)
    again = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)
    assert (isinstance(ours, LLMError) and ours.retryable) is issubclass(kind, again)


def test_an_untrusted_certificate_is_not_retried() -> None:
    """It is a connection error that no repetition mends."""
    error = transport_error(Where(provider="p", model="m", url="https://h"), httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"))
    assert isinstance(error, LLMError) and not error.retryable


# Key and address


def test_the_key_is_in_no_error() -> None:
    """A server that echoes the key does not get it into the text."""
    error = failed(whole({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401))
    assert "***" in str(error)


@pytest.mark.parametrize("key", [f"{KEY}\n", f"  {KEY} \r\n"])
def test_blanks_around_a_key_are_dropped(key: str) -> None:
    """A key pasted with a line end works."""
    with Server(HELLO) as server:

        async def run() -> None:
            provider = OpenAIChatProvider(server.url, key, environ={})
            await collect(provider)
            await provider.aclose()

        asyncio.run(run())
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", [None, "", "  \n"])
def test_without_a_key_no_header_is_sent(key: str | None) -> None:
    """Many local servers want none."""
    with Server(HELLO) as server:

        async def run() -> None:
            provider = OpenAIChatProvider(server.url, key, environ={})
            await collect(provider)
            await provider.aclose()

        asyncio.run(run())
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("key", ["sk\u2013dash", "sk in two", "sk\nheader: x"])
def test_a_key_that_cannot_be_sent_is_refused_at_once(key: str) -> None:
    """The error does not show it."""
    with pytest.raises(ConfigurationError) as caught:
        OpenAIChatProvider("http://h", key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "target"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/v1//", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1?api-version=1", "/v1/chat/completions?api-version=1"),
        ("/openai/deployments/x", "/openai/deployments/x/chat/completions"),
        ("/v1 ", "/v1/chat/completions"),
    ],
)
def test_base_urls_in_every_form(suffix: str, target: str) -> None:
    """The path that is asked for has no doubled part and keeps the query at its end."""
    with Server(HELLO) as server:
        ask(f" {server.url}{suffix}")
        assert server.requests[0].target == target


@pytest.mark.parametrize("url", ["", "h/v1", "ftp://h", "http://", "http://h:port", "https://user:pw@"])
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    """The mistake is named before any request, without what may be secret."""
    with pytest.raises(UsageError, match="base URL") as caught:
        OpenAIChatProvider(url)
    assert "pw" not in str(caught.value)


def test_user_and_query_of_the_url_are_in_no_error() -> None:
    """Both may be secret."""
    with Server(whole({}, 404)) as server, pytest.raises(LLMError) as caught:
        ask(server.url.replace("//", "//user:hush@") + "/v1?key=hush")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "by_proxy"),
    [
        ({}, False),
        ({"HTTP_PROXY": "PROXY"}, True),
        ({"http_proxy": "PROXY", "HTTP_PROXY": "http://127.0.0.1:9"}, True),
        ({"ALL_PROXY": "PROXY"}, True),
        ({"all_proxy": "PROXY", "no_proxy": "example.org"}, True),
        ({"https_proxy": "PROXY"}, False),
        ({"http_proxy": "PROXY", "NO_PROXY": "*"}, False),
        ({"http_proxy": "PROXY", "no_proxy": "localhost, 127.0.0.1"}, False),
        ({"http_proxy": "PROXY", "no_proxy": "127.0.0.0/8"}, False),
        ({"http_proxy": "PROXY", "no_proxy": "127.0.0.1:1"}, True),
    ],
)
def test_the_given_environment_names_the_proxy(environ: dict[str, str], by_proxy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the mapping that was handed in counts, in lower case before upper, and no_proxy is obeyed."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Server(HELLO) as server, Server(HELLO) as proxy:
        named = {name: value.replace("PROXY", proxy.url.replace("//", "//u:hush@")) for name, value in environ.items()}
        assert text_of(ask(server.url, environ=named)) == "Hello"
        assert (len(proxy.requests), len(server.requests)) == ((1, 0) if by_proxy else (0, 1))
        if by_proxy:
            assert proxy.requests[0].target == f"{server.url}/v1/chat/completions"
            assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"http_proxy": "socks5://u:hush@127.0.0.1:1"}, "SOCKS"),
        ({"http_proxy": "ftp://u:hush@127.0.0.1"}, "http_proxy"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_a_configuration_error(environ: dict[str, str], text: str) -> None:
    """It is refused when the provider is made, and its password is not shown."""
    with pytest.raises(ConfigurationError, match=text) as caught:
        OpenAIChatProvider("http://127.0.0.1:1", environ=environ)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"])
def test_certificates_that_cannot_be_read_are_a_configuration_error(name: str, tmp_path: Path) -> None:
    """The error names the file; nothing is sent without the certificates that were asked for."""
    (tmp_path / "bad.pem").write_text("none")
    missing = {name: str(tmp_path / "bad.pem")}
    if name == "SSL_CERT_DIR":
        OpenAIChatProvider("https://127.0.0.1:1", environ={name: str(tmp_path)})
        return
    with pytest.raises(ConfigurationError, match=r"bad\.pem"):
        OpenAIChatProvider("https://127.0.0.1:1", environ=missing)


def test_a_server_that_refuses_the_usage_option_is_asked_without() -> None:
    """One repetition without it, remembered for the next requests."""
    refusal = whole({"error": {"message": "unknown field stream_options"}}, 400)
    with Server(refusal, HELLO) as server:

        async def run() -> None:
            provider = OpenAIChatProvider(server.url, environ={})
            assert text_of(await collect(provider)) == text_of(await collect(provider)) == "Hello"
            await provider.aclose()

        asyncio.run(run())
        assert ["stream_options" in request.json for request in server.requests] == [True, False, False]


def test_a_lone_surrogate_is_sent_as_a_question_mark() -> None:
    """Text that UTF-8 cannot hold does not break the request."""
    with Server(HELLO) as server:
        ask(server.url, ModelRequest(model="m", new=(text_message("user", "a\ud800b"),)))
        assert server.requests[0].json["messages"][0]["content"] == "a?b"
