"""The client against a real daemon: what a script sees of runs, functions, sessions and the daemon's end."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openprogram_clients import Client, ConnectionLost, NotRunningError, RemoteError, RunFailed
from openprogram_clients import connect as plain_connect
from openprogram_clients.events import Events
from openprogram_protocol.admin import DagEvent, RunEvent
from openprogram_protocol.errors import ErrorCode

from tests.clients.support import WAIT_S, Home
from tests.daemon.support import lives, until

Connect = Callable[..., Client]


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file that `wait_for` waits for."""
    return tmp_path / "go"


def begin(client: Client, go: Path, **options: Any) -> Any:
    """A run of `wait_for` that runs."""
    started = go.with_name(f"started-{os.urandom(4).hex()}")
    run = client.start("wait_for", {"path": str(go), "started": str(started)}, **options)
    until(started.exists)
    return run


VALUES: dict[str, Any] = {
    "none": None,
    "text": '漢字 😀 é \u2028 \0 "\\',
    "keys": {"class": 1, "a-b": [2.5, True], "_x": {}, "": "empty", "type_name": None},
    "numbers": [0, -1, 2**53, 2**64, -(2**63), 1e-300, 1.7976931348623157e308],
    "large": "é" * 3_000_000,
    "long": list(range(100_000)),
    "deep": json.loads("[" * 90 + "]" * 90),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_as_they_went(client: Client, name: str) -> None:
    """Arguments and results of every JSON kind, small, large and deep, are unchanged, at once and when the run is read again."""
    run = client.start("echo", {"value": VALUES[name]})
    assert run.result(WAIT_S) == VALUES[name]
    assert client.get(run.id).result(WAIT_S) == VALUES[name]


def test_names_may_be_of_any_script(client: Client) -> None:
    """Functions and folders with other letters are found and called."""
    assert client.run("größe", text="漢字") == 2
    assert client.run("work.py:größe", text="😀") == 1


@pytest.mark.parametrize("value", [float("nan"), {"a": [1, float("-inf")]}, object(), {1: b"\xff", "x": {1, 2, object()}}, "\ud800"])
def test_what_json_cannot_hold_is_refused_here(client: Client, value: Any) -> None:
    """The caller's own mistake is raised at once, starts nothing and leaves nothing behind, and the client goes on."""
    for watch in (False, True):
        with pytest.raises((TypeError, ValueError)):
            client.start("echo", {"value": value}, watch=watch)
    assert client.run("add", a=1, b=2) == 3
    assert [run.function for run in client.runs()] == ["work.py:add"]


def test_a_run_that_fails(client: Client) -> None:
    """RunFailed says type and message and holds the whole description; asking again says the same."""
    run = client.start("fail", {"message": "böse"})
    for _ in range(2):
        with pytest.raises(RunFailed, match=r"work\.py:fail failed: ValueError: böse") as caught:
            run.result(WAIT_S)
        assert caught.value.info.state == "error"
        assert "work.py" in (caught.value.info.error or {})["trace"]


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [("no_such", ErrorCode.UNKNOWN_TARGET, "no_such"), ("work.py:ad", ErrorCode.UNKNOWN_TARGET, "add"), ("none.py:add", ErrorCode.UNKNOWN_TARGET, "none.py")],
)
def test_a_start_that_is_refused_says_why(client: Client, function: str, code: int, words: str) -> None:
    """The reason of the refusal is raised wherever one waits, not that there is no such run."""
    for wait in ("started", "result", "events"):
        run = client.start(function, {"a": 1, "b": 2}, watch=True)
        with pytest.raises(RemoteError, match=words) as caught:
            next(run.events()) if wait == "events" else getattr(run, wait)()
        assert caught.value.code == code


def test_an_untrusted_workspace_is_refused(home: Home, work: Path) -> None:
    """Without trust nothing runs; what functions there are is told."""
    with plain_connect(work) as client:
        assert "add" in [info.name for info in client.functions().functions]
        with pytest.raises(RemoteError, match="not trusted") as caught:
            client.run("add", a=1, b=2)
        assert caught.value.code == ErrorCode.UNTRUSTED


