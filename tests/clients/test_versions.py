"""Daemons of another version: replaced while nobody needs them, else named, with the way out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openprogram_clients import VersionError, connect, places
from openprogram_protocol.rpc import PROTOCOL

from tests.clients.support import WAIT_S, Home, python
from tests.daemon.support import until

EARLIER = """
import json, os, signal, socket, sys, threading

path, ready, facts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

def serve(sock):
    file = sock.makefile("rb")
    while line := file.readline():
        length = int(line.partition(b":")[2])
        file.readline()
        request = json.loads(file.read(length))
        method = request["method"].partition("/")[2]
        if method == "stop":
            os._exit(0)
        answer = facts["answers"][method]
        if "code" in answer:
            answer = {"error": {**answer, "data": {**answer["data"], "pid": os.getpid()}}}
        else:
            answer = {"result": {**answer, "pid": os.getpid()}}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}).encode()
        sock.sendall(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body))

with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(path)
    listening.listen()
    open(ready, "w").close()
    while True:
        threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def earlier(home: Home, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a stand-in for a daemon of another version, which answers as it is told and ends when it is asked to."""
    started: list[subprocess.Popen[str]] = []

    def start(**answers: Any) -> subprocess.Popen[str]:
        home.path.mkdir(exist_ok=True)
        ready = tmp_path / "ready"
        started.append(python(EARLIER, str(places.socket_path()), str(ready), json.dumps({"answers": answers})))
        until(ready.exists)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def other_protocol(**counts: int) -> dict[str, Any]:
    return {"code": -32063, "message": "no", "data": {"protocol": PROTOCOL + 1, "version": "9.9.9", **counts}}


def test_p10_an_idle_daemon_of_another_protocol_is_replaced(home: Home, earlier: Callable[..., subprocess.Popen[str]]) -> None:
    """p10: nobody needs it, so it is ended and ours is started; the user is told."""
    other = earlier(connect=other_protocol(runs=0, clients=0))
    told: list[str] = []
    with connect(on_wait=told.append) as client:
        assert client.status().pid == home.daemon()
    assert other.wait(WAIT_S) == 0
    assert told[0] == f"replacing a daemon of version 9.9.9 (protocol {PROTOCOL + 1})"


@pytest.mark.parametrize("counts", [{"runs": 1, "clients": 0}, {"runs": 0, "clients": 2}])
def test_p10_a_busy_daemon_of_another_protocol_is_left_alone(earlier: Callable[..., subprocess.Popen[str]], counts: dict[str, int]) -> None:
    """p10: the error names both versions, why it is not replaced, and the command that does it."""
    other = earlier(connect=other_protocol(**counts))
    with pytest.raises(VersionError) as caught:
        connect()
    for words in ("9.9.9", f"protocol {PROTOCOL + 1}", f"protocol {PROTOCOL},", "busy", "`openprogram daemon restart`"):
        assert words in str(caught.value)
    with pytest.raises(VersionError, match=r"9\.9\.9"):
        connect(start=False)
    assert other.poll() is None


ABOUT = {"protocol": PROTOCOL, "version": "0.0.1", "epoch": "e", "fingerprint": "of other files"}
HEALTH = {"version": "0.0.1", "protocol": PROTOCOL, "epoch": "e", "startedAt": 0.0, "home": "", "socket": ""}


def test_an_idle_daemon_of_other_files_is_replaced(home: Home, earlier: Callable[..., subprocess.Popen[str]]) -> None:
    """After an installation the next client has a daemon of the new files."""
    other = earlier(connect=ABOUT, status={**HEALTH, "runs": 0, "clients": [{"pid": os.getpid()}]})
    told: list[str] = []
    with connect(on_wait=told.append) as client:
        assert client.status().pid == home.daemon()
        assert client.warning is None
    assert other.wait(WAIT_S) == 0
    assert told[0] == "replacing a daemon that was started from an earlier installation"


@pytest.mark.parametrize(("health", "words"), [({"runs": 2}, "2 runs are active"), ({"clients": [{"pid": 1}]}, "1 other client is active")])
def test_a_busy_daemon_of_other_files_is_used_with_a_warning(earlier: Callable[..., subprocess.Popen[str]], health: dict[str, Any], words: str) -> None:
    """Nobody's run is ended for it: the client works and can tell its user what to do."""
    other = earlier(connect=ABOUT, status={**HEALTH, **health})
    with connect() as client:
        assert client.status().version == "0.0.1"
        assert client.warning is not None
        for said in (words, "0.0.1", str(other.pid), "`openprogram daemon restart`"):
            assert said in client.warning
    with connect(start=False) as client:
        assert client.warning is not None
        assert "started from other files" in client.warning
