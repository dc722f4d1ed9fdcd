"""Runs on a real daemon: whose they are, how they end, what is known of them afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openprogram_protocol import paths

from openprogram.store.sqlite import SqliteStore
from tests.daemon.support import Daemon, Raw, lives, until

Connect = Callable[..., Raw]

CLIENT = """
import sys
from pathlib import Path
import openprogram_clients

root, go, started = sys.argv[1:]
client = openprogram_clients.connect(root, start=False, trust=True)
run = client.start("wait_for", {"path": go, "started": started})
print(run.started().run_id, flush=True)
print(run.result(), flush=True)
"""


def nodes_of(client: Raw, session: str) -> list[dict[str, Any]]:
    return client.call("openprogram/dag/nodes", {"session": session})["nodes"]


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file that `wait_for` waits for."""
    return tmp_path / "go"


def begin(client: Raw, workspace: str, go: Path, run_id: str = "") -> str:
    """Start `wait_for` and return when it runs."""
    started = go.with_name(f"started-{os.urandom(4).hex()}")
    run_id = client.run(workspace, "wait_for", run_id, path=str(go), started=str(started))
    until(started.exists)
    return run_id


def test_a_run_and_what_is_kept_of_it(client: Raw, raw: Connect, workspace: Path) -> None:
    """Any client reads the result, as often as it likes; the session holds the function and the calls inside it, in its frame."""
    run_id = client.run(client.open(workspace), "work.py:outer", n=2)
    ended = client.result(run_id)
    assert (ended["state"], ended["result"], ended["function"]) == ("completed", [1, 2], "work.py:outer")
    other = raw().connect()
    assert other.result(run_id) == ended == client.result(run_id)
    entry, *inner = nodes_of(other, ended["session"])
    assert (entry["id"], entry["name"], entry["status"], entry["output"]) == (ended["node"], "outer", "completed", [1, 2])
    assert entry["metadata"]["source_hash"] == ended["sourceHash"]
    assert [(node["name"], node["caller"], node["status"]) for node in inner] == [("add", entry["id"], "completed")] * 2
    frame = other.call("openprogram/dag/frame", {"id": entry["metadata"]["frame"]})
    assert [node for node, _ in frame["log"]] == [node["id"] for node in inner]
    main = other.call("openprogram/dag/frame", {"id": entry["frame"]})
    assert main["log"] == [[entry["id"], 2]]


def test_the_result_may_be_asked_for_at_once(client: Raw, workspace: Path) -> None:
    """Start and result in one write cost one round trip; a start that is refused refuses the result for the same reason."""
    opened = client.open(workspace)
    for function, check in (("add", "result"), ("no_such_function", "error")):
        run_id = os.urandom(16).hex()
        asked = client.request("openprogram/run", {"runId": run_id, "function": function, "workspace": opened, "args": {"a": 1, "b": 2}})
        waited = client.request("openprogram/result", {"runId": run_id})
        first, second = client.reply(asked), client.reply(waited)
        assert check in first
        assert second[check] == first[check] if check == "error" else second["result"]["result"] == 3


def test_the_same_id_is_the_same_run(client: Raw, raw: Connect, workspace: Path, tmp_path: Path) -> None:
    """An id that is sent again, by anybody, while it runs and after, never runs twice; with other arguments it is a conflict."""
    opened, path = client.open(workspace), tmp_path / "counted"
    run_id = client.run(opened, "count", path=str(path))
    params = {"runId": run_id, "function": "count", "workspace": opened, "args": {"path": str(path)}}
    assert raw().connect().call("openprogram/run", params)["repeated"] is True
    assert client.result(run_id)["result"] == 1
    assert client.call("openprogram/run", params)["repeated"] is True
    assert client.result(run_id)["result"] == 1
    assert path.read_text() == "x"
    assert client.error("openprogram/run", {**params, "args": {"path": str(tmp_path / "other")}})["code"] == -32050