def test_a_wait_may_be_too_short(client: Client, go: Path) -> None:
    """A timeout names the run and says that it goes on; looking raises nothing; a later wait has the result."""
    run = begin(client, go)
    with pytest.raises(TimeoutError, match=f"wait_for \\({run.id}\\) has not ended within 0.05 s; it goes on"):
        run.result(0.05)
    with pytest.raises(TimeoutError, match="is running"):
        run.result(0)
    assert run.info(0).state == "running"
    assert [info.run_id for info in client.runs(active=True)] == [run.id]
    go.write_text("late")
    assert run.result(WAIT_S) == "late"
    assert client.runs(active=True) == []


def test_cancel(client: Client, go: Path) -> None:
    """A cancelled run ends as such for whoever waits; cancelling again changes nothing."""
    run = begin(client, go)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(run.result)
        assert (cancelled := run.cancel()).outcome == "cancelled", cancelled
        with pytest.raises(RunFailed, match="was cancelled") as caught:
            waits.result(WAIT_S)
    assert caught.value.info.state == "cancelled"
    assert run.cancel().outcome == "ended"
    with pytest.raises(RemoteError) as unknown:
        client.get("0" * 32).cancel()
    assert unknown.value.code == ErrorCode.UNKNOWN_RUN


def test_a_deadline_and_a_session(client: Client, go: Path) -> None:
    """Settings of a start reach the run."""
    run = client.start("wait_for", {"path": str(go)}, deadline_s=0.3, session="mine")
    with pytest.raises(RunFailed, match=r"TimeoutError.*0\.3 s"):
        run.result(WAIT_S)
    assert run.started().session == "mine"
    assert [session.id for session in client.sessions()] == ["mine"]


def test_the_same_id_is_the_same_run(client: Client, connect: Connect, tmp_path: Path) -> None:
    """A start that is repeated by its id, by any client, is not carried out again; an id that is none is refused."""
    run = client.start("count", {"path": str(tmp_path / "counted")})
    assert run.result(WAIT_S) == 1
    again = connect().start("count", {"path": str(tmp_path / "counted")}, run_id=run.id)
    assert again.started().repeated
    assert again.result(WAIT_S) == 1
    with pytest.raises(RemoteError, match="32 hexadecimal digits"):
        client.start("count", {"path": "x"}, run_id="short").result(WAIT_S)


def test_events_tell_a_run_from_start_to_end(client: Client) -> None:
    """With ``watch`` nothing is missed: started, what it prints in order, finished with the description, and then no more."""
    run = client.start("chatter", {"times": 4}, watch=True)
    events = list(run.events())
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    assert (events[0].kind, events[-1].kind) == ("started", "finished")
    assert "".join(event.data for event in events if event.kind == "output") == "".join(f"line {number} 😀\n" for number in range(4))
    assert events[-1].data.state == "completed"
    assert events[-1].data.output.count("😀") == 4
    assert run.result(WAIT_S) == "said"


def test_events_of_a_run_that_has_ended(client: Client) -> None:
    """There is one event, its end."""
    run_id = client.start("add", {"a": 1, "b": 2}).id
    client.get(run_id).result(WAIT_S)
    (event,) = client.get(run_id).events()
    assert (event.kind, event.data.state, event.data.result) == ("finished", "completed", 3)


def test_leaving_the_events_ends_the_subscription(client: Client, go: Path) -> None:
    """A loop over events that is left early costs nothing more; the run goes on."""
    run = client.start("wait_for", {"path": str(go)}, watch=True)
    for event in run.events():
        assert event.kind == "started"
        break
    go.write_text("x")
    assert run.result(WAIT_S) == "x"
    with client.subscribe("run") as events:
        client.run("add", a=1, b=1)
        kinds = [event.kind for event in (events.next(WAIT_S), events.next(WAIT_S)) if isinstance(event, RunEvent)]
        assert kinds == ["started", "finished"]
        assert events.next(0) is None
    assert events.next(WAIT_S) is None


