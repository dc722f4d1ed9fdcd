"""The four wire formats as providers, for tests that run over each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from openprogram.context.messages import text_message
from openprogram.errors import LLMError
from openprogram.providers.anthropic import AnthropicWire
from openprogram.providers.base import ModelEvent, ModelRequest, Profile, TextDelta
from openprogram.providers.gemini import GeminiWire
from openprogram.providers.http import HttpProvider
from openprogram.providers.openai_chat import ChatWire
from openprogram.providers.openai_responses import ResponsesWire
from openprogram.providers.profiles import profile_of
from openprogram.providers.wire import Wire
from tests.support.http_server import Answer, Request, Server
from tests.support.speaking import KINDS

KEY = "sk-very-secret"
WIRES: dict[str, tuple[Callable[[], Wire], str, str]] = {
    # kind: its wire, its provider's name, a model
    "chat": (lambda: ChatWire(max_tokens_field="max_completion_tokens", cache_key=True), "openai_chat", "gpt-5.4"),
    "responses": (ResponsesWire, "openai", "gpt-5.4"),
    "anthropic": (AnthropicWire, "anthropic", "claude-sonnet-4-6"),
    "gemini": (GeminiWire, "google", "gemini-3-flash"),
}
every_wire = pytest.mark.parametrize("kind", KINDS)


def provider_of(kind: str, url: str, *, key: str | None = KEY, profile: Profile | None = None, **options: Any) -> HttpProvider:
    """A provider of that wire at a test's server."""
    wire, name, _ = WIRES[kind]
    return HttpProvider(wire(), url, key, name=name, profile=profile or (lambda model: profile_of(name, model)), environ={}, **options)


def request_of(kind: str, text: str = "hi", **fields: Any) -> ModelRequest:
    """A request to that wire's model."""
    plain = ModelRequest(model=WIRES[kind][2], new=(text_message("user", text),))
    return msgspec.structs.replace(plain, **fields)


async def collect(provider: HttpProvider, request: ModelRequest) -> list[ModelEvent]:
    """All events of one reply."""
    async with aclosing(provider.stream(request)) as events:
        return [event async for event in events]


def ask(kind: str, url: str, request: ModelRequest | None = None, **options: Any) -> list[ModelEvent]:
    """One request with a new provider, in a loop of its own."""

    async def run() -> list[ModelEvent]:
        provider = provider_of(kind, url, **options)
        try:
            return await collect(provider, request or request_of(kind))
        finally:
            await provider.aclose()

    return asyncio.run(run())


def answered(kind: str, *answers: Answer | Callable[[Request], Answer], request: ModelRequest | None = None, **options: Any) -> list[ModelEvent]:
    """What that wire's provider makes of these answers."""
    with Server(*answers) as server:
        return ask(kind, server.url, request, **options)


def failed(kind: str, *answers: Answer | Callable[[Request], Answer], **options: Any) -> LLMError:
    """The error that these answers lead to; the key is not in it, and it names provider and model."""
    with pytest.raises(LLMError) as caught:
        answered(kind, *answers, **options)
    assert KEY not in str(caught.value)
    assert (caught.value.provider, caught.value.model) == WIRES[kind][1:]
    return caught.value


def text_of(events: list[ModelEvent]) -> str:
    """The text of a reply."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))
