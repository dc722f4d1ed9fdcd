"""Addresses, keys and connections, the same for all four wire formats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openprogram.errors import LLMError, Reason
from openprogram.providers.base import TextDelta
from tests.openprogram.providers.asking import until
from tests.openprogram.providers.wires import ask, collect, every_wire, provider_of, request_of, text_of
from tests.support.http_server import Server, whole
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


LISTS: dict[str, tuple[str, Any]] = {
    "chat": ("/v1/models", {"object": "list", "data": [{"id": "b"}, {"id": "a"}]}),
    "responses": ("/v1/models", {"object": "list", "data": [{"id": "b"}, {"id": "a"}]}),
    "anthropic": ("/v1/models?limit=1000", {"data": [{"type": "model", "id": "b"}, {"type": "model", "id": "a"}]}),
    "gemini": ("/v1beta/models?pageSize=1000", {"models": [{"name": "models/b"}, {"name": "models/a"}]}),
}


@every_wire
def test_the_servers_models_are_listed(kind: str) -> None:
    """Their names as they are written after the provider's; a refusal is an LLMError as for a request."""
    target, listed = LISTS[kind]
    with Server(whole(listed), whole({"error": {"message": "no"}}, 401)) as server:

        async def run() -> None:
            provider = provider_of(kind, server.url)
            assert await provider.models() == ["a", "b"]
            with pytest.raises(LLMError, match="no; check the API key") as caught:
                await provider.models()
            assert (caught.value.reason, caught.value.http_status) == (Reason.AUTH, 401)
            await provider.aclose()

        asyncio.run(run())
        assert [(request.method, request.target) for request in server.requests] == [("GET", target)] * 2


def test_user_and_password_of_an_address_are_sent_as_such() -> None:
    """A gateway that wants them gets them in the header, not in the address."""
    with Server(say("x")) as server:
        ask("chat", server.url.replace("//", "//u:p@"), key=None)
        assert server.requests[0].headers["authorization"] == "Basic dTpw"


def test_many_requests_at_once_use_their_connections_again() -> None:
    """A hundred at once on one loop all answer, and the next hundred need no new connection."""
    with Server(say("x", ending="keep")) as server:

        async def run() -> None:
            provider = provider_of("chat", server.url)
            for _ in range(2):
                found = await asyncio.gather(*(collect(provider, request_of("chat")) for _ in range(100)))
                assert [text_of(events) for events in found] == ["x"] * 100
            assert server.accepted <= 130
            await provider.aclose()

        asyncio.run(run())
        until(lambda: server.connections == 0)
