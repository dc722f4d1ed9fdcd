"""What importing costs over an interpreter that imports nothing: the time before a script's first own line."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import Figure
from benchmarks._measure import interleaved, python

ROUNDS = 20


def figures() -> Iterator[Figure]:
    """The best of the runs on each side: noise only ever adds."""
    seconds = interleaved(
        {
            "bare": python("pass"),
            "library": python("from openprogram import agentic_function, Runtime, decision"),
            "clients": python("from openprogram_clients import connect"),
        },
        ROUNDS,
    )
    best = {name: min(runs) for name, runs in seconds.items()}
    yield Figure("imports.library", (best["library"] - best["bare"]) * 1000, "ms", bar=60)
    yield Figure("imports.clients", (best["clients"] - best["bare"]) * 1000, "ms", bar=60)
    yield Figure("imports.bare_python", best["bare"] * 1000, "ms")