def test_many_at_once_with_one_id(client: Raw, workspace: Path, tmp_path: Path) -> None:
    """Twenty requests with one id, sent before any is answered, are one run."""
    opened, path = client.open(workspace), tmp_path / "counted"
    params = {"runId": "a" * 32, "function": "count", "workspace": opened, "args": {"path": str(path)}}
    ids = [client.request("openprogram/run", params) for _ in range(20)]
    replies = [client.reply(request_id)["result"] for request_id in ids]
    assert [reply.get("repeated", False) for reply in replies].count(False) == 1
    assert client.result("a" * 32)["result"] == 1
    assert path.read_text() == "x"


def test_a_session_goes_on(client: Raw, workspace: Path) -> None:
    """Runs with the same session follow each other in it; an id that cannot be one is refused, and no run is left of it."""
    opened = client.open(workspace)
    for number in range(2):
        run_id = os.urandom(16).hex()
        client.call("openprogram/run", {"runId": run_id, "function": "add", "workspace": opened, "args": {"a": number, "b": 0}, "session": "mine"})
        client.result(run_id)
    first, second = nodes_of(client, "mine")
    assert second["predecessor"] == first["id"]
    params = {"runId": "b" * 32, "function": "add", "workspace": opened, "args": {"a": 1, "b": 1}, "session": "../x"}
    assert client.error("openprogram/run", params)["code"] == -32010
    assert client.error("openprogram/result", {"runId": "b" * 32})["code"] == -32051


def test_a_function_that_fails(client: Raw, workspace: Path) -> None:
    """The error says type, message and where; the node says the same and is in the log of its session."""
    ended = client.result(client.run(client.open(workspace), "fail", message="boo"))
    assert (ended["state"], ended["error"]["type"], ended["error"]["message"]) == ("error", "ValueError", "boo")
    assert "work.py" in ended["error"]["trace"]
    (node,) = nodes_of(client, ended["session"])
    assert (node["status"], node["metadata"]["error"]["message"]) == ("error", "boo")


@pytest.mark.parametrize(("target", "near"), [("ad", "add"), ("work.py:waitfor", "wait_for"), ("none.py:add", None)])
def test_an_unknown_function_is_no_run(client: Raw, workspace: Path, target: str, near: str | None) -> None:
    """It is refused with the names that come close, and nothing is written."""
    params: dict[str, Any] = {"runId": "c" * 32, "function": target, "workspace": client.open(workspace), "args": {}}
    error = client.error("openprogram/run", params)
    assert error["code"] == -32011
    assert near is None or any(near in name for name in error["data"]["near"])
    assert client.call("openprogram/runs").get("runs", []) == []
    assert client.call("openprogram/sessions").get("sessions", []) == []


def test_p13_an_untrusted_workspace_runs_nothing(client: Raw, workspace: Path, tmp_path: Path) -> None:
    """p13: its functions are listed, a run is refused, and what its module does on import is not done; trust opens it."""
    marker = tmp_path / "imported"
    (workspace / "work.py").write_text(f"open({str(marker)!r}, 'w').close()\n{(workspace / 'work.py').read_text()}")
    opened = client.open(workspace, trusted=False)
    assert "add" in [info["name"] for info in client.call("openprogram/functions", {"workspace": opened})["functions"]]
    assert client.call("openprogram/function", {"workspace": opened, "function": "add"})["function"]["name"] == "add"
    params = {"runId": "d" * 32, "function": "add", "workspace": opened, "args": {"a": 1, "b": 2}}
    error = client.error("openprogram/run", params)
    assert error["code"] == -32061
    assert str(workspace) in error["message"]
    assert not marker.exists()
    assert client.call("openprogram/workspace/trust", {"workspace": opened})["trusted"] is True
    client.call("openprogram/run", params)
    assert client.result("d" * 32)["result"] == 3
    assert marker.exists()


