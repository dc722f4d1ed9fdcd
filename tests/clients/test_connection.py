"""A connection: every request gets its own answer or an error, never silence."""

from __future__ import annotations

import gc
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openprogram_clients import errors
from openprogram_clients.connection import Connection, ConnectionLost, RemoteError
from openprogram_protocol.admin import Nothing, RunEvent
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.framing import frame
from openprogram_protocol.runs import CancelParams, CancelResult, ResultParams, RunInfo, RunsParams

from tests.clients.support import WAIT_S, Peer

Pair = tuple[Connection, Peer]
Connect = Callable[..., Pair]

RUN = {"runId": "1", "function": "f", "state": "completed", "session": "s", "result": {"class": 1, "a-b": 2, "_x": 3}}


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes connected pairs, closed at the end."""
    made: list[Pair] = []

    def make(**options: Any) -> Pair:
        ours, theirs = socket.socketpair()
        made.append((Connection(ours, **options), Peer(theirs)))
        return made[-1]

    yield make
    for connection, peer in made:
        peer.close()
        connection.close()


def test_answers_find_their_requests_in_any_order(connect: Connect) -> None:
    """Replies in reverse order reach the futures of their own requests, decoded to the types of the methods."""
    connection, peer = connect()
    first = connection.request("openprogram/result", ResultParams(run_id="1"))
    second = connection.request("openprogram/cancel", CancelParams(run_id="1"))
    asked = [peer.receive(), peer.receive()]
    assert [message["method"] for message in asked] == ["openprogram/result", "openprogram/cancel"]
    assert asked[0]["params"] == {"runId": "1"}
    peer.reply(asked[1], {"outcome": "killed", "state": "cancelled"})
    peer.reply(asked[0], RUN)
    assert second.result(WAIT_S) == CancelResult(outcome="killed", state="cancelled")
    assert first.result(WAIT_S) == RunInfo(run_id="1", function="f", state="completed", session="s", result={"class": 1, "a-b": 2, "_x": 3})


def test_a_pipeline_is_one_write(connect: Connect) -> None:
    """Several requests arrive together before any of them was answered."""
    connection, peer = connect()
    futures = connection.pipeline([("openprogram/runs", RunsParams(limit=index)) for index in range(1, 4)])
    data = peer.socket.recv(65536)
    assert data.count(b"Content-Length") == 3
    assert not any(future.done() for future in futures)


def test_who_must_not_wait_does_not(connect: Connect) -> None:
    """While the other side reads nothing, requests that are handed over cost no waiting; they arrive whole and in order, among those of threads that wait."""
    connection, peer = connect()
    before = time.monotonic()
    futures = [connection.request("openprogram/result", ResultParams(run_id=f"{number}:" + "x" * 300_000), wait=False) for number in range(20)]
    assert time.monotonic() - before < 2
    thread = threading.Thread(target=connection.request, args=("openprogram/runs", RunsParams()))
    thread.start()
    asked = [peer.receive() for _ in range(21)]
    thread.join(WAIT_S)
    numbers = [message["params"]["runId"].partition(":")[0] for message in asked if message["method"] == "openprogram/result"]
    assert numbers == [str(number) for number in range(20)]
    peer.reply(asked[0], RUN)
    assert futures[0].result(WAIT_S).state == "completed"
    connection.request("openprogram/result", ResultParams(run_id="x" * 5_000_000), wait=False)
    late = connection.request("openprogram/runs", RunsParams(), wait=False)
    peer.close()
    with pytest.raises(ConnectionLost):
        late.result(WAIT_S)


def test_threads_share_a_connection(connect: Connect) -> None:
    """Requests of many threads, small and large, are whole on the wire, and each thread gets its own answer."""
    connection, peer = connect()
    got: dict[int, int] = {}

    def ask(number: int) -> None:
        params = ResultParams(run_id=f"{number}:" + "x" * (number % 7) * 30_000)
        got[number] = connection.call("openprogram/result", params, WAIT_S).result

    def answer() -> None:
        for _ in range(40):
            message = peer.receive()
            peer.reply(message, {**RUN, "result": int(message["params"]["runId"].partition(":")[0])})

    threads = [threading.Thread(target=answer), *(threading.Thread(target=ask, args=(number,)) for number in range(40))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert got == {number: number for number in range(40)}


def test_an_error_reply_is_raised_with_its_code_and_data(connect: Connect) -> None:
    """RemoteError says what the daemon said."""
    connection, peer = connect()
    future = connection.request("openprogram/runs", RunsParams())
    peer.refuse(peer.receive(), ErrorCode.UNKNOWN_TARGET, "no function 'x'", near=["y"])
    with pytest.raises(RemoteError, match="no function 'x'") as caught:
        future.result(WAIT_S)
    assert caught.value.code == ErrorCode.UNKNOWN_TARGET
    assert caught.value.data == {"near": ["y"]}


def test_a_reply_that_does_not_fit_fails_only_its_request(connect: Connect) -> None:
    """A result of another shape is an error that names the place; the connection goes on."""
    connection, peer = connect()
    wrong = connection.request("openprogram/runs", RunsParams())
    peer.reply(peer.receive(), {"runs": [{**RUN, "state": "flying"}]})
    with pytest.raises(RemoteError, match=r"flying.*runs\[0\]\.state"):
        wrong.result(WAIT_S)
    right = connection.request("openprogram/runs", RunsParams())
    peer.reply(peer.receive(), {"runs": [RUN]})
    assert len(right.result(WAIT_S).runs) == 1


def test_replies_to_nobody_are_dropped(connect: Connect) -> None:
    """Unknown ids, answers given twice and errors without an id disturb nobody."""
    connection, peer = connect()
    peer.send(id=999, result={})
    peer.send(id="op:1", result=None)
    peer.send(id=None, error={"code": -32700, "message": "what?"})
    future = connection.request("openprogram/runs", RunsParams())
    message = peer.receive()
    peer.reply(message, {})
    peer.reply(message, {"runs": [RUN]})
    assert future.result(WAIT_S).runs == []
    again = connection.request("openprogram/runs", RunsParams())
    peer.reply(peer.receive(), {})
    assert again.result(WAIT_S).runs == []


@pytest.mark.parametrize("end", ["close", "reset", "garbage", "half a message", "web server", "no object"])
def test_the_end_of_the_connection_fails_everything_that_waits(connect: Connect, end: str) -> None:
    """However it ends, every waiting request fails within a second, later ones at once, and the message says what to do."""
    connection, peer = connect()
    told: list[ConnectionLost] = []
    connection.at_end(told.append)
    waiting = [connection.request("openprogram/result", ResultParams(run_id=str(number))) for number in range(20)]
    for _ in waiting:
        peer.receive()
    before = time.monotonic()
    if end != "reset":
        peer.socket.sendall(
            {
                "close": b"",
                "garbage": b"Content-Length: 3\r\n\r\nabc",
                "half a message": frame(b'{"id":1}')[:-3],
                "web server": b"HTTP/1.1 400 Bad Request\r\n\r\n",
                "no object": frame(b"[1, 2]"),
            }[end]
        )
    connection.request("openprogram/status", Nothing()).cancel()  # leaves bytes unread, so that closing resets
    if end in ("close", "reset", "half a message"):
        peer.close()
    for future in waiting:
        with pytest.raises(ConnectionLost, match="a new daemon is started when it is needed"):
            future.result(WAIT_S)
    assert time.monotonic() - before < 1
    assert not connection.is_open
    with pytest.raises(ConnectionLost):
        connection.call("openprogram/status", Nothing(), WAIT_S)
    with pytest.raises(ConnectionLost):
        connection.notify("$/cancelRequest", {"id": 1})
    assert len(told) == 1
    connection.at_end(told.append)
    assert len(told) == 2


def test_a_waiting_call_fails_when_another_thread_closes(connect: Connect) -> None:
    """Closing wakes whoever waits, and may be done twice."""
    connection, peer = connect()
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            connection.call("openprogram/status", Nothing())
        except ConnectionLost as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    peer.receive()
    connection.close()
    connection.close()
    thread.join(WAIT_S)
    assert "was closed" in str(caught[0])


def test_a_timeout_tells_the_other_side(connect: Connect) -> None:
    """After a timeout the request is withdrawn, a late answer is dropped, and the connection goes on."""
    connection, peer = connect()
    with pytest.raises(TimeoutError, match=r"openprogram/status within 0\.05 s"):
        connection.call("openprogram/status", Nothing(), 0.05)
    late = peer.receive()
    assert peer.receive() == {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": late["id"]}}
    peer.reply(late, {})
    future = connection.request("openprogram/runs", RunsParams())
    peer.reply(peer.receive(), {})
    assert future.result(WAIT_S).runs == []


@pytest.mark.parametrize("value", [object(), {"x": {1: object()}}, "\ud800"])
def test_what_json_cannot_hold_is_refused_before_it_is_sent(connect: Connect, value: Any) -> None:
    """The mistake is the caller's own error; nothing is sent and nothing waits."""
    connection, peer = connect()
    with pytest.raises((TypeError, ValueError)):
        connection.request("openprogram/runs", {"x": value})
    connection.notify("after", {})
    assert peer.receive()["method"] == "after"


