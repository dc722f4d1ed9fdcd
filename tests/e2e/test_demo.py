"""The main job, as a newcomer runs it: the demo on the real local model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openprogram.context.view import prompt_of
from openprogram.providers import weights
from openprogram.store.registry import open_store

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "support" / "demo.py"


@pytest.fixture(autouse=True)
def stop_the_daemon() -> Iterator[None]:
    """The daemon that the demo starts ends with the test."""
    yield
    subprocess.run([sys.executable, "-m", "openprogram_cli", "daemon", "stop"], env=dict(os.environ), capture_output=True, check=True)


@pytest.mark.timeout(300)
def test_the_demo_routes_every_message_and_records_it(tmp_path: Path) -> None:
    """24 messages, each with a valid pick, its arguments and its time; the score is said, and function, model call and picked function are in the DAG."""
    weights.install()
    done = subprocess.run([sys.executable, str(DEMO)], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    picks = re.findall(r"→ (refund|escalate|close)\((.*)\)   (right|wrong)[^\n]*   \d+\.\d s", done.stdout)
    assert len(picks) == 24
    right = sum(verdict == "right" for _, _, verdict in picks)
    assert f"{right} of 24 went where a person would send them" in done.stdout

    store = open_store()
    session = store.sessions()[0]
    nodes = store.page(session.id)
    assert {node.status for node in nodes} == {"completed"}
    assert sum(node.name == "route_message" for node in nodes) == 24
    assert sum(node.role == "llm" and "name" in node.metadata["pick"] for node in nodes) == 24, "a pick was asked again"
    picked = [node for node in nodes if node.name in ("refund", "escalate")]
    assert len(picked) == sum(route != "close" for route, _, _ in picks)
    assert all(node.caller in {other.id for other in nodes if other.name == "route_message"} for node in picked)
    first = next(node for node in nodes if node.role == "llm")
    assert "I was charged twice for order 4471" in json.dumps([list(message.blocks) for message in prompt_of(store, first)])
