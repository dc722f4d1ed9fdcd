"""Decisions of the real local model, which is held to the menu while it writes: whatever is offered, every pick is valid at once."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import inspect
import random
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from openprogram import Runtime, decision, session
from openprogram.providers import weights
from openprogram.providers.base import ModelEvent, ModelRequest, Profile, Provider
from openprogram.providers.local import LocalProvider
from openprogram.store.memory import MemoryStore

MODEL = "smollm2-135m"


class OneStep:
    """The local model, asked for name and arguments at once: the whole menu is one schema then."""

    name = "local"

    def __init__(self, local: LocalProvider) -> None:
        self._local = local

    def profile(self, model: str) -> Profile:
        return msgspec.structs.replace(self._local.profile(model), two_step_pick=False)

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self._local.stream(request)

    async def aclose(self) -> None:
        return None


@pytest.fixture(scope="module")
def local() -> Iterator[LocalProvider]:
    weights.install()
    provider = LocalProvider()
    yield provider
    asyncio.run(provider.aclose())


@pytest.fixture(params=["in two steps", "as one schema"])
def provider(request: pytest.FixtureRequest, local: LocalProvider) -> Provider:
    """Both ways to hold a model to a menu."""
    return local if request.param == "in two steps" else OneStep(local)


class Color(enum.Enum):
    RED = "red"
    GREEN = 2


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 5


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Tree:
    name: str
    parts: list[Tree]


class Order(BaseModel):
    items: list[Item]
    urgent: bool
    note: Annotated[str, Field(max_length=40)] = ""


class Address(TypedDict):
    street: str
    number: int


ANNOTATIONS: dict[str, Any] = {
    "order": int,
    "amount": float,
    "reason": str,
    "urgent": bool,
    "tags": list[str],
    "color": Color,
    "size": Size,
    "speed": Literal["slow", "fast"],
    "limit": int | None,
    "code": int | str,
    "item": Item,
    "full_order": Order,
    "address": Address,
    "moment": dt.time,
    "day": dt.date,
    "wait": dt.timedelta,
    "tree": Tree,
    "free": dict,
    "anything": Any,
    "share": Annotated[float, Field(gt=0, lt=1)],
    "key": uuid.UUID,
    "price": decimal.Decimal,
    "percent": Annotated[int, Field(ge=0, le=100)],
    "pair": tuple[int, str],
    "counts": dict[str, int],
    "postcode": Annotated[str, Field(pattern=r"^[0-9]{5}$")],
}
FIELDS: dict[str, Any] = {
    **ANNOTATIONS,
    "why": "in a few words",
    "steps": [{"action": str, "target": str}],
    "kind": {"type": "str", "options": ["a", "b", "c"]},
    "levels": {"type": list, "items": {"options": [1, 2, 3]}},
    "nested": {"inner": {"deep": {"number": int, "flags": [bool]}}},
    "described": {"type": dict, "fields": {"x": float, "y": float}, "description": "a point"},
}
WORDS = [
    "refund",
    "wait",
    "escalate",
    "ship_order",
    "cancel",
    "close",
    'say "hi"',
    "größe",
    "retry-later",
    "car",
    "car-2",
    "cargo",
    "Yes",
    "No",
    "Not now",
    "日本",
]
NAMES = [*WORDS, *(f"option {number}" for number in range(1, 40))]
MESSAGES = [
    "My lamp arrived broken, order 1234.",
    "Where is my parcel? It should have come on 3 May.",
    "Thank you, all is well.",
    'I want to talk to a person about {"call": "refund"} and `code`!',
    "",
    "Ich möchte 3 Stück in Rot, so schnell es geht.",
]


def some_function(annotations: dict[str, Any], defaults: dict[str, Any]) -> Any:
    def option(**arguments: Any) -> dict[str, Any]:
        return arguments

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=defaults.get(name, inspect.Parameter.empty))
        for name, annotation in annotations.items()
    ]
    option.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess] - `inspect` reads it
    option.__doc__ = f"Takes {', '.join(annotations) or 'nothing'}."
    return option


def some_menu(rng: random.Random, sizes: Sequence[int]) -> dict[str, Any]:
    """Options of every kind."""
    menu: dict[str, Any] = {}
    for name in rng.sample(NAMES, rng.choice(sizes)):
        kind = rng.choice(["value", "described", "schema", "function"])
        if kind == "value":
            menu[name] = rng.choice([name.upper(), None, 7, {"status": "closed"}])
        elif kind == "described":
            menu[name] = (name, "When nothing else fits.")
        elif kind == "schema":
            menu[name] = ("Give the details.", {key: FIELDS[key] for key in rng.sample(list(FIELDS), rng.choice([1, 1, 2, 3]))})
        else:
            chosen = rng.sample(list(ANNOTATIONS), rng.choice([0, 1, 1, 2]))
            menu[name] = some_function({key: ANNOTATIONS[key] for key in chosen}, {key: None for key in chosen if rng.random() < 0.2})
    return menu


def decide(provider: Provider, seeds: range, sizes: Sequence[int]) -> None:
    """One decision a seed, each on a menu of its own; all must be valid in the first attempt."""
    store = MemoryStore()
    with Runtime(provider=provider, model=MODEL) as runtime, session("picks", store=store) as record:
        for seed in seeds:
            rng = random.Random(seed)
            menu = some_menu(rng, sizes)
            decision.make(f"A customer writes: {rng.choice(MESSAGES)}\nPick what fits.", menu, runtime=runtime, max_retries=0)
            pick = [node for node in record.nodes() if node.role == "llm"][-1].metadata["pick"]
            assert pick["name"] in menu and pick["repaired"] is False
        assert len([node for node in record.nodes() if node.role == "llm"]) == len(seeds)


def test_every_pick_is_valid_at_once(provider: Provider) -> None:
    """A sample of the campaign below."""
    decide(provider, range(5), (2, 3, 4))


@pytest.mark.soak
def test_two_hundred_picks_are_valid_at_once(provider: Provider) -> None:
    """200 decisions over menus of two to thirty options of every kind and type: 200 valid picks, no re-ask."""
    decide(provider, range(1000, 1200), (2, 2, 3, 4, 6, 30))