def test_notifications_are_handled_in_order(connect: Connect) -> None:
    """Handlers of a method and the one for all get them decoded, in the order of sending and ahead of a later reply; one that raises disturbs nobody."""
    seen: list[Any] = []

    def note(method: str, params: Any) -> None:
        seen.append((method, params))

    connection, peer = connect(on_notify=note)

    def fail(_: Any) -> None:
        raise RuntimeError("a handler's mistake")

    connection.on("openprogram/event/run", fail)
    undo = connection.on("openprogram/event/run", seen.append)
    future = connection.request("openprogram/runs", RunsParams())
    message = peer.receive()
    for number in range(3):
        peer.send(method="openprogram/event/run", params={"seq": number, "runId": "r", "kind": "delta"})
    peer.send(method="from/the/future", params={"x": 1})
    peer.send(method="openprogram/event/run", params={"seq": "no number"})
    peer.reply(message, {})
    future.result(WAIT_S)
    events = [RunEvent(seq=number, run_id="r", kind="delta") for number in range(3)]
    assert [one for one in seen if isinstance(one, RunEvent)] == events
    assert [one for one in seen if isinstance(one, tuple)] == [*(("openprogram/event/run", event) for event in events), ("from/the/future", {"x": 1})]
    undo()
    again = connection.request("openprogram/runs", RunsParams())
    peer.send(method="openprogram/event/run", params={"seq": 9, "runId": "r", "kind": "delta"})
    peer.reply(peer.receive(), {})
    again.result(WAIT_S)
    assert RunEvent(seq=9, run_id="r", kind="delta") not in seen


