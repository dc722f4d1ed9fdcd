"""The client for event loops against a real daemon: what the sync one does, awaited, with a loop that never waits for it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from openprogram_clients import AsyncClient, AsyncRun, Client, ConnectionLost, NotRunningError, RemoteError, RunFailed, aconnect
from openprogram_protocol.admin import DagEvent, RunEvent
from openprogram_protocol.errors import ErrorCode

from tests.clients.support import WAIT_S, Home
from tests.daemon.support import until

T = TypeVar("T")
Connect = Callable[..., Awaitable[AsyncClient]]


def running(work: Path, body: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Run a test's coroutine with a client, with a limit; no task is left behind."""

    async def limited() -> T:
        async with asyncio.timeout(60), await aconnect(work, trust=True) as client:
            result = await body(client)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(limited(), debug=True)


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file that `wait_for` waits for."""
    return tmp_path / "go"


async def begin(client: AsyncClient, go: Path, **options: Any) -> AsyncRun:
    """A run of `wait_for` that runs."""
    started = go.with_name(f"started-{os.urandom(4).hex()}")
    run = await client.start("wait_for", {"path": str(go), "started": str(started)}, **options)
    await asyncio.to_thread(until, started.exists)
    return run


def test_every_method_of_the_sync_client_has_its_twin() -> None:
    """Same names; those that are properties there because they may connect are methods here."""
    ours, theirs = ({name for name in dir(kind) if not name.startswith("_")} for kind in (AsyncClient, Client))
    assert theirs - ours == {"close", "workspace"}
    assert ours - theirs == {"aclose", "opened"}


def test_runs_and_what_is_kept_of_them(home: Home, work: Path) -> None:
    """A hundred runs at once on one connection, each with its own result; functions, sessions, nodes and health are read."""

    async def body(client: AsyncClient) -> None:
        results = await asyncio.gather(*(client.run("add", a=number, b=1) for number in range(100)))
        assert results == [number + 1 for number in range(100)]
        run = await client.start("echo", {"value": {"漢": ["😀", 2**60, None]}}, session="mine")
        assert (await run.started()).session == "mine"
        assert await run.result() == {"漢": ["😀", 2**60, None]}
        assert await client.get(run.id).result() == {"漢": ["😀", 2**60, None]}
        assert (await client.functions()).root == str(work)
        assert (await client.function("add")).function.name == "add"
        assert (await client.sessions(limit=1))[0].id == "mine"
        (node,) = await client.nodes("mine")
        assert (await client.node(node.id)).node == node
        assert len(await client.runs(limit=200)) == 101
        status = await client.status()
        assert (status.pid, len(status.clients)) == (home.daemon(), 1)

    running(work, body)


def test_errors(home: Home, work: Path) -> None:
    """A run that fails, one that is refused, one that nobody knows, and arguments that JSON cannot hold."""

    async def body(client: AsyncClient) -> None:
        with pytest.raises(RunFailed, match="ValueError: böse"):
            await client.run("fail", message="böse")
        for wait in ("started", "result", "events"):
            run = await client.start("no_such", watch=True)
            with pytest.raises(RemoteError, match="no_such"):
                await (anext(run.events()) if wait == "events" else getattr(run, wait)())
        with pytest.raises(RemoteError) as unknown:
            await client.get("0" * 32).result()
        assert unknown.value.code == ErrorCode.UNKNOWN_RUN
        for watch in (False, True):
            with pytest.raises((TypeError, ValueError)):
                await client.start("echo", {"value": object()}, watch=watch)
        assert await client.run("add", a=1, b=2) == 3

    running(work, body)


def test_waiting_may_be_too_short_or_cancelled_the_run_goes_on(home: Home, work: Path, go: Path) -> None:
    """A timeout names the run; a cancelled task stops waiting, no other waiter, and not the run."""

    async def body(client: AsyncClient) -> None:
        run = await begin(client, go)
        with pytest.raises(TimeoutError, match=f"wait_for \\({run.id}\\) has not ended within 0.05 s; it goes on"):
            await run.result(0.05)
        other = asyncio.create_task(run.result())
        for waiting in (run.result(), client.get(run.id).result(), client.ask(_forever(run.id))):
            task = asyncio.create_task(_awaited(waiting))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await run.info(0)).state == "running"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await run.result()
        go.write_text("late")
        assert await other == await run.result() == "late"

    running(work, body)


async def _awaited(waiting: Awaitable[T]) -> T:
    return await waiting


def _forever(run_id: str) -> Any:
    from openprogram_clients import calls

    return calls.result(run_id, None)


def test_cancelling_a_run(home: Home, work: Path, go: Path) -> None:
    """The run ends as cancelled for whoever waits."""

    async def body(client: AsyncClient) -> None:
        run = await begin(client, go)
        waits = asyncio.create_task(run.result())
        assert (await run.cancel()).outcome == "cancelled"
        with pytest.raises(RunFailed, match="was cancelled"):
            await waits

    running(work, body)


def test_events(home: Home, work: Path, go: Path) -> None:
    """A watched run from start to end; a session seen by another client; a subscription that goes on, and one that is left."""

    async def body(client: AsyncClient) -> None:
        run = await client.start("chatter", {"times": 3}, watch=True)
        events = [event async for event in run.events()]
        assert (events[0].kind, events[-1].kind, events[-1].data.result) == ("started", "finished", "said")
        assert "".join(event.data for event in events if event.kind == "output").count("😀") == 3
        assert [event.kind async for event in client.get(run.id).events()] == ["finished"]
        async with await aconnect(work, trust=True, env={}) as other, await other.subscribe("dag", session="shared") as theirs:
            shared = await begin(client, go, session="shared")
            event = await theirs.next(WAIT_S)
            assert isinstance(event, DagEvent)
            assert event.node is not None
            assert (event.node.name, event.node.status) == ("wait_for", "running")
            go.write_text("x")
            await shared.result()
        async with await client.subscribe("run") as first:
            await client.run("add", a=1, b=1)
            kinds = [event.kind for _ in range(2) if isinstance(event := await first.next(WAIT_S), RunEvent)]
            assert kinds == ["started", "finished"]
            assert await first.next(0) is None
            waits = asyncio.create_task(first.next())
            await asyncio.sleep(0)
            await first.aclose()
            assert await waits is None
        await client.run("add", a=2, b=2)
        async with await client.subscribe("run", since=first.since) as second:
            event = await second.next(WAIT_S)
            assert isinstance(event, RunEvent)
            assert (event.kind, event.gap) == ("started", False)

    running(work, body)


def test_the_loop_goes_on_while_much_is_sent(home: Home, work: Path) -> None:
    """Twenty megabytes of arguments, also for a daemon that reads nothing for a while, do not stop the loop."""

    async def body(client: AsyncClient) -> float:
        await client.run("add", a=1, b=1)
        longest, ended = 0.0, False

        async def tick() -> None:
            nonlocal longest
            while not ended:
                before = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - before)

        ticking = asyncio.create_task(tick())
        os.kill(home.daemon(), signal.SIGSTOP)
        asyncio.get_running_loop().call_later(1.0, os.kill, home.daemon(), signal.SIGCONT)
        run = await client.start("echo", {"value": "x" * 20_000_000})
        assert len(await run.result()) == 20_000_000
        ended = True
        await ticking
        return longest

    assert running(work, body) < 0.5


def test_the_daemon_goes_while_tasks_wait(home: Home, work: Path, go: Path) -> None:
    """Every waiter hears within a second; the next call starts a new daemon, where the run reads interrupted."""

    async def body(client: AsyncClient) -> None:
        kept = await client.start("add", {"a": 1, "b": 2})
        assert await kept.result() == 3
        run = await begin(client, go)
        events = await client.subscribe("run")
        tasks = [asyncio.create_task(_awaited(waiting)) for waiting in (run.result(), client.get(run.id).result(), events.next(), anext(run.events()))]
        await client.status()
        before = time.monotonic()
        await asyncio.to_thread(home.kill)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert time.monotonic() - before < 1.0
        assert {type(outcome) for outcome in outcomes} == {ConnectionLost}
        assert await client.run("add", a=2, b=2) == 4
        assert await kept.result() == 3
        with pytest.raises(RunFailed, match="was interrupted"):
            await run.result()
        await client.stop()
        assert home.daemons() == []
        with pytest.raises(NotRunningError):
            await client.stop()
        assert await client.run("add", a=3, b=3) == 6

    running(work, body)


def test_an_answer_for_a_loop_that_has_ended_disturbs_nobody(connect: Callable[..., Client], work: Path, go: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A program may give up waiting and end its loop; what comes later is dropped in silence."""
    kept: list[AsyncClient] = []
    sync = connect()

    async def give_up() -> None:
        kept.append(await aconnect(work, trust=True))
        await kept[0].subscribe("run")
        run = await begin(kept[0], go)
        with pytest.raises(TimeoutError):
            await run.result(0.05)

    with caplog.at_level(logging.DEBUG, "concurrent.futures"):
        asyncio.run(give_up())
        go.write_text("x")
        until(lambda: not sync.runs(active=True))
        answered = kept[0]._link.connection().request("openprogram/status", {})  # pyright: ignore[reportPrivateUsage] - behind all that was sent
        assert answered.result(WAIT_S).runs == 0
        asyncio.run(kept[0].aclose())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_client_may_be_used_in_another_loop(home: Home, work: Path) -> None:
    """A client outlives the loop that it was made in."""
    client = asyncio.run(aconnect(work, trust=True))
    assert asyncio.run(client.run("add", a=1, b=2)) == 3
    asyncio.run(client.aclose())
    with pytest.raises(ConnectionLost, match="connect again"):
        asyncio.run(client.status())


def test_connecting_may_be_cancelled(home: Home, work: Path) -> None:
    """A task that is cancelled while the daemon starts leaves a daemon that can be used."""

    async def body() -> int:
        task = asyncio.create_task(aconnect(work))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with await aconnect(work) as client:
            return (await client.status()).pid

    assert asyncio.run(body()) == home.daemon()
