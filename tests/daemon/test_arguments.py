"""Words that a daemon's worker reads as arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.support import Raw

SHOP = """
from openprogram import agentic_function


@agentic_function
def total(prices: list[float]) -> float:
    return sum(prices)


@agentic_function
def half(x: float) -> float:
    return x / 2


@agentic_function
def anything(x):
    return x
"""


@pytest.mark.parametrize(
    ("function", "name", "text"),
    [
        ("total", "prices", "[1e400, NaN]"),
        ("total", "prices", '["inf"]'),
        ("half", "x", "inf"),
        ("half", "x", "1e400"),
        ("half", "x", "NaN"),
        ("anything", "x", '{"deep": [-Infinity]}'),
    ],
)
def test_a_number_that_json_lacks_is_refused_by_name(client: Raw, workspace: Path, function: str, name: str, text: str) -> None:
    """Where words are read, so that no run is started for them, naming the parameter; a finite number of the same function is read."""
    (workspace / "shop.py").write_text(SHOP)
    asked = {"workspace": client.open(workspace), "function": f"shop.py:{function}", "command": "run"}
    error = client.error("openprogram/arguments", {**asked, "words": [{"name": name, "text": text}]})
    assert f"argument {name}=" in error["message"] and "finite" in error["message"]
    finite = "[1.5]" if function == "total" else "1.5"
    read = client.call("openprogram/arguments", {**asked, "words": [{"name": name, "text": finite}]})
    assert read["args"] == {name: [1.5] if function == "total" else 1.5}
