"""The client for programs with an event loop: the methods of `openprogram_clients.client`, awaitable. Connecting is done in a thread, so the loop never waits.

Cancelling an await stops the waiting, never the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from openprogram_protocol.admin import FunctionResult, FunctionsResult, RunEvent, Since, StatusResult, SubscribeParams
from openprogram_protocol.dag import Node, NodeDetail, SessionInfo
from openprogram_protocol.runs import TERMINAL, CancelResult, RunInfo, RunStarted

from openprogram_clients import calls
from openprogram_clients.client import LOOK_AGAIN_S, Client, Sent, as_started, finished, not_yet, value_of
from openprogram_clients.connection import Connection
from openprogram_clients.errors import ConnectionLost, RemoteError
from openprogram_clients.events import Event, Inbox
from openprogram_clients.link import Link, settings

T = TypeVar("T")


async def aconnect(
    root: str | os.PathLike[str] | None = None,
    *,
    start: bool = True,
    trust: bool = False,
    python: str | None = None,
    env: Mapping[str, str] | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> AsyncClient:
    """`openprogram_clients.connect` for a running event loop: same arguments and errors. ``on_wait`` is called in another thread."""
    link = Link(settings(root, start=start, trust=trust, python=python, env=env, on_wait=on_wait))
    await asyncio.to_thread(link.connection)
    return AsyncClient(link)


class AsyncClient:
    """Made by `aconnect`; an async context manager. Every method may raise DaemonError, RemoteError, and ConnectionLost when the daemon goes."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def connection(self) -> Connection:
        """The connection; after it was lost, a new one."""
        return self._link.connection() if self._link.is_ready() else await asyncio.to_thread(self._link.connection)

    async def opened(self) -> tuple[Connection, str]:
        """The connection and the daemon's id of the workspace, which is opened."""
        return self._link.workspace() if self._link.is_ready(workspace=True) else await asyncio.to_thread(self._link.workspace)

    @property
    def warning(self) -> str | None:
        """What the user should know of the daemon, such as that it is older than the installed package."""
        return self._link.warning

    async def run(self, function: str, /, **args: Any) -> Any:
        """Run a function with these arguments and return its result as JSON. Raises RunFailed when it did not complete."""
        return await (await self.start(function, args)).result()

    async def start(
        self,
        function: str,
        args: dict[str, Any] | None = None,
        *,
        session: str | None = None,
        model: str | None = None,
        workdir: str | None = None,
        deadline_s: float | None = None,
        run_id: str | None = None,
        watch: bool = False,
    ) -> AsyncRun:
        """Start a function and return at once; see `openprogram_clients.Client.start`."""
        connection, workspace = await self.opened()
        run_id = run_id or calls.new_run_id()
        wanted = calls.run(workspace, function, args, run_id, session, model, workdir, deadline_s)
        if not watch:
            return AsyncRun(self, run_id, function, Sent(*connection.pipeline(wanted, wait=False)))
        events = AsyncEvents(connection, SubscribeParams(topics=["run"], run_id=run_id))
        try:
            subscribed, started, ended = connection.pipeline([events.inbox.request, *wanted], wait=False)
        except BaseException:
            await events.aclose()
            raise
        subscribed.add_done_callback(events.inbox.settle)
        return AsyncRun(self, run_id, function, Sent(started, ended), events)

    def get(self, run_id: str) -> AsyncRun:
        """A handle on a run that anybody started."""
        return AsyncRun(self, run_id)

    async def runs(self, *, active: bool = False, limit: int = 100) -> list[RunInfo]:
        """Runs, newest first; ``active`` only those that have not ended."""
        return await self.ask(calls.listed_runs(active, limit))

    async def functions(self) -> FunctionsResult:
        """The workspace's functions and what is wrong with its files; found without running any of its code."""
        return await self.ask(calls.functions((await self.opened())[1]))

    async def function(self, name: str) -> FunctionResult:
        """One function, with the JSON Schema of its parameters."""
        return await self.ask(calls.function((await self.opened())[1], name))

    async def sessions(self, *, limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions, the one written last first."""
        return await self.ask(calls.sessions(limit, offset))

    async def nodes(self, session: str, *, after: int = 0, limit: int = 1000) -> list[Node]:
        """The nodes of a session in order, those with a ``seq`` over ``after``."""
        return await self.ask(calls.nodes(session, after, limit))

    async def node(self, node_id: str, *, prompt: bool = False) -> NodeDetail:
        """One node whole; ``prompt`` adds the messages that the model was sent."""
        return await self.ask(calls.node(node_id, prompt))

    async def status(self) -> StatusResult:
        """The daemon's health."""
        return await self.ask(calls.status())

    async def subscribe(self, *topics: str, run_id: str | None = None, session: str | None = None, since: Since | None = None) -> AsyncEvents:
        """Events of these topics; see `openprogram_clients.Client.subscribe`."""
        connection = (await self.opened())[0] if "functions" in topics else await self.connection()
        events = AsyncEvents(connection, SubscribeParams(topics=list(topics), run_id=run_id, session=session, since=since))
        try:
            events.inbox.answered(await _answer(connection, *events.inbox.request))
        except BaseException:
            await events.aclose()
            raise
        return events

    async def stop(self, *, drain: bool = False, timeout_s: float = 30.0) -> None:
        """Stop the daemon and wait until it is gone; with ``drain`` its runs may end first. Raises NotRunningError when there is none."""
        await asyncio.to_thread(Client(self._link).stop, drain=drain, timeout_s=timeout_s)

    async def ask(self, call: calls.Call[T]) -> T:
        """Send any request of `openprogram_clients.calls` and wait for its answer."""
        return call.read(await _answer(await self.connection(), call.method, call.params))

    async def aclose(self) -> None:
        """End the connection. Runs go on."""
        await asyncio.to_thread(self._link.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()


async def _answer(connection: Connection, method: str, params: Any) -> Any:
    future = connection.request(method, params, wait=False)
    try:
        return await _outcome(future)
    except asyncio.CancelledError:
        connection.abandon(future)
        raise


async def _outcome(future: Future[T], timeout_s: float | None = None) -> T:
    """Wait for a future that others may wait for too; its answer may come when this loop is no more."""
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()

    def tell(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(answered.set)

    future.add_done_callback(tell)
    async with asyncio.timeout(timeout_s):
        await answered.wait()
    return future.result()


class AsyncEvents:
    """An async iterator over events, for the loop it was made in; see `openprogram_clients.events.Events`."""

    def __init__(self, connection: Connection, params: SubscribeParams) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._closed = False
        self.inbox = Inbox(connection, params, self._wake)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            self._loop.call_soon_threadsafe(self._ready.set)

    @property
    def since(self) -> Since | None:
        """What to pass to the next subscription, so that it goes on where this one is."""
        return self.inbox.since

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next(self, timeout_s: float | None = None) -> Event | None:
        """Wait for the next event; None when none came within ``timeout_s``, and at the end."""
        while not self._closed:
            self._ready.clear()
            event = self.inbox.take()
            if event is not None:
                return event
            try:
                async with asyncio.timeout(timeout_s):
                    await self._ready.wait()
            except TimeoutError:
                return None
        return None

    async def aclose(self) -> None:
        """End the subscription, also for a task that waits in it."""
        self._closed = True
        self.inbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()


class AsyncRun:
    """A run, wherever it was started; see `openprogram_clients.client.Run`."""

    def __init__(self, client: AsyncClient, run_id: str, function: str = "", sent: Sent | None = None, events: AsyncEvents | None = None) -> None:
        self.id = run_id
        self.function = function
        self._client = client
        self._sent = sent or Sent()
        self._events = events

    async def started(self, timeout_s: float | None = None) -> RunStarted:
        """Wait until the start is acknowledged. Raises TimeoutError, and RemoteError when it was refused."""
        acknowledged = self._sent.started
        if acknowledged is None:
            return as_started(await self._client.ask(calls.result(self.id, 0)))
        try:
            return await _outcome(acknowledged, timeout_s)
        except TimeoutError:
            raise not_yet(self, "been acknowledged", timeout_s) from None
        except ConnectionLost:
            self._sent = Sent()  # the next call asks a new daemon
            raise

    async def info(self, timeout_s: float | None = None) -> RunInfo:
        """Wait for the end of the run. Raises TimeoutError when it goes on for longer than ``timeout_s``; 0 only looks and raises nothing."""
        if timeout_s == 0:
            return await self._client.ask(calls.result(self.id, 0))
        try:
            return await _outcome(await self._wait(), timeout_s)
        except TimeoutError:
            raise not_yet(self, "ended", timeout_s) from None
        except (ConnectionLost, RemoteError) as error:
            sent, self._sent = self._sent, Sent()  # the next call asks anew
            if sent.started is not None and isinstance(error, RemoteError):
                await _outcome(sent.started)  # why it was refused says more than that there is no such run
            raise

    async def _wait(self) -> Future[RunInfo]:
        if self._sent.ended is None:
            call = calls.result(self.id, None)
            ended = (await self._client.connection()).request(call.method, call.params, wait=False)
            self._sent = Sent(self._sent.started, ended)
            return ended
        return self._sent.ended

    async def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the function's return value, as JSON. Raises RunFailed, TimeoutError, and RemoteError when the start was refused."""
        return value_of(await self.info(timeout_s))

    async def cancel(self, grace_s: float = 2.0) -> CancelResult:
        """Cancel the run: it may end by itself within ``grace_s``, then its process is killed. Says which it was."""
        return await self._client.ask(calls.cancel(self.id, grace_s))

    async def events(self) -> AsyncGenerator[RunEvent]:
        """What the run does, as it happens, until it has ended: the last event is ``finished`` and its data the `RunInfo`. Raises ConnectionLost."""
        events, self._events = self._events or await self._client.subscribe("run", run_id=self.id), None
        async with events:
            going = True
            if self._sent.started is None:
                going = (await self.info(0)).state not in TERMINAL
            else:
                await self.started()
            while going:
                event = await events.next(LOOK_AGAIN_S)
                if isinstance(event, RunEvent):
                    if event.kind == "finished":
                        break
                    yield event
                # What was dropped on the way may have been the last event.
                elif event is None and (await self._wait()).done():
                    break
            yield finished(await self.info(), events.since)
