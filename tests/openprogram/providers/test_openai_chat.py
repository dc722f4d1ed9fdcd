"""The Chat Completions provider against a real server: what it sends, what it makes of replies, how it treats connections."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from openprogram.providers.base import Finish, ModelEvent, TextDelta, ThinkingDelta, ToolCall, Usage
from openprogram.providers.openai_chat import OpenAIChatProvider
from tests.openprogram.providers.asking import ASK, HELLO, KEY, answered, ask, collect, text_of, until
from tests.support.http_server import Answer, Server, delta, raw_stream, sse, stream, whole


def test_text_is_streamed_and_ends_in_one_finish_with_usage() -> None:
    """Each piece is an event; the usage chunk that follows the finish reason is in the Finish."""
    assert answered(HELLO) == [TextDelta("Hel"), TextDelta("lo"), Finish(reason="stop", usage=Usage(input_tokens=3, output_tokens=2))]


def test_the_request_carries_key_model_and_messages() -> None:
    """What the server is sent is a streamed chat request with a bearer key that asks for usage."""
    with Server(HELLO) as server:
        ask(server.url)
        (request,) = server.requests
    assert (request.method, request.target, request.headers["authorization"]) == ("POST", "/v1/chat/completions", f"Bearer {KEY}")
    assert request.json == {
        "model": "m1",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


COUNTED_1, COUNTED_2 = ({"prompt_tokens": 3, "completion_tokens": n} for n in (1, 2))
PIECE = '{"choices":[{"delta":{"content":"%s"}}]}'
SPLIT_IN_TWO = b'data: {"choices":[{"delta":\r\ndata: {"content":"Hi"}}]}\r\n\r\ndata: [DONE]\r\n\r\n'
ODD = "a\u2028b\u0085c\u2029d"


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        pytest.param([b'data:{"choices":[{"delta":{"content":"Hi"}}]}\n\ndata:[DONE]\n\n'], "Hi", id="no blank after the colon"),
        pytest.param([b'data:  {"choices":[{"delta":{"content":"Hi"}}]}  \n\ndata:  [DONE]  \n\n'], "Hi", id="blanks around"),
        pytest.param([SPLIT_IN_TWO], "Hi", id="CRLF, two data lines"),
        pytest.param([SPLIT_IN_TWO[:27], SPLIT_IN_TWO[27:]], "Hi", id="chunk border inside CRLF"),
        pytest.param([SPLIT_IN_TWO.replace(b"\r\n", b"\r")], "Hi", id="CR"),
        pytest.param([bytes([byte]) for byte in SPLIT_IN_TWO], "Hi", id="byte by byte"),
        pytest.param([bytes([byte]) for chunk in sse(PIECE % "你好😀") for byte in chunk], "你好😀", id="characters split"),
        pytest.param(sse({"choices": [{"delta": {"content": ODD}}]}), ODD, id="separators that are no line ends"),
        pytest.param(
            [b"".join(sse(PIECE % "a", PIECE % "b", PIECE % "c", done=False)) + b"data: " + (PIECE % "d").encode(), b"\n\ndata: [DONE]\n\n"],
            "abcd",
            id="borders anywhere",
        ),
        pytest.param([b"\xef\xbb\xbf: ping\n\n", *sse(PIECE % "Hi"), b": ping\n\n"], "Hi", id="byte order mark and comments"),
        pytest.param([*sse(PIECE % "Hi", done=False), b"data: [DONE]"], "Hi", id="no end of line at the end"),
    ],
)
def test_server_sent_events_are_read_as_the_standard_says(chunks: list[bytes], text: str) -> None:
    """Line ends are LF, CR and CRLF only, wherever the network cuts; a lacking last blank line loses nothing."""
    events = answered(raw_stream(*chunks))
    assert text_of(events) == text
    assert events[-1] == Finish(reason="stop")


def call(index: int | None, id: str | None = None, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    part: dict[str, Any] = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in part.items() if value is not None}


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param(
            [[call(0, "A", "f", '{"a"')], [call(1, "B", "g", '{"b"')], [call(0, "", None, ":1}")], [call(1, None, None, ":2}")]],
            [ToolCall("A", "f", '{"a":1}'), ToolCall("B", "g", '{"b":2}')],
            id="interleaved",
        ),
        pytest.param(
            [[call(0, "A", "s", '{"q":"x"}')], [call(0, "B", "s", '{"q":"y"}')]],
            [ToolCall("A", "s", '{"q":"x"}'), ToolCall("B", "s", '{"q":"y"}')],
            id="every index 0",
        ),
        pytest.param([[call(None, "A", "f", "{}"), call(None, "B", "g", {"b": 2})]], [ToolCall("A", "f", "{}"), ToolCall("B", "g", '{"b": 2}')], id="no index"),
        pytest.param([[call(0, None, "f", "")]], [ToolCall("call_0", "f", "{}")], id="neither id nor arguments"),
    ],
)
def test_tool_calls_are_put_together_by_index(deltas: list[list[dict[str, Any]]], calls: list[ToolCall]) -> None:
    """Pieces are merged by index, a new id starts a new call, and the calls come whole before the Finish."""
    events = answered(stream(*(delta(tool_calls=parts) for parts in deltas), delta(finish="stop")))
    assert events == [*calls, Finish(reason="tool_calls")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(stream(delta("a", "length")), [TextDelta("a"), Finish(reason="length")], id="length"),
        pytest.param(
            stream(delta("a"), delta(tool_calls=[call(0, "A", "f", "{}")]), delta(finish="content_filter")),
            [TextDelta("a"), Finish(reason="content_filter")],
            id="a filtered call is dropped",
        ),
        pytest.param(stream(delta(refusal="no"), delta(finish="stop")), [TextDelta("no"), Finish(reason="refusal")], id="refusal"),
        pytest.param(stream(delta(reasoning_content="hm"), delta("a", "stop")), [ThinkingDelta("hm"), TextDelta("a"), Finish()], id="thinking"),
        pytest.param(stream(delta("a"), {"choices": []}, {"choices": None}, {}, delta(finish="eos")), [TextDelta("a"), Finish()], id="empty chunks"),
        pytest.param(stream(delta("a", "stop"), done=False), [TextDelta("a"), Finish()], id="no [DONE]"),
        pytest.param(stream(delta("a", "stop"), done=False, ending="reset"), [TextDelta("a"), Finish()], id="reset after the finish"),
        pytest.param(stream(delta("a", "stop"), ending="hang"), [TextDelta("a"), Finish()], id="connection left open"),
        pytest.param(
            stream(
                *(
                    {**delta(text, finish), "usage": {"prompt_tokens": 3, "completion_tokens": n}}
                    for n, (text, finish) in enumerate([("a", None), ("b", "stop")], 1)
                )
            ),
            [TextDelta("a"), TextDelta("b"), Finish(usage=Usage(input_tokens=3, output_tokens=2))],
            id="usage in every chunk is not added up",
        ),
        pytest.param(
            whole({"choices": [{"message": {"content": "a", "tool_calls": [call(None, "A", "f", "{}")]}, "finish_reason": "stop"}]}),
            [TextDelta("a"), ToolCall("A", "f", "{}"), Finish(reason="tool_calls")],
            id="a server that does not stream",
        ),
    ],
)
def test_whole_replies(answer: Answer, expected: list[ModelEvent]) -> None:
    """Whatever way a server ends a reply, it is complete once the server said that it is over."""
    assert answered(answer) == expected


def test_closing_the_iterator_closes_the_stream() -> None:
    """Streams that are left early free their connections, more often than the pool has room."""
    with Server(stream(delta("a"), done=False, ending="hang")) as server:

        async def run() -> None:
            provider = OpenAIChatProvider(server.url, environ={})
            for _ in range(120):
                events = provider.stream(ASK)
                assert await anext(events) == TextDelta("a")
                await events.aclose()
            await asyncio.to_thread(until, lambda: server.connections == 0)
            await provider.aclose()

        asyncio.run(run())


def test_cancelling_the_task_closes_the_stream() -> None:
    """A cancelled consumer leaves no open connection behind."""
    with Server(stream(delta("a"), done=False, ending="hang")) as server:

        async def run() -> None:
            provider = OpenAIChatProvider(server.url, environ={})
            task = asyncio.create_task(collect(provider))
            await asyncio.to_thread(until, lambda: server.connections == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(until, lambda: server.connections == 0)
            await provider.aclose()

        asyncio.run(run())


def test_a_connection_is_used_again() -> None:
    """A server that keeps connections serves several requests on one."""
    with Server(stream(delta("a", "stop"), ending="keep")) as server:

        async def run() -> None:
            provider = OpenAIChatProvider(server.url, environ={})
            for _ in range(5):
                await collect(provider)
            await provider.aclose()

        asyncio.run(run())
        assert (len(server.requests), server.accepted) == (5, 1)


def test_a_pooled_connection_that_the_server_closed_is_replaced_at_once() -> None:
    """A request that met a closed pooled connection was never answered: it is sent again without an error and without a wait (d29)."""
    with Server(stream(delta("a", "stop"), ending="stale")) as server:

        async def run() -> list[str]:
            provider = OpenAIChatProvider(server.url, environ={})
            texts = [text_of(await collect(provider)) for _ in range(3)]
            await provider.aclose()
            return texts

        assert asyncio.run(run()) == ["a"] * 3
        assert (len(server.requests), server.accepted) == (3, 3)


def test_one_provider_serves_many_loops() -> None:
    """Loops one after another and in threads each get their own connections, and nothing is left open when they end."""
    with Server(stream(delta("a", "stop"), ending="keep")) as server:
        provider = OpenAIChatProvider(server.url, environ={})
        found: list[str] = []

        def one() -> None:
            found.append(text_of(asyncio.run(collect(provider))))

        for _ in range(3):
            one()
        threads = [threading.Thread(target=one) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert found == ["a"] * 6
        until(lambda: server.connections == 0)
        gc.collect()


def test_closing_from_one_loop_closes_the_connections_of_another() -> None:
    """aclose reaches a loop that runs in another thread, may be called twice, and the provider can be used again."""
    with Server(stream(delta("a", "stop"), ending="keep")) as server:
        provider = OpenAIChatProvider(server.url, environ={})
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        asyncio.run_coroutine_threadsafe(collect(provider), loop).result(10)
        assert server.connections == 1
        asyncio.run(provider.aclose())
        until(lambda: server.connections == 0)
        asyncio.run(provider.aclose())
        assert text_of(asyncio.run_coroutine_threadsafe(collect(provider), loop).result(10)) == "a"
        asyncio.run(provider.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