def test_a_subscription_goes_on_where_another_left(client: Client) -> None:
    """``since`` brings what happened between two subscriptions, once each; another life's numbers give a gap."""
    with client.subscribe("run") as first:
        client.run("add", a=1, b=1)
        seen = [first.next(WAIT_S), first.next(WAIT_S)]
        since = first.since
    assert since is not None
    client.run("add", a=2, b=2)
    with client.subscribe("run", since=since) as second:
        client.run("add", a=3, b=3)
        later = [second.next(WAIT_S) for _ in range(4)]
    assert [event.kind for event in later if isinstance(event, RunEvent)] == ["started", "finished"] * 2
    assert all(event is not None and not event.gap for event in [*seen, *later])
    with client.subscribe("run", since=type(since)(epoch="another life", seq=3)) as third:
        client.run("add", a=1, b=1)
        event = third.next(WAIT_S)
        assert event is not None
        assert event.gap


def test_topics_are_checked_here(client: Client) -> None:
    """A topic that does not exist is the caller's mistake, and named."""
    for topics in (["rum"], []):
        with pytest.raises(ValueError, match="choose from run, dag, functions, status"):
            client.subscribe(*topics)


def step(events: Events) -> tuple[str, str]:
    """The next event of a session: which node, and how it stands."""
    event = events.next(WAIT_S)
    assert isinstance(event, DagEvent)
    assert event.node is not None
    return event.node.name, event.node.status


def test_two_clients_see_each_others_nodes_as_they_appear(client: Client, connect: Connect, go: Path) -> None:
    """While A's function still runs in a shared session, B sees its node; then A sees B's; both read the same session in the end."""
    other = connect()
    with other.subscribe("dag", session="shared") as theirs, client.subscribe("dag", session="shared") as ours:
        run = begin(client, go, session="shared")
        assert step(theirs) == ("wait_for", "running")
        other.start("add", {"a": 1, "b": 2}, session="shared").result(WAIT_S)
        go.write_text("x")
        run.result(WAIT_S)
        steps = [step(ours) for _ in range(4)]
    assert steps == [("wait_for", "running"), ("add", "running"), ("add", "completed"), ("wait_for", "completed")]
    assert [node.name for node in client.nodes("shared")] == [node.name for node in other.nodes("shared")] == ["wait_for", "add"]


def test_functions_sessions_and_nodes(client: Client) -> None:
    """What there is in the workspace, and what is kept of a run, node by node."""
    found = client.functions()
    assert {info.name for info in found.functions} >= {"add", "outer", "größe", "echo"}
    assert client.function("add").function.file == "work.py"
    run = client.start("outer", {"n": 3})
    run.result(WAIT_S)
    session = run.started().session
    nodes = client.nodes(session)
    assert [node.name for node in nodes] == ["outer", "add", "add", "add"]
    assert [node.id for node in client.nodes(session, after=nodes[0].seq, limit=2)] == [node.id for node in nodes[1:3]]
    detail = client.node(nodes[1].id)
    assert detail.node is not None
    assert detail.node.caller == nodes[0].id
    assert client.node("none").node is None
    with pytest.raises(RemoteError) as caught:
        client.nodes("no such session")
    assert caught.value.code == ErrorCode.UNKNOWN_SESSION


def test_status_says_who_and_what(client: Client, home: Home, work: Path, go: Path) -> None:
    """Health names the daemon, its clients, what runs and where."""
    begin(client, go)
    status = client.status()
    assert (status.pid, status.home, status.runs, status.stopping) == (home.daemon(), str(home.path), 1, False)
    assert [one["pid"] for one in status.clients] == [os.getpid()]
    assert [one["root"] for one in status.workspaces] == [str(work)]
    assert "work.py:wait_for" in [one["function"] for one in status.workers]


def test_threads_share_a_client(client: Client) -> None:
    """Twelve threads run functions on one client at once: each has its own results, over one connection."""
    client.run("add", a=0, b=0)

    def work(thread: int) -> list[int]:
        return [client.run("add", a=thread, b=number) for number in range(8)]

    with ThreadPoolExecutor(12) as pool:
        results = list(pool.map(work, range(12)))
    assert results == [[thread + number for number in range(8)] for thread in range(12)]
    assert len(client.status().clients) == 1


