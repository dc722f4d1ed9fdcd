"""Clients that do not read: nobody waits for them, and what is kept for them is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from openprogram_daemon import setup
from openprogram_daemon.core import Core
from openprogram_daemon.listener import Listener, bound
from openprogram_daemon.outbox import Limits
from openprogram_protocol.rpc import PROTOCOL

from openprogram.store.sqlite import SqliteStore
from tests.daemon.support import Daemon, Raw, until

Connect = Callable[..., Raw]

MEGABYTE = 1024 * 1024


def memory(daemon: Daemon) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * 4096


def settled(daemon: Daemon) -> int:
    """The memory once it no longer changes: a daemon goes on importing for a while after its first client."""
    seen = [memory(daemon)]

    def look() -> bool:
        time.sleep(0.2)
        seen.append(memory(daemon))
        return len(seen) > 10 and max(seen[-8:]) - min(seen[-8:]) < MEGABYTE

    until(look)
    return seen[-1]


def message(number: int, method: str, **params: Any) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": f"openprogram/{method}", "params": params}).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def flood(client: Raw, method: str, **params: Any) -> int:
    """Send requests until the daemon takes no more for a second; how many."""
    client.sock.settimeout(1.0)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 20_000:
            client.send(message(sent + 1_000_000, method, **params))
            sent += 1
    return sent


@pytest.mark.parametrize("method", ["dag/node", "dag/nodes", "result"])
def test_requests_of_a_client_that_takes_no_replies_are_not_read(daemon: Daemon, client: Raw, raw: Connect, workspace: Path, method: str) -> None:
    """A client that asks for a megabyte thousands of times and reads nothing holds up nobody and costs the daemon some megabytes."""
    frame = client.call("openprogram/session/create", {"id": "s"})["frame"]
    node = {"id": "n", "session": "s", "role": "code", "name": "f", "frame": frame, "input": {"x": "y" * MEGABYTE}}
    client.call("openprogram/dag/append", {"node": node})
    run_id = client.run(client.open(workspace, env={"LARGE": "z" * 100_000}), "environment", name="LARGE")
    client.result(run_id)
    before = settled(daemon)
    stuck = raw().connect()
    params = {"dag/node": {"id": "n"}, "dag/nodes": {"session": "s"}, "result": {"runId": run_id}}[method]
    assert flood(stuck, method, **params) < 20_000
    for _ in range(20):
        began = time.monotonic()
        assert client.call("openprogram/dag/node", {"id": "n"})["node"]["name"] == "f"
        assert time.monotonic() - began < 1.0
    assert settled(daemon) - before < 100 * MEGABYTE
    stuck.close()
    until(lambda: len(client.call("openprogram/status")["clients"]) == 1)


def test_a_client_that_takes_its_replies_late_gets_them_all(client: Raw, raw: Connect) -> None:
    """Nothing is lost by waiting: once the client reads, every request has its one reply."""
    frame = client.call("openprogram/session/create", {"id": "s"})["frame"]
    client.call("openprogram/dag/append", {"node": {"id": "n", "session": "s", "role": "code", "name": "f", "frame": frame, "input": {"x": "y" * MEGABYTE}}})
    late = raw().connect()
    asked = [late.request("openprogram/dag/node", {"id": "n"}) for _ in range(100)]
    assert {len(late.reply(request_id)["result"]["node"]["input"]["x"]) for request_id in asked} == {MEGABYTE}
    assert late.others == []


def test_events_that_nobody_takes_become_a_gap(daemon: Daemon, client: Raw, raw: Connect, workspace: Path, tmp_path: Path) -> None:
    """A follower that does not read while a function prints without end costs some megabytes; when it reads again it is told of a gap, then what is new."""
    opened = client.open(workspace)
    stuck, reader = raw().connect(), raw().connect()
    for one in (stuck, reader):
        one.call("openprogram/subscribe", {"topics": ["run"]})
    before = settled(daemon)
    run_id = client.run(opened, "print_for_ever", started=str(tmp_path / "started"))
    length = 0
    while length < 12 * MEGABYTE:
        event = reader.event("run")
        assert event.get("gap", False) is False
        length += len(event.get("data", "")) if event["kind"] == "output" else 0
    client.call("openprogram/cancel", {"runId": run_id})
    assert memory(daemon) - before < 60 * MEGABYTE
    kinds: list[str] = []
    while not kinds or kinds[-1] != "finished":
        kinds.append(stuck.event("run")["kind"])
    assert "gap" in kinds
    assert stuck.call("openprogram/result", {"runId": run_id})["state"] == "cancelled"


@contextlib.asynccontextmanager
async def served(path: Path, limits: Limits) -> AsyncGenerator[Core]:
    """A daemon's connections in this process, with limits of the test's own; it runs no functions."""
    core = Core(SqliteStore(path / "s.sqlite3"), limits=limits)
    listener = Listener(core, setup.HANDLERS, lambda: None)
    await listener.open(bound(path / "s"))
    try:
        yield core
    finally:
        await listener.close(timeout_s=1)
        await core.aclose()


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def test_a_client_that_takes_nothing_for_long_is_given_up(short: Path) -> None:
    """Its connection is closed after a while, others' are not; one that has nothing to take may be silent for ever."""

    async def body() -> None:
        async with served(short, Limits(stuck_s=0.3)) as core:
            *clients, stuck = [await asyncio.to_thread(_connected, short / "s") for _ in range(3)]
            info = await core.write(core.store.creating_session("s", ""))
            await asyncio.to_thread(stuck.call, "openprogram/dag/append", {"node": _large(info.frame)})
            for number in range(50):
                stuck.send(message(number + 100, "dag/node", id="n"))
            async with asyncio.timeout(20):
                while len(core.sessions) > len(clients):
                    await asyncio.sleep(0.01)
            for client in clients:
                assert (await asyncio.to_thread(client.call, "openprogram/dag/node", {"id": "n"}))["node"]["name"] == "f"
                client.close()
            stuck.close()

    asyncio.run(body())


def _large(frame: str) -> dict[str, Any]:
    return {"id": "n", "session": "s", "role": "code", "name": "f", "frame": frame, "input": {"x": "y" * MEGABYTE}}


def _connected(path: Path) -> Raw:
    client = Raw(str(path))
    client.call("openprogram/connect", {"protocol": PROTOCOL})
    return client


def test_a_slow_reader_is_not_given_up(short: Path) -> None:
    """Whoever takes something now and then is alive, however slow."""

    async def body() -> int:
        async with served(short, Limits(stuck_s=1.0)) as core:
            client = await asyncio.to_thread(_connected, short / "s")
            info = await core.write(core.store.creating_session("s", ""))
            await asyncio.to_thread(client.call, "openprogram/dag/append", {"node": _large(info.frame)})
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asked = [client.request("openprogram/dag/node", {"id": "n"}) for _ in range(12)]

            def read_slowly() -> int:
                taken = 0
                began = time.monotonic()
                while time.monotonic() - began < 2.5:
                    taken += len(client.sock.recv(256 * 1024))
                    time.sleep(0.1)
                while taken < len(asked) * MEGABYTE:
                    taken += len(client.sock.recv(MEGABYTE))
                return taken

            taken = await asyncio.to_thread(read_slowly)
            client.close()
            return taken

    assert asyncio.run(body()) >= 12 * MEGABYTE
