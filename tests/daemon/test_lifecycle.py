"""A daemon's life: when it begins, what it leaves on the disk meanwhile, when it ends and how."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openprogram_clients import places
from openprogram_protocol.rpc import PROTOCOL

from tests.daemon.support import SAFETY_S, Daemon, Raw, lives, until

Connect = Callable[..., Raw]
Start = Callable[..., Daemon]

IDLE_S = 0.3


def stays(look: Callable[[], Any], *, for_s: float = 4 * IDLE_S) -> None:
    """Nothing may change for a while, so a while has to pass."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        assert look()
        time.sleep(0.02)


def waiting(client: Raw, workspace: Path, go: Path) -> str:
    """A run that ends when ``go`` is there."""
    started = go.with_name(f"started-{os.urandom(4).hex()}")
    run_id = client.run(client.open(workspace), "wait_for", path=str(go), started=str(started))
    until(started.exists)
    return run_id


def state_of(raw: Connect, run_id: str) -> str:
    return raw().connect().call("openprogram/result", {"runId": run_id, "timeoutS": 0})["state"]


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


def test_without_clients_it_ends_after_a_while(start_daemon: Start) -> None:
    """It ends by itself, says so in its log, and leaves neither socket nor status file."""
    daemon = start_daemon(OPENPROGRAM_IDLE_S=str(IDLE_S)).ready()
    status = places.read_status()
    assert status is not None
    assert daemon.process.wait(SAFETY_S) == 0
    assert "nothing to do" in daemon.log.read_text()
    assert not places.status_file().exists()
    assert not Path(status.socket).exists()


def test_a_client_that_is_there_keeps_it(start_daemon: Start, raw: Connect) -> None:
    """However long a client is silent, the daemon stays; once it has left, the while begins anew."""
    daemon = start_daemon(OPENPROGRAM_IDLE_S=str(IDLE_S)).ready()
    client = raw().connect()
    stays(lambda: daemon.process.poll() is None)
    assert client.call("openprogram/status")["pid"] == daemon.pid
    client.close()
    assert daemon.process.wait(SAFETY_S) == 0


def test_a_run_keeps_it(start_daemon: Start, raw: Connect, workspace: Path, go: Path) -> None:
    """A run whose client has left goes on to its end, then the daemon ends."""
    daemon = start_daemon(OPENPROGRAM_IDLE_S=str(IDLE_S)).ready()
    client = raw().connect()
    run_id = waiting(client, workspace, go)
    client.close()
    stays(lambda: daemon.process.poll() is None)
    go.write_text("done")
    assert daemon.process.wait(SAFETY_S) == 0
    start_daemon().ready()
    assert state_of(raw, run_id) == "completed"


def test_zero_is_never(start_daemon: Start) -> None:
    """With 0 it waits for ever."""
    daemon = start_daemon(OPENPROGRAM_IDLE_S="0").ready()
    stays(lambda: daemon.process.poll() is None, for_s=0.3)


@pytest.mark.parametrize("text", ["soon", "nan", "-1"])
def test_a_setting_that_is_no_time_is_named(start_daemon: Start, text: str) -> None:
    """The daemon does not start, and its log says which setting is wrong."""
    daemon = start_daemon(OPENPROGRAM_IDLE_S=text)
    assert daemon.process.wait(SAFETY_S) == 1
    assert f"OPENPROGRAM_IDLE_S={text!r}" in daemon.log.read_text()


def test_stop_ends_runs_at_once(start_daemon: Start, raw: Connect, workspace: Path, go: Path) -> None:
    """Runs that are active are interrupted, whoever waits for one is told before the end, and no process is left."""
    daemon = start_daemon().ready()
    client, other = raw().connect(), raw().connect()
    run_id = waiting(client, workspace, go)
    waits = client.request("openprogram/result", {"runId": run_id})
    below = daemon.descendants()
    other.call("openprogram/stop")
    assert client.reply(waits)["result"]["state"] == "interrupted"
    assert daemon.process.wait(SAFETY_S) == 0
    until(lambda: not any(lives(pid) for pid in below))
    start_daemon().ready()
    assert state_of(raw, run_id) == "interrupted"
    session = raw().connect().result(run_id)["session"]
    (node,) = raw().connect().call("openprogram/dag/nodes", {"session": session})["nodes"]
    assert node["status"] == "interrupted"


@pytest.mark.parametrize("how", ["request", "signal"])
def test_draining_lets_runs_end(start_daemon: Start, raw: Connect, workspace: Path, go: Path, how: str) -> None:
    """Runs may end, new ones are refused meanwhile with the reason, and everybody hears the results."""
    daemon = start_daemon().ready()
    client = raw().connect()
    run_id = waiting(client, workspace, go)
    waits = client.request("openprogram/result", {"runId": run_id})
    if how == "signal":
        daemon.process.send_signal(signal.SIGTERM)
    else:
        client.call("openprogram/stop", {"drain": True})
    until(lambda: client.call("openprogram/status").get("stopping"))
    params = {"runId": "e" * 32, "function": "add", "workspace": client.open(workspace), "args": {"a": 1, "b": 2}}
    error = client.error("openprogram/run", params)
    assert (error["code"], "stopping" in error["message"]) == (-32060, True)
    go.write_text("in time")
    assert client.reply(waits)["result"]["result"] == "in time"
    assert daemon.process.wait(SAFETY_S) == 0