def test_requests_of_the_other_side_are_answered(connect: Connect) -> None:
    """Each in a thread of its own, so that a slow answer holds up nobody, not even a call that it makes itself."""
    holder: list[Connection] = []
    release = threading.Event()

    def answer(method: str, params: Any) -> Any:
        if method == "slow":
            assert release.wait(WAIT_S)
            return holder[0].call("openprogram/runs", RunsParams(), WAIT_S)
        if method == "refuse":
            raise RemoteError(ErrorCode.USAGE, "not here", {"why": 1})
        if method == "fail":
            raise KeyError("oops")
        if method == "unspeakable":
            return object()
        return {"got": params}

    connection, peer = connect(on_request=answer)
    holder.append(connection)
    peer.send(id="a", method="slow", params={})
    peer.send(id=7, method="echo", params={"x": 1})
    assert peer.receive() == {"jsonrpc": "2.0", "id": 7, "result": {"got": {"x": 1}}}
    release.set()
    asked = peer.receive()
    peer.reply(asked, {"runs": []})
    assert peer.receive()["id"] == "a"
    for id, method, code in (("b", "refuse", ErrorCode.USAGE), ("c", "fail", ErrorCode.INTERNAL), ("d", "unspeakable", ErrorCode.INTERNAL)):
        peer.send(id=id, method=method, params={})
        error = peer.receive()
        assert (error["id"], error["error"]["code"]) == (id, code)
    peer.send(id="e", method="openprogram/run", params={"runId": 1})
    assert peer.receive()["error"]["code"] == ErrorCode.INVALID_PARAMS


