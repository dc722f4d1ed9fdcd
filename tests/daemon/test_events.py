"""Events: who asked for them gets them, in order and once; what cannot be had any more is a gap, never silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openprogram_daemon import events as module
from openprogram_daemon.events import Events, Key, Subscription
from openprogram_daemon.outbox import Gap, Text
from openprogram_protocol import admin
from openprogram_protocol.rpc import PROTOCOL

from tests.daemon.support import Daemon, Raw, until

Connect = Callable[..., Raw]


def finished(client: Raw) -> list[dict[str, Any]]:
    """The events of runs up to the next end."""
    seen = [client.event("run")]
    while seen[-1]["kind"] != "finished":
        seen.append(client.event("run"))
    return seen


def nothing_came(client: Raw) -> bool:
    """What was sent by now is here once a reply is."""
    client.call("openprogram/status")
    return not any("method" in message for message in client.others)


def test_a_run_is_told_to_its_subscribers_only(client: Raw, raw: Connect, workspace: Path) -> None:
    """Started, its output in order, finished; numbers rise; whoever subscribed to nothing or to another run hears nothing."""
    silent, other = raw().connect(), raw().connect()
    other.call("openprogram/subscribe", {"topics": ["run"], "runId": "0" * 32})
    answer = client.call("openprogram/subscribe", {"topics": ["run"]})
    run_id = client.run(client.open(workspace), "say", text="é 😀", times=3)
    seen = finished(client)
    assert [event["kind"] for event in seen if event["kind"] != "output"] == ["started", "finished"]
    assert "".join(event["data"] for event in seen if event["kind"] == "output") == "é 😀\n" * 3
    assert {event["runId"] for event in seen} == {run_id}
    numbers = [event["seq"] for event in seen]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > answer.get("seq", 0)
    assert seen[-1]["data"]["state"] == "completed"
    assert nothing_came(silent)
    assert nothing_came(other)


def test_nodes_of_others_appear_as_they_are_written(client: Raw, raw: Connect, workspace: Path) -> None:
    """A session is followed from another connection, from its first node to its last, whoever writes; another session's nodes are not told."""
    follower = raw().connect()
    follower.call("openprogram/subscribe", {"topics": ["dag"], "session": "mine"})
    opened = client.open(workspace)
    for session in ("others", "mine"):
        run_id = ("a" if session == "mine" else "b") * 32
        client.call("openprogram/run", {"runId": run_id, "function": "outer", "workspace": opened, "args": {"n": 1}, "session": session})
        client.result(run_id)
    frame = client.call("openprogram/session/create", {"id": "mine"})["frame"]
    client.call("openprogram/dag/append", {"node": {"id": "n", "session": "mine", "role": "user", "name": "said", "frame": frame, "status": "completed"}})
    told = [follower.event("dag") for _ in range(5)]
    assert [(event["node"]["name"], event["node"].get("status", "running")) for event in told] == [
        ("outer", "running"),
        ("add", "running"),
        ("add", "completed"),
        ("outer", "completed"),
        ("said", "completed"),
    ]
    assert {event["session"] for event in told} == {"mine"}
    assert nothing_came(follower)


def test_a_large_node_is_announced_without_what_is_large(client: Raw) -> None:
    """Nobody is sent a megabyte that was not asked for; the node itself has it."""
    frame = client.call("openprogram/session/create", {"id": "s"})["frame"]
    client.call("openprogram/subscribe", {"topics": ["dag"]})
    node = {"id": "n", "session": "s", "role": "code", "name": "f", "frame": frame, "input": {"x": "y" * 1_000_000}, "output": "small"}
    client.call("openprogram/dag/append", {"node": node})
    told = client.event("dag")["node"]
    assert (told.get("input"), told["output"]) == (None, "small")
    assert len(client.call("openprogram/dag/node", {"id": "n"})["node"]["input"]["x"]) == 1_000_000