def test_draining_has_a_limit(start_daemon: Start, raw: Connect, workspace: Path, go: Path) -> None:
    """After its time the runs that are left are interrupted."""
    daemon = start_daemon().ready()
    client = raw().connect()
    run_id = waiting(client, workspace, go)
    waits = client.request("openprogram/result", {"runId": run_id})
    client.call("openprogram/stop", {"drain": True, "timeoutS": 0.2})
    assert client.reply(waits)["result"]["state"] == "interrupted"
    assert daemon.process.wait(SAFETY_S) == 0


def test_a_second_signal_waits_for_nothing(start_daemon: Start, raw: Connect, workspace: Path, go: Path) -> None:
    """Whoever asks twice does not wait for runs; nothing below the daemon stays, and the next one starts."""
    daemon = start_daemon().ready()
    client = raw().connect()
    run_id = waiting(client, workspace, go)
    below = daemon.descendants()
    daemon.process.send_signal(signal.SIGTERM)
    until(lambda: client.call("openprogram/status").get("stopping"))
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(SAFETY_S) == 1
    until(lambda: not any(lives(pid) for pid in below))
    start_daemon().ready()
    assert state_of(raw, run_id) == "interrupted"


def test_a_second_daemon_of_a_home_does_not_start(daemon: Daemon, start_daemon: Start, client: Raw) -> None:
    """It ends with an error that names the lock; the first one, its socket and its status file are as before."""
    second = start_daemon()
    assert second.process.wait(SAFETY_S) == 1
    assert "daemon.lock is still held" in second.log.read_text()
    status = places.read_status()
    assert status is not None
    assert status.pid == daemon.pid == client.call("openprogram/status")["pid"]


def status_of(pid: int, start_time: str) -> places.DaemonStatus:
    return places.DaemonStatus(pid=pid, start_time=start_time, protocol=PROTOCOL, version="", fingerprint="", socket="/nowhere", epoch="e")


@pytest.mark.parametrize("left", ["nothing", "garbage", "dead pid", "reused pid", "a folder's worth of bytes"])
def test_p07_what_a_dead_daemon_left_is_replaced(start_daemon: Start, raw: Connect, left: str) -> None:
    """p07: a socket that nobody listens at and any kind of old status file are no obstacle and need no cleaning up."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(places.socket_path()))
    if left == "garbage":
        places.status_file().write_bytes(b"\xff{")
    elif left == "a folder's worth of bytes":
        places.status_file().write_bytes(b"[" * 200_000)
    elif left == "dead pid":
        places.write_status(status_of(999_999_999, "1"))
    elif left == "reused pid":
        places.write_status(status_of(os.getpid(), "before this process began"))
    daemon = start_daemon().ready()
    assert raw().connect().call("openprogram/status")["pid"] == daemon.pid


def test_what_is_on_the_disk_is_the_users_alone(daemon: Daemon) -> None:
    """Status file, socket, store and locks can be used by this user only; the status file says what is true."""
    status = places.read_status()
    assert status is not None
    assert (status.pid, status.protocol, places.is_alive(status)) == (daemon.pid, PROTOCOL, True)
    made = [places.status_file(), Path(status.socket), places.daemon_lock(), *places.status_file().parent.glob("sessions.sqlite3*")]
    assert [path.name for path in made if path.stat().st_mode & 0o077] == []
    assert Path(status.socket).parent.stat().st_mode & 0o077 == 0


def test_a_socket_with_a_status_file_that_was_removed_is_found(daemon: Daemon, raw: Connect) -> None:
    """The status file is a hint: without it the daemon is still there."""
    places.status_file().unlink()
    assert raw().connect().call("openprogram/status")["pid"] == daemon.pid


ANOTHER_USER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[1])
    sock.settimeout(20)
    try:
        sock.sendall(b"Content-Length: 2\\r\\n\\r\\n{}")
        print(sock.recv(1000))
    except ConnectionError:
        print(b"")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user takes root")
def test_p05_another_user_is_refused(daemon: Daemon, client: Raw) -> None:
    """p05: even where permissions would let another user in, the daemon asks the system who it is and closes without a word."""
    status = places.read_status()
    assert status is not None
    path = Path(status.socket)
    mode = path.parent.stat().st_mode
    try:
        path.chmod(0o666)
        path.parent.chmod(0o711)
        said = subprocess.run([sys.executable, "-I", "-c", ANOTHER_USER, str(path)], capture_output=True, text=True, timeout=SAFETY_S, check=False)
    finally:
        path.parent.chmod(mode)
    assert (said.stdout, said.stderr) == ("b''\n", "")
    assert "a connection of user 65534 was refused" in daemon.log.read_text()
    assert len(client.call("openprogram/status")["clients"]) == 1