def test_p14_the_daemon_is_killed_while_a_call_waits(client: Client, home: Home, go: Path) -> None:
    """p14: whoever waits hears within a second; the next call starts a new daemon, in which the run reads interrupted and what was acknowledged is there."""
    kept = client.start("add", {"a": 1, "b": 2})
    kept.result(WAIT_S)
    run, first = begin(client, go), home.daemon()
    below = home.below()
    caught: dict[str, tuple[float, BaseException]] = {}

    def wait(name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as error:
            caught[name] = (time.monotonic(), error)

    events = client.subscribe("run")
    waits = {"result": run.result, "get": client.get(run.id).result, "events": lambda: list(run.events()), "next": lambda: list(events)}
    threads = [threading.Thread(target=wait, args=one) for one in waits.items()]
    for thread in threads:
        thread.start()
    until(lambda: len(client.status().clients) == 1)
    before = time.monotonic()
    home.kill()
    for thread in threads:
        thread.join(WAIT_S)
    assert {name: type(error) for name, (_, error) in caught.items()} == dict.fromkeys(waits, ConnectionLost)
    assert max(at for at, _ in caught.values()) - before < 1.0
    assert client.run("add", a=2, b=2) == 4
    assert home.daemon() != first
    assert kept.result(WAIT_S) == 3
    assert (run.info(0).state, run.started().repeated) == ("interrupted", True)
    with pytest.raises(RunFailed, match="was interrupted"):
        run.result(WAIT_S)
    assert [node.status for node in client.nodes(run.info().session)] == ["interrupted"]
    until(lambda: not any(lives(pid) for pid in below))


def test_the_daemon_was_stopped(client: Client, home: Home, connect: Connect) -> None:
    """After a stop, by anybody, the next call starts a new daemon; the workspace, its environment and trust are opened in it again."""
    kept = client.start("add", {"a": 1, "b": 2})
    kept.result(WAIT_S)
    connect().stop()
    assert home.daemons() == []
    assert client.run("environment", name="PATH") == os.environ["PATH"]
    assert kept.result(WAIT_S) == 3
    client.stop()
    with pytest.raises(NotRunningError):
        client.stop()
    assert home.daemons() == []


def test_a_draining_daemon_is_waited_for(client: Client, home: Home, connect: Connect, go: Path) -> None:
    """Whoever connects while a daemon lets its runs end is told what it waits for, gets a new daemon, and finds the results there."""
    run, first = begin(client, go), home.daemon()
    told: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        stop = pool.submit(client.stop, drain=True)
        until(lambda: connect(start=False).status().stopping)

        def later() -> Any:
            other = connect(on_wait=told.append)
            return other.run("add", a=1, b=1), other.get(run.id).result(WAIT_S)

        waits = pool.submit(later)
        until(lambda: told)
        assert "told to stop" in told[0]
        go.write_text("in time")
        assert waits.result(WAIT_S) == (2, "in time")
        stop.result(WAIT_S)
    assert home.daemon() != first


def test_a_closed_client_stays_closed(client: Client, home: Home) -> None:
    """It says so and starts nothing; its runs are left alone."""
    client.close()
    client.close()
    with pytest.raises(ConnectionLost, match="this client was closed; connect again"):
        client.status()


def in_a_fork(body: Callable[[], Any]) -> str:
    """What ``body`` gives in a forked process, or the error."""
    answer, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(body())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(said, text.encode())
        os._exit(0)
    os.close(said)
    with os.fdopen(answer, "rb") as reader:
        text = reader.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_connections_of_its_own(client: Client, go: Path) -> None:
    """In a fork the client, runs that its parent started, and closing work by themselves; the parent's connection, runs and events are not disturbed."""
    run = begin(client, go)
    events = client.subscribe("run")
    parents = client.connection
    assert in_a_fork(lambda: client.run("add", a=1, b=2)) == "3"
    assert in_a_fork(lambda: run.info(0).state) == "running"
    assert in_a_fork(lambda: run.result(0.05)).startswith("TimeoutError: wait_for")
    assert in_a_fork(lambda: list(events)).startswith("ConnectionLost: a subscription cannot be used in a forked process")
    assert in_a_fork(parents.close) == "None"
    assert in_a_fork(client.close) == "None"
    go.write_text("still there")
    assert run.result(WAIT_S) == "still there"
    assert client.connection is parents
    assert isinstance(events.next(WAIT_S), RunEvent)
