"""What every provider promises, over every way of `ways.WAYS`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from openprogram.context.messages import text_message
from openprogram.providers import weights
from openprogram.providers.base import Constraint, Finish, ModelEvent, ModelRequest, ModelSettings, Profile, Provider, TextDelta
from tests.openprogram.providers.ways import WAYS


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Provider, str]]:
    """A provider and the name of a model that it has."""
    if "local" in request.param:
        weights.install()
    with WAYS[request.param](tmp_path) as (provider, model):
        yield provider, model
        asyncio.run(provider.aclose())


def asked(model: str, **fields: Any) -> ModelRequest:
    """A small request."""
    settings = ModelSettings(max_output_tokens=24, temperature=0)
    return ModelRequest(model=model, new=(text_message("user", "Say hello."),), settings=settings, **fields)


def events_of(provider: Provider, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
    """The stream, which can be closed."""
    return cast("AsyncGenerator[ModelEvent]", provider.stream(request))


async def replied(provider: Provider, request: ModelRequest) -> list[ModelEvent]:
    async with aclosing(events_of(provider, request)) as events:
        return [event async for event in events]


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_it_is_a_provider(way: tuple[Provider, str]) -> None:
    """It has every part of the seam, a name that model names can begin with, and a profile for its model."""
    provider, model = way
    assert isinstance(provider, Provider)
    assert provider.name.isidentifier()
    assert isinstance(provider.profile(model), Profile)


def test_a_reply_is_text_and_one_end(way: tuple[Provider, str]) -> None:
    """Pieces of text come first; exactly one Finish comes last."""
    provider, model = way
    events = asyncio.run(replied(provider, asked(model)))
    assert text_of(events)
    assert [isinstance(event, Finish) for event in events] == [*[False] * (len(events) - 1), True]


def test_any_loop_may_ask(way: tuple[Provider, str]) -> None:
    """One provider serves loops one after another, and several requests at once on one loop."""
    provider, model = way

    async def several() -> list[list[ModelEvent]]:
        return list(await asyncio.gather(*[replied(provider, asked(model)) for _ in range(3)]))

    for _ in range(2):
        assert all(text_of(events) for events in asyncio.run(several()))


def test_a_stream_may_be_left_early(way: tuple[Provider, str]) -> None:
    """Closing the stream after its first event is quiet, and the next request is answered."""
    provider, model = way

    async def leave() -> None:
        async with aclosing(events_of(provider, asked(model))) as events:
            await anext(events)

    asyncio.run(leave())
    assert text_of(asyncio.run(replied(provider, asked(model))))


def test_a_cancelled_request_ends(way: tuple[Provider, str]) -> None:
    """Cancelling the task that asks ends it, unless it had its reply already, and the next request is answered."""
    provider, model = way

    async def cancel() -> None:
        task = asyncio.ensure_future(replied(provider, asked(model)))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert task.done()

    asyncio.run(cancel())
    assert text_of(asyncio.run(replied(provider, asked(model))))


def test_a_constraint_is_kept_by_who_promises_it(way: tuple[Provider, str]) -> None:
    """A provider whose profile promises schemas answers with JSON that fits; a grammar likewise."""
    provider, model = way
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    profile = provider.profile(model)
    if profile.schema:
        text = text_of(asyncio.run(replied(provider, asked(model, constraint=Constraint(schema=schema)))))
        assert json.loads(text)["n"] in (1, 2)
    if profile.grammar:
        text = text_of(asyncio.run(replied(provider, asked(model, constraint=Constraint(grammar='root ::= "ja" | "nein"')))))
        assert text in ("ja", "nein")
    assert profile.schema == ("local" in provider.name)


def test_closing_may_be_repeated(way: tuple[Provider, str]) -> None:
    """aclose twice is the same as once, on any loop."""
    provider, model = way
    assert text_of(asyncio.run(replied(provider, asked(model))))
    asyncio.run(provider.aclose())
    asyncio.run(provider.aclose())