def test_functions_are_told_as_files_change(client: Raw, workspace: Path) -> None:
    """A save brings the whole set of its file, a syntax error its place, and a removal the empty set."""
    client.open(workspace)
    client.call("openprogram/subscribe", {"topics": ["functions"]})
    (workspace / "more.py").write_text("from openprogram import agentic_function\n\n@agentic_function\ndef extra(): ...\n")
    event = client.event("functions")
    assert (event["file"], [info["name"] for info in event["functions"]]) == ("more.py", ["extra"])
    (workspace / "more.py").write_text("def broken(:\n")
    event = client.event("functions")
    assert event["error"]["line"] == 1
    (workspace / "more.py").unlink()
    event = client.event("functions")
    assert (event["file"], event.get("functions", []), event.get("error")) == ("more.py", [], None)


def test_status_tells_who_comes_and_goes_and_of_the_end(daemon: Daemon, client: Raw, raw: Connect) -> None:
    """A client that comes, one that leaves and the beginning of the end are told, each with a number."""
    client.call("openprogram/subscribe", {"topics": ["status"]})
    other = raw().connect()
    assert client.event("status")["kind"] == "clients"
    other.close()
    assert client.event("status")["kind"] == "clients"
    assert len(client.call("openprogram/status")["clients"]) == 1
    client.call("openprogram/stop")
    event = client.event("status")
    assert (event["kind"], "interrupted" in event["message"]) == ("stopping", True)


def test_each_event_comes_once_for_several_subscriptions(client: Raw, workspace: Path) -> None:
    """Two subscriptions of one connection that want the same are one message; ending one leaves the other, and nobody can end another's."""
    first = client.call("openprogram/subscribe", {"topics": ["run"]})
    second = client.call("openprogram/subscribe", {"topics": ["run", "status"]})
    assert first["subscription"] != second["subscription"]
    opened = client.open(workspace)
    client.run(opened, "add", a=1, b=1)
    assert [event["kind"] for event in finished(client)] == ["started", "finished"]
    client.call("openprogram/unsubscribe", {"subscription": first["subscription"]})
    client.run(opened, "add", a=1, b=1)
    assert [event["kind"] for event in finished(client)] == ["started", "finished"]
    client.call("openprogram/unsubscribe", {"subscription": second["subscription"]})
    client.call("openprogram/unsubscribe", {"subscription": "s999"})
    client.result(client.run(opened, "add", a=1, b=1))
    assert nothing_came(client)


def test_nobody_ends_the_subscription_of_another(client: Raw, raw: Connect, workspace: Path) -> None:
    """The name of a subscription is of use to its own connection only."""
    name = client.call("openprogram/subscribe", {"topics": ["run"]})["subscription"]
    raw().connect().call("openprogram/unsubscribe", {"subscription": name})
    client.run(client.open(workspace), "add", a=1, b=1)
    assert finished(client)


def test_since_goes_on_where_a_connection_was_lost(client: Raw, raw: Connect, workspace: Path) -> None:
    """A client that comes back gets what it missed, once, before what is new; with a number of another life, or one too old, it is told of a gap."""
    answer = client.call("openprogram/subscribe", {"topics": ["run"]})
    opened = client.open(workspace)
    client.run(opened, "say", text="one")
    seen = finished(client)
    lost, back = client, raw().connect()
    back.open(workspace)
    missed = lost.run(opened, "say", text="two")
    lost.result(missed)
    again = back.call("openprogram/subscribe", {"topics": ["run"], "since": {"epoch": answer["epoch"], "seq": seen[-1]["seq"]}})
    assert (again["epoch"], again.get("gap", False)) == (answer["epoch"], False)
    told = finished(back)
    assert [event["data"] for event in told if event["kind"] == "output"] == ["two\n"]
    assert {event["runId"] for event in told} == {missed}
    assert told[-1]["seq"] <= again["seq"]
    assert nothing_came(back)
    elsewhere = raw().connect().call("openprogram/subscribe", {"topics": ["run"], "since": {"epoch": "another", "seq": 0}})
    assert elsewhere["gap"] is True


