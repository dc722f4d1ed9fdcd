"""Asking a real Chat Completions provider, for the tests of this folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from openprogram.context.messages import text_message
from openprogram.errors import LLMError
from openprogram.providers.base import ModelEvent, ModelRequest, TextDelta
from openprogram.providers.openai_chat import OpenAIChatProvider
from tests.support.http_server import Answer, Server, delta, stream

KEY = "sk-very-secret"
HELLO = stream(delta("Hel"), delta("lo", "stop"), {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
ASK = ModelRequest(model="m1", new=(text_message("user", "hi"),))


def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait for a condition."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)


async def collect(provider: OpenAIChatProvider, request: ModelRequest = ASK) -> list[ModelEvent]:
    """All events of one reply."""
    async with aclosing(provider.stream(request)) as events:
        return [event async for event in events]


def ask(url: str, request: ModelRequest = ASK, *, environ: Mapping[str, str] | None = None, **options: Any) -> list[ModelEvent]:
    """One request with a new provider, in a loop of its own."""

    async def run() -> list[ModelEvent]:
        provider = OpenAIChatProvider(url, KEY, environ=environ or {}, **options)
        try:
            return await collect(provider, request)
        finally:
            await provider.aclose()

    return asyncio.run(run())


def answered(*answers: Answer) -> list[ModelEvent]:
    """What a provider makes of these answers."""
    with Server(*answers) as server:
        return ask(server.url)


def failed(*answers: Answer) -> LLMError:
    """The error that these answers lead to; the key is not in it."""
    with pytest.raises(LLMError) as caught:
        answered(*answers)
    assert KEY not in str(caught.value)
    return caught.value


def text_of(events: list[ModelEvent]) -> str:
    """The text of a reply."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))
