"""What a decision costs beside the least that could be done with its reply, and what replies cost that were made to be slow to read.

The yardstick of a decision is `json.loads` and a `jsonschema` validator that was built before, on the same reply. What it does not do: make the menu and show
it, send a request, call the option with the annotated types.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jsonschema

from benchmarks import Figure
from benchmarks._measure import interleaved
from openprogram import Runtime, agentic_function, decision
from openprogram.agentic_programming.decision.menu import schema_of
from openprogram.agentic_programming.decision.options import build_menu
from openprogram.providers.scripted import ScriptedProvider

ROUNDS = 300
TIMES_BARE = 5
DECORATED = 1000
PICK = '{"call": "skip", "args": {}}'
PROSE = 'Well, "let me see" {as it were}, it isn\'t [1] so easy. '
SLOW = {
    "open_braces_200_kB": "{" * 200_000,
    "open_objects_40000": '{"call": "skip", ' * 40_000,
    "prose_1_MB": PROSE * (1_000_000 // len(PROSE)) + PICK,
}


def figures() -> Iterator[Figure]:
    """The best of the runs on each side: noise only ever adds."""
    for count in (4, 50):
        best, bare = decision_and_bare(count)
        yield Figure(f"decision.{count}_options", best / bare, "x bare", bar=TIMES_BARE)
        yield Figure(f"decision.{count}_options_alone", best * 1e6, "us")
    yield Figure("decision.decorate", decorating() * 1e6, "us", bar=100)
    menu = build_menu(["skip", "save"])
    yield Figure("decision.read_wrong_picks_10000", _best(lambda: _read('{"call": "fly"} ' * 10_000, menu), 5) * 1000, "ms")
    for name, reply in SLOW.items():
        seconds = _best(lambda reply=reply: _read(reply, menu), 10)
        yield Figure(f"decision.read_{name}", seconds * 1000, "ms", bar=50)


def decision_and_bare(count: int) -> tuple[float, float]:
    """Seconds of one decision among ``count`` options, and of the yardstick."""
    options = {**{f"option_{number}": some_function(number) for number in range(count - 2)}, "done": "DONE", "plan": ("Plan.", {"steps": [{"do": str}]})}
    reply = json.dumps({"call": f"option_{count - 3}", "args": {"order": "A-1", "amount": 2.5, "tags": ["x", "y"]}})
    validator: Any = jsonschema.Draft202012Validator(schema_of(build_menu(options)))
    with Runtime(provider=ScriptedProvider([reply], repeat=True, keep=False)) as runtime:
        seconds = interleaved(
            {
                "decision": lambda: decision.make("Pick one.", options, runtime=runtime),
                "bare": lambda: validator.validate(json.loads(reply)),
            },
            ROUNDS,
        )
    return min(seconds["decision"]), min(seconds["bare"])


def some_function(number: int) -> Callable[..., str]:
    """An option with three parameters."""

    def option(order: str, amount: float = 0.0, tags: Sequence[str] | None = None) -> str:
        """Do one thing with an order."""
        return order

    option.__name__ = option.__qualname__ = f"option_{number}"
    return option


def decorating() -> float:
    """Seconds to decorate one function of a module that defines many."""
    functions = [some_function(number) for number in range(DECORATED)]
    start = time.perf_counter()
    for function in functions:
        agentic_function(function)
    return (time.perf_counter() - start) / DECORATED


def _read(reply: str, menu: Any) -> None:
    try:
        decision.parse_args(reply, menu, max_retries=0)
    except (decision.DecisionError, RuntimeError):
        return  # the first two hold no pick


def _best(work: Callable[[], object], rounds: int) -> float:
    return min(interleaved({"it": work}, rounds)["it"])