def test_since_reaches_four_megabytes_back(client: Raw, raw: Connect, workspace: Path, tmp_path: Path) -> None:
    """A run that printed more than is kept is replayed from where it is kept, and the answer says that something is missing."""
    answer = client.call("openprogram/subscribe", {"topics": ["run"]})
    run_id = client.run(client.open(workspace), "print_for_ever", started=str(tmp_path / "started"))
    length = 0
    while length < 1.2 * module.RUN_RING:
        length += len(event["data"]) if (event := client.event("run"))["kind"] == "output" else 0
    client.call("openprogram/cancel", {"runId": run_id})
    late = raw().connect()
    again = late.call("openprogram/subscribe", {"topics": ["run"], "since": {"epoch": answer["epoch"], "seq": answer.get("seq", 0)}})
    assert again["gap"] is True
    told = finished(late)
    assert module.RUN_RING / 2 < sum(len(event["data"]) for event in told if event["kind"] == "output") <= module.RUN_RING


def test_since_a_time_when_nobody_asked_for_a_topic(client: Raw, workspace: Path) -> None:
    """Nodes are numbered once somebody asks for them: whoever asks since before is told of a gap."""
    answer = client.call("openprogram/subscribe", {"topics": ["run"]})
    client.result(client.run(client.open(workspace), "add", a=1, b=1))
    since = {"epoch": answer["epoch"], "seq": answer.get("seq", 0)}
    assert client.call("openprogram/subscribe", {"topics": ["dag"], "since": since})["gap"] is True


@pytest.mark.parametrize("topics", [["run", "ask"], ["*"]])
def test_a_topic_that_does_not_exist_is_named(client: Raw, topics: list[str]) -> None:
    """The error lists those there are, and nothing is subscribed."""
    error = client.error("openprogram/subscribe", {"topics": topics})
    assert (error["code"], "run, dag, functions, status" in error["message"]) == (-32602, True)


class Receiver:
    """Takes everything."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def event(self, body: bytes, gap: Gap) -> None:
        self.bodies.append(body)

    def text(self, text: Text, gap: Gap) -> None:
        self.bodies.append(text.text.encode())


def test_what_is_kept_of_all_runs_is_bounded() -> None:
    """Fifty runs that printed four megabytes each do not add up: the ones used least are forgotten, and whoever asks for them is told of a gap."""
    events = Events("e")
    line = "x" * 1_000_000
    for number in range(50):
        for _ in range(4):
            events.publish(Key("run", str(number)), lambda seq, about=str(number): admin.RunEvent(seq=seq, run_id=about, kind="output", data=line))
    since = admin.Since(epoch="e", seq=0)
    receiver = Receiver()
    assert events.subscribe(receiver, Subscription(frozenset({"run"}), {}), since).gap is True
    assert 30_000_000 < sum(map(len, receiver.bodies)) <= module.MOST_BYTES
    newest = Receiver()
    wanted = Subscription(frozenset({"run"}), {"run": "49"})
    assert events.subscribe(newest, wanted, admin.Since(epoch="e", seq=196)).gap is False
    assert len(newest.bodies) == 4


def test_a_connection_that_leaves_takes_its_subscriptions_along(client: Raw, raw: Connect, workspace: Path) -> None:
    """Events of a run whose follower is gone go nowhere, and disturb nobody."""
    opened = client.open(workspace)
    for _ in range(5):
        gone = raw().connect()
        gone.call("openprogram/subscribe", {"topics": ["run", "dag", "status", "functions"]})
        gone.close()
    until(lambda: len(client.call("openprogram/status")["clients"]) == 1)
    assert client.result(client.run(opened, "add", a=1, b=2))["result"] == 3


def test_events_need_an_open_connection(daemon: Daemon, raw: Connect) -> None:
    """Before the gate nothing can be subscribed to."""
    outside = raw()
    assert outside.error("openprogram/subscribe", {"topics": ["run"]})["code"] == -32002
    outside.call("openprogram/connect", {"protocol": PROTOCOL})
    assert outside.call("openprogram/subscribe", {"topics": ["run"]})["subscription"]
