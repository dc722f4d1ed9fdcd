"""What is sent and not waited for: written in order, seen by whatever is asked behind it, carried out when the sender has gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.support import Raw, until

Connect = Callable[..., Raw]

# The model is given far less time than it needs to read the prompt alone.
ABANDONS = '''
from openprogram import agentic_function
from openprogram.errors import OpenProgramError


@agentic_function
def abandons(runtime=None) -> str:
    """Give a reply up long before its end."""
    try:
        return runtime.exec("word " * 3000, timeout_s=1.5)
    except OpenProgramError as error:
        return type(error).__name__
'''


@pytest.fixture
def frame(client: Raw) -> str:
    """The main frame of the session ``s``."""
    return client.call("openprogram/session/create", {"id": "s"})["frame"]


def node(number: int, frame: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"n{number:05}", "session": "s", "role": "code", "name": "f", "frame": frame, "input": {"x": number}, **fields}


def close(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": f"n{number:05}", "status": "completed", "output": number, "endedAt": 2.0, "enters": True, **fields}


def test_what_is_asked_behind_a_post_sees_it(client: Raw, frame: str) -> None:
    """Nodes are opened and closed by notifications; no reply comes for them, and every later reply is behind their commit."""
    for number in range(50):
        client.notify("openprogram/dag/opened", {"node": node(number, frame)})
        assert client.call("openprogram/dag/node", {"id": f"n{number:05}"})["node"]["status"] == "running"
        client.notify("openprogram/dag/closed", close(number))
        assert client.call("openprogram/dag/node", {"id": f"n{number:05}"})["node"]["output"] == number
    log = client.call("openprogram/dag/frame", {"id": frame})["log"]
    assert log == [[f"n{number:05}", 0] for number in range(50)]
    assert client.others == []


def test_who_posts_and_goes_is_heard(client: Raw, raw: Connect, frame: str) -> None:
    """A client that sends a thousand nodes and is gone at once loses none; those it left open are interrupted."""
    gone = raw().connect()
    for number in range(1000):
        gone.notify("openprogram/dag/opened", {"node": node(number, frame)})
        if number % 2:
            gone.notify("openprogram/dag/closed", close(number))
    gone.close()
    until(lambda: len(client.call("openprogram/status")["clients"]) == 1)
    nodes = client.call("openprogram/dag/nodes", {"session": "s", "limit": 1000})["nodes"]
    assert [found["id"] for found in nodes] == [f"n{number:05}" for number in range(1000)]
    until(lambda: client.call("openprogram/dag/node", {"id": "n00998"})["node"]["status"] != "running")
    assert [found["status"] for found in client.call("openprogram/dag/nodes", {"session": "s", "limit": 4})["nodes"]] == ["interrupted", "completed"] * 2


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("openprogram/dag/opened", {"node": {"id": "x", "session": "none", "role": "code", "name": "f", "frame": "none"}}),
        ("openprogram/dag/closed", {"id": "none", "status": "completed"}),
        ("openprogram/dag/opened", {"node": 5}),
        ("openprogram/dag/opened", None),
    ],
)
def test_a_post_that_fails_disturbs_nobody(client: Raw, frame: str, method: str, params: Any) -> None:
    """What cannot be written is left out; what was sent before and behind it is written."""
    client.notify("openprogram/dag/opened", {"node": node(1, frame)})
    client.notify(method, params)
    client.notify("openprogram/dag/opened", {"node": node(2, frame)})
    assert [found["id"] for found in client.call("openprogram/dag/nodes", {"session": "s"})["nodes"]] == ["n00001", "n00002"]
    assert client.others == []


def test_large_posts_keep_their_order(client: Raw, frame: str) -> None:
    """A node of some megabytes is decoded beside the loop, and what was sent behind it still comes behind it."""
    client.notify("openprogram/dag/opened", {"node": node(1, frame, input={"text": "x" * 3_000_000})})
    client.notify("openprogram/dag/closed", close(1))
    client.notify("openprogram/dag/opened", {"node": node(2, frame)})
    found = client.call("openprogram/dag/nodes", {"session": "s"})["nodes"]
    assert [(one["id"], one["status"]) for one in found] == [("n00001", "completed"), ("n00002", "running")]


def test_a_worker_loses_no_node(client: Raw, workspace: Path) -> None:
    """Three thousand calls, none of which waits for the daemon, are all there when the run has ended."""
    ended = client.result(client.run(client.open(workspace), "outer", n=3000))
    assert ended["state"] == "completed"
    after, seen = 0, 0
    while page := client.call("openprogram/dag/nodes", {"session": ended["session"], "after": after}).get("nodes"):
        assert {found["status"] for found in page} == {"completed"}
        after, seen = page[-1]["seq"], seen + len(page)
    assert seen == 3001


def test_a_worker_that_stops_reading_stops_the_model(client: Raw, workspace: Path) -> None:
    """A reply that a function gave up is given up in the daemon, so that no model goes on writing for nobody."""
    (workspace / "abandons.py").write_text(ABANDONS)
    params: dict[str, Any] = {"runId": "e" * 32, "function": "abandons", "workspace": client.open(workspace), "args": {}, "model": "local:"}
    client.call("openprogram/run", params)
    ended = client.result("e" * 32)
    assert (ended["state"], ended["result"]) == ("completed", "LLMError"), ended
    until(lambda: [model["users"] for model in client.call("openprogram/status")["models"]] == [0], timeout_s=3.0)