def test_requests_that_nobody_answers_are_refused(connect: Connect) -> None:
    """The other side never waits for ever."""
    _, peer = connect()
    peer.send(id=1, method="openprogram/tool/call", params={})
    assert peer.receive()["error"]["code"] == ErrorCode.METHOD_NOT_FOUND


def test_descriptors_go_along(connect: Connect) -> None:
    """An open file that is sent with a notification can be used at the other end, also behind a large body."""
    connection, peer = connect()
    reading, writing = os.pipe()
    thread = threading.Thread(target=connection.notify, args=("openprogram/worker/run", {"big": "x" * 1_000_000}, [reading]))
    thread.start()
    received = peer.receive_descriptors()
    try:
        os.write(writing, b"hello")
        assert os.read(received[0], 5) == b"hello"
        assert len(peer.receive()["params"]["big"]) == 1_000_000
    finally:
        for descriptor in (reading, writing, *received):
            os.close(descriptor)
        thread.join(WAIT_S)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_ever(connect: Connect) -> None:
    """A fork has the socket and no thread that reads: it is told to connect again, and its end does not end the parent's connection."""
    connection, peer = connect()
    answer, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            connection.call("openprogram/status", Nothing(), 5)
        except BaseException as error:
            os.write(said, f"{type(error).__name__} {error}".encode())
        os._exit(0)
    os.close(said)
    with os.fdopen(answer, "rb") as reader:
        assert reader.read().decode().startswith("ConnectionLost a connection cannot be used in a forked process")
    os.waitpid(child, 0)
    future = connection.request("openprogram/runs", RunsParams())
    peer.reply(peer.receive(), {})
    assert future.result(WAIT_S).runs == []


def test_large_bodies_pass_and_a_limit_holds(connect: Connect) -> None:
    """A reply of many reads arrives whole; one over the limit ends the connection with its size."""
    connection, peer = connect(max_body=3_000_000)
    for size in (2_500_000, 3_500_000):
        future = connection.request("openprogram/result", ResultParams(run_id="1"))
        message = peer.receive()
        thread = threading.Thread(target=send_ignoring_the_end, args=(peer, message, {**RUN, "result": "é" * (size // 2)}))
        thread.start()
        if size < 3_000_000:
            assert len(future.result(WAIT_S).result) == size // 2
        else:
            with pytest.raises(ConnectionLost, match="over the limit"):
                future.result(WAIT_S)
        thread.join(WAIT_S)


def send_ignoring_the_end(peer: Peer, message: dict[str, Any], result: Any) -> None:
    try:
        peer.reply(message, result)
    except OSError:
        return


def test_a_closed_connection_leaves_nothing_open(connect: Connect) -> None:
    """Neither a thread nor a descriptor stays behind."""
    threads, descriptors = set(threading.enumerate()), list(Path("/dev/fd").iterdir())
    pairs = [connect() for _ in range(5)]
    for connection, peer in pairs:
        peer.close()
        connection.close()
    gc.collect()
    assert set(threading.enumerate()) - threads == set()
    assert len(list(Path("/dev/fd").iterdir())) == len(descriptors)


def samples() -> list[errors.ClientError]:
    failed = RunInfo(run_id="1", function="f", state="error", session="s", error={"type": "ValueError", "message": "no"})
    plain = (errors.ConnectionLost, errors.NotRunningError, errors.StartError, errors.UnsafePathError, errors.VersionError, errors.DaemonError)
    return [errors.RemoteError(-32010, "text", {"a": 1}), errors.RunFailed(failed), *(kind("text") for kind in plain)]


@pytest.mark.parametrize("error", samples(), ids=lambda error: type(error).__name__)
def test_errors_pickle_with_their_fields(error: errors.ClientError) -> None:
    """An error that crosses a process pool says there what it said here."""
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
