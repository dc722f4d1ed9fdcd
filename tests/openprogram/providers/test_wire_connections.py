"""Addresses, keys and connections, the same for all four wire formats."""

from __future__ import annotations

import asyncio

import pytest

from openprogram.providers.base import TextDelta
from tests.openprogram.providers.asking import until
from tests.openprogram.providers.wires import ask, collect, every_wire, provider_of, request_of, text_of
from tests.support.http_server import Server
from tests.support.speaking import say


@every_wire
@pytest.mark.parametrize("base", ["", "/", " ", "//", "?api-version=1"])
def test_base_urls_in_every_form(kind: str, base: str) -> None:
    """Slashes and blanks too many change nothing, and a query is kept at the end (d25)."""
    with Server(say("x")) as server:
        ask(kind, f"{server.url}{base}")
        path, _, query = server.requests[0].target.partition("?")
    assert (
        path
        == {
            "chat": "/v1/chat/completions",
            "responses": "/v1/responses",
            "anthropic": "/v1/messages",
            "gemini": "/v1beta/models/gemini-3-flash:streamGenerateContent",
        }[kind]
    )
    wanted = {"api-version=1"} if "?" in base else set[str]()
    assert set(query.split("&")) - {""} == wanted | ({"alt=sse"} if kind == "gemini" else set())


@every_wire
@pytest.mark.parametrize("text", ["", "   ", None])
def test_a_key_may_be_missing(kind: str, text: str | None) -> None:
    """A local server needs none: no header is sent (d24)."""
    with Server(say("x")) as server:
        ask(kind, server.url, key=text)
        assert not {"authorization", "x-api-key", "x-goog-api-key"} & server.requests[0].headers.keys()


@every_wire
def test_streams_left_early_free_their_connections(kind: str) -> None:
    """More of them than any pool has room for (d31)."""
    with Server(say("Hello", *["x"] * 50, cut=20, ending="hang")) as server:

        async def run() -> None:
            provider = provider_of(kind, server.url)
            for _ in range(120):
                events = provider.stream(request_of(kind))
                assert await anext(events) == TextDelta("Hello")
                await events.aclose()
            await asyncio.to_thread(until, lambda: server.connections == 0)
            await provider.aclose()

        asyncio.run(run())


@every_wire
def test_a_pooled_connection_that_the_server_closed_is_replaced(kind: str) -> None:
    """Such a request was never answered: it goes out again at once (d29)."""
    with Server(say("a", ending="stale")) as server:

        async def run() -> list[str]:
            provider = provider_of(kind, server.url)
            texts = [text_of(await collect(provider, request_of(kind))) for _ in range(3)]
            await provider.aclose()
            return texts

        assert asyncio.run(run()) == ["a"] * 3
        assert len(server.requests) == 3