def test_p01_one_client_leaves_another_waits(client: Raw, raw: Connect, workspace: Path, go: Path) -> None:
    """p01: B connects, runs and leaves, sends exit or just goes; A's run and A's reply are as if B had never been."""
    opened = client.open(workspace)
    run_id = begin(client, opened, go)
    waiting = client.request("openprogram/result", {"runId": run_id})
    for leave in ("exit", "close"):
        other = raw().connect()
        assert other.result(other.run(opened, "add", a=1, b=1))["result"] == 2
        other.notify("exit") if leave == "exit" else other.close()
    until(lambda: len(client.call("openprogram/status")["clients"]) == 1)
    go.write_text("done")
    assert client.reply(waiting)["result"]["result"] == "done"


def test_a_killed_client_leaves_its_run(daemon: Daemon, client: Raw, workspace: Path, go: Path) -> None:
    """The process that asked is killed: the run goes on and anybody reads its result."""
    started = go.with_name("started")
    command = [sys.executable, "-c", CLIENT, str(workspace), str(go), str(started)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        until(started.exists)
        process.kill()
    until(lambda: len(client.call("openprogram/status")["clients"]) == 1)
    go.write_text("all the same")
    assert client.result(run_id)["result"] == "all the same"


def test_waiting_is_cancelled_the_run_is_not(client: Raw, raw: Connect, workspace: Path, go: Path) -> None:
    """``$/cancelRequest`` ends one client's waiting with one reply; others wait on; a timeout tells how the run is meanwhile."""
    run_id = begin(client, client.open(workspace), go)
    other = raw().connect()
    there = other.request("openprogram/result", {"runId": run_id})
    here = client.request("openprogram/result", {"runId": run_id})
    client.notify("$/cancelRequest", {"id": here})
    assert client.reply(here)["error"]["code"] == -32800
    for timeout in (0, 0.05):
        assert client.call("openprogram/result", {"runId": run_id, "timeoutS": timeout})["state"] == "running"
    assert [run["state"] for run in client.call("openprogram/runs", {"active": True})["runs"]] == ["running"]
    go.write_text("x")
    assert other.reply(there)["result"]["state"] == "completed"
    assert client.others == []


def test_cancel_says_what_happened(client: Raw, raw: Connect, workspace: Path, go: Path) -> None:
    """A run that is cancelled ends as cancelled, for whoever waits too; what has ended is not cancelled any more."""
    opened = client.open(workspace)
    run_id = begin(client, opened, go)
    other = raw().connect()
    waiting = other.request("openprogram/result", {"runId": run_id})
    assert client.call("openprogram/cancel", {"runId": run_id}) == {"outcome": "cancelled", "state": "cancelled"}
    assert other.reply(waiting)["result"]["state"] == "cancelled"
    assert client.call("openprogram/cancel", {"runId": run_id}) == {"outcome": "ended", "state": "cancelled"}
    (node,) = nodes_of(client, client.result(run_id)["session"])
    assert node["status"] == "cancelled"
    done = client.run(opened, "add", a=1, b=1)
    client.result(done)
    assert client.call("openprogram/cancel", {"runId": done}) == {"outcome": "ended", "state": "completed"}
    assert client.error("openprogram/cancel", {"runId": "0" * 32})["code"] == -32051


def test_p08_p25_status_answers_while_functions_block_and_print(client: Raw, workspace: Path, go: Path) -> None:
    """p08, p25: health, lists and results of other runs come at once while one function blocks and one prints without end."""
    opened = client.open(workspace)
    begin(client, opened, go)
    printing = go.with_name("printing")
    client.run(opened, "print_for_ever", started=str(printing))
    until(printing.exists)
    for _ in range(20):
        began = time.monotonic()
        assert client.call("openprogram/status")["runs"] == 2
        assert time.monotonic() - began < 1.0
    assert client.result(client.run(opened, "add", a=1, b=2))["result"] == 3


def test_p14_p11_the_daemon_is_killed(start_daemon: Callable[..., Daemon], raw: Connect, workspace: Path, go: Path) -> None:
    """p14, p11: a waiting client hears within a second; the next daemon starts, knows what was acknowledged, and the run reads interrupted, is not run again
    and cannot be cancelled; no worker is left.
    """
    first = start_daemon().ready()
    client = raw().connect()
    opened = client.open(workspace)
    done = client.result(client.run(opened, "outer", n=1))
    run_id = begin(client, opened, go)
    running = client.call("openprogram/result", {"runId": run_id, "timeoutS": 0})
    client.request("openprogram/result", {"runId": run_id})
    below = first.descendants()
    assert running["pid"] in below
    first.kill()
    began = time.monotonic()
    with pytest.raises((EOFError, ConnectionError)):
        client.get()
    assert time.monotonic() - began < 1.0
    until(lambda: not any(lives(pid) for pid in below))
    start_daemon().ready()
    again = raw().connect()
    assert [(run["runId"], run["state"]) for run in again.call("openprogram/runs")["runs"]] == [(run_id, "interrupted"), (done["runId"], "completed")]
    assert again.result(done["runId"]) == done
    (node,) = nodes_of(again, running["session"])
    assert node["status"] == "interrupted"
    assert again.call("openprogram/cancel", {"runId": run_id}) == {"outcome": "ended", "state": "interrupted"}
    go.write_text("x")
    params = {"runId": run_id, "function": "wait_for", "workspace": again.open(workspace), "args": node["input"]}
    assert again.call("openprogram/run", params)["repeated"] is True
    assert again.result(run_id)["state"] == "interrupted"


def test_what_is_announced_is_committed(client: Raw, workspace: Path) -> None:
    """Whoever hears of the end of a run, by event or by reply, finds it in the file, from any process."""
    opened = client.open(workspace)
    client.call("openprogram/subscribe", {"topics": ["run"]})
    store = SqliteStore(paths.store_file())
    try:
        for number in range(20):
            run_id = os.urandom(16).hex()
            params = {"runId": run_id, "function": "outer", "workspace": opened, "args": {"n": 2}, "session": f"s{number}"}
            asked = client.request("openprogram/run", params)
            while client.event("run")["kind"] != "finished":
                pass
            assert [node.status for node in store.page(f"s{number}")] == ["completed"] * 3
            client.reply(asked)
    finally:
        store.close()


def test_deadline(client: Raw, workspace: Path, go: Path) -> None:
    """A run that takes longer than its deadline is ended with an error that says so."""
    run_id = os.urandom(16).hex()
    params = {"runId": run_id, "function": "wait_for", "workspace": client.open(workspace), "args": {"path": str(go)}, "deadlineS": 0.3}
    client.call("openprogram/run", params)
    ended = client.result(run_id)
    assert (ended["state"], ended["error"]["type"]) == ("error", "TimeoutError")


def test_the_environment_is_the_workspaces(start_daemon: Callable[..., Daemon], raw: Connect, workspace: Path) -> None:
    """A function sees the environment that its workspace was opened with, never that of whoever started the daemon; two of one folder are kept apart."""
    start_daemon(SOME_API_KEY="of the daemon").ready()
    client = raw().connect()
    bare, own = client.open(workspace), client.open(workspace, env={"SOME_API_KEY": "mine"})
    assert bare != own
    assert [client.result(client.run(opened, "environment", name="SOME_API_KEY")).get("result") for opened in (bare, own)] == [None, "mine"]


ODD = """
from openprogram import agentic_function


@agentic_function
def odd():
    return {"score": float("nan"), "least": [float("-inf")], "class": 2**70}
"""


def test_p18_what_json_lacks_is_written_in_its_typed_form(client: Raw, workspace: Path) -> None:
    """p18: the reply, the event and the node of a function that returns NaN and infinity are JSON as any reader understands it."""
    (workspace / "odd.py").write_text(ODD)
    client.call("openprogram/subscribe", {"topics": ["dag"]})
    ended = client.result(client.run(client.open(workspace), "odd"))
    form = {"score": {"$type": "float", "value": "nan"}, "least": [{"$type": "float", "value": "-inf"}], "class": 2**70}
    assert ended["result"] == form
    assert [node["output"] for node in nodes_of(client, ended["session"])] == [form]
    assert [client.event("dag")["node"].get("output") for _ in range(2)] == [None, form]
