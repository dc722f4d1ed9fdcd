"""The client for scripts: each method sends one request and waits for its answer; a lost connection is made anew by the next one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from openprogram_protocol.admin import FunctionResult, FunctionsResult, RunEvent, Since, StatusResult, SubscribeParams
from openprogram_protocol.dag import Node, NodeDetail, SessionInfo
from openprogram_protocol.runs import TERMINAL, CancelResult, RunInfo, RunStarted

from openprogram_clients import calls, launch
from openprogram_clients.connection import Connection
from openprogram_clients.errors import ConnectionLost, RemoteError, RunFailed
from openprogram_clients.events import Events
from openprogram_clients.link import Link, settings

T = TypeVar("T")

LOOK_AGAIN_S = 1.0


def connect(
    root: str | os.PathLike[str] | None = None,
    *,
    start: bool = True,
    trust: bool = False,
    python: str | None = None,
    env: Mapping[str, str] | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Client:
    """A client of this user's daemon, which is started if there is none.

    ``root`` is the workspace, by default the one around the current folder. Its code runs only when it is trusted, which ``trust`` says. ``python`` is the
    interpreter that runs it (default: this one), ``env`` its environment (default: this one's), which the daemon keeps in memory only. ``on_wait`` is told
    when something takes long. Raises DaemonError: NotRunningError with ``start`` false, StartError, VersionError, UnsafePathError.
    """
    client = Client(Link(settings(root, start=start, trust=trust, python=python, env=env, on_wait=on_wait)))
    client.connection  # noqa: B018 - connects, so that what is wrong is said here
    return client


class Client:
    """Made by `connect`; a context manager. Thread-safe. Every method may raise DaemonError, RemoteError, and ConnectionLost when the daemon goes."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def connection(self) -> Connection:
        """The connection; after it was lost, a new one."""
        return self._link.connection()

    @property
    def workspace(self) -> str:
        """The daemon's id of the workspace, which is opened."""
        return self._link.workspace()[1]

    @property
    def warning(self) -> str | None:
        """What the user should know of the daemon, such as that it is older than the installed package."""
        return self._link.warning

    def run(self, function: str, /, **args: Any) -> Any:
        """Run a function with these arguments and return its result as JSON. Raises RunFailed when it did not complete."""
        return self.start(function, args).result()

    def start(
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
    ) -> Run:
        """Start a function and return at once.

        ``function`` is ``file.py:name``, ``package.module:name`` or a bare name that is unique in the workspace. ``run_id`` repeats an earlier start: the same
        run, never a second one. ``watch`` subscribes first, so that `Run.events` misses nothing. Raises ValueError and TypeError for what JSON cannot hold.
        """
        connection, workspace = self._link.workspace()
        run_id = run_id or calls.new_run_id()
        wanted = calls.run(workspace, function, args, run_id, session, model, workdir, deadline_s)
        if not watch:
            return Run(self, run_id, function, Sent(*connection.pipeline(wanted)))
        events = Events(connection, SubscribeParams(topics=["run"], run_id=run_id))
        try:
            subscribed, started, ended = connection.pipeline([events.inbox.request, *wanted])
        except BaseException:
            events.close()
            raise
        subscribed.add_done_callback(events.inbox.settle)
        return Run(self, run_id, function, Sent(started, ended), events)

    def get(self, run_id: str) -> Run:
        """A handle on a run that anybody started."""
        return Run(self, run_id)

    def runs(self, *, active: bool = False, limit: int = 100) -> list[RunInfo]:
        """Runs, newest first; ``active`` only those that have not ended."""
        return self.ask(calls.listed_runs(active, limit))

    def functions(self) -> FunctionsResult:
        """The workspace's functions and what is wrong with its files; found without running any of its code."""
        return self.ask(calls.functions(self.workspace))

    def function(self, name: str) -> FunctionResult:
        """One function, with the JSON Schema of its parameters."""
        return self.ask(calls.function(self.workspace, name))

    def sessions(self, *, limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions, the one written last first."""
        return self.ask(calls.sessions(limit, offset))

    def nodes(self, session: str, *, after: int = 0, limit: int = 1000) -> list[Node]:
        """The nodes of a session in order, those with a ``seq`` over ``after``."""
        return self.ask(calls.nodes(session, after, limit))

    def node(self, node_id: str, *, prompt: bool = False) -> NodeDetail:
        """One node whole; ``prompt`` adds the messages that the model was sent."""
        return self.ask(calls.node(node_id, prompt))

    def status(self) -> StatusResult:
        """The daemon's health."""
        return self.ask(calls.status())

    def subscribe(self, *topics: str, run_id: str | None = None, session: str | None = None, since: Since | None = None) -> Events:
        """Events of these topics (run, dag, functions, status) from now on, or ``since`` an earlier subscription, of one ``run_id`` or ``session``."""
        connection = self._link.workspace()[0] if "functions" in topics else self.connection
        events = Events(connection, SubscribeParams(topics=list(topics), run_id=run_id, session=session, since=since))
        try:
            events.inbox.answered(connection.call(*events.inbox.request))
        except BaseException:
            events.close()
            raise
        return events

    def stop(self, *, drain: bool = False, timeout_s: float = 30.0) -> None:
        """Stop the daemon and wait until it is gone; with ``drain`` its runs may end first. Raises NotRunningError when there is none."""
        connection = self._link.connection(start=False)
        launch.stop(connection, connection.call("openprogram/status", calls.status().params).pid, drain=drain, timeout_s=timeout_s)

    def ask(self, call: calls.Call[T]) -> T:
        """Send any request of `openprogram_clients.calls` and wait for its answer."""
        return call.read(self.connection.call(call.method, call.params))

    def close(self) -> None:
        """End the connection. Runs go on."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Sent:
    """The two requests of a run that wait for their answers: its start and its end. In a forked process nobody answers those of its parent."""

    def __init__(self, started: Future[Any] | None = None, ended: Future[Any] | None = None) -> None:
        self._futures = (started, ended)
        self._pid = os.getpid()

    @property
    def started(self) -> Future[RunStarted] | None:
        return self._futures[0] if self._pid == os.getpid() else None

    @property
    def ended(self) -> Future[RunInfo] | None:
        return self._futures[1] if self._pid == os.getpid() else None


class Run:
    """A run, wherever it was started. ``id`` finds it again, also from another process."""

    def __init__(self, client: Client, run_id: str, function: str = "", sent: Sent | None = None, events: Events | None = None) -> None:
        self.id = run_id
        self.function = function
        self._client = client
        self._sent = sent or Sent()
        self._events = events

    def started(self, timeout_s: float | None = None) -> RunStarted:
        """Wait until the start is acknowledged. Raises TimeoutError, and RemoteError when it was refused."""
        acknowledged = self._sent.started
        if acknowledged is None:
            return as_started(self._client.ask(calls.result(self.id, 0)))
        try:
            return acknowledged.result(timeout_s)
        except TimeoutError:
            raise not_yet(self, "been acknowledged", timeout_s) from None
        except ConnectionLost:
            self._sent = Sent()  # the next call asks a new daemon
            raise

    def info(self, timeout_s: float | None = None) -> RunInfo:
        """Wait for the end of the run. Raises TimeoutError when it goes on for longer than ``timeout_s``; 0 only looks and raises nothing."""
        if timeout_s == 0:
            return self._client.ask(calls.result(self.id, 0))
        try:
            return self._wait().result(timeout_s)
        except TimeoutError:
            raise not_yet(self, "ended", timeout_s) from None
        except (ConnectionLost, RemoteError) as error:
            sent, self._sent = self._sent, Sent()  # the next call asks anew
            if sent.started is not None and isinstance(error, RemoteError):
                sent.started.result()  # why it was refused says more than that there is no such run
            raise

    def _wait(self) -> Future[RunInfo]:
        sent = self._sent
        if sent.ended is not None:
            return sent.ended
        call = calls.result(self.id, None)
        ended = self._client.connection.request(call.method, call.params)
        self._sent = Sent(sent.started, ended)
        return ended

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the function's return value, as JSON. Raises RunFailed, TimeoutError, and RemoteError when the start was refused."""
        return value_of(self.info(timeout_s))

    def cancel(self, grace_s: float = 2.0) -> CancelResult:
        """Cancel the run: it may end by itself within ``grace_s``, then its process is killed. Says which it was."""
        return self._client.ask(calls.cancel(self.id, grace_s))

    def events(self) -> Iterator[RunEvent]:
        """What the run does, as it happens, until it has ended: the last event is ``finished`` and its data the `RunInfo`. Raises ConnectionLost."""
        events, self._events = self._events or self._client.subscribe("run", run_id=self.id), None
        with contextlib.closing(events):
            going = True
            if self._sent.started is None:
                going = self.info(0).state not in TERMINAL
            else:
                self.started()
            while going:
                event = events.next(LOOK_AGAIN_S)
                if isinstance(event, RunEvent):
                    if event.kind == "finished":
                        break
                    yield event
                # What was dropped on the way may have been the last event.
                elif event is None and self._wait().done():
                    break
            yield finished(self.info(), events.since)


class Named(Protocol):
    """What messages say of a run."""

    id: str
    function: str


def not_yet(run: Named, what: str, timeout_s: float | None) -> TimeoutError:
    """The error of a wait that was too short."""
    return TimeoutError(f"{run.function or 'the run'} ({run.id}) has not {what} within {timeout_s or 0:g} s; it goes on")


def as_started(info: RunInfo) -> RunStarted:
    """The acknowledgement of a run that is known."""
    return RunStarted(run_id=info.run_id, session=info.session, repeated=True)


def value_of(info: RunInfo) -> Any:
    """What a run returned. Raises RunFailed when it did not complete, TimeoutError when it has not ended."""
    if info.state == "completed":
        return info.result
    if info.state not in TERMINAL:
        raise TimeoutError(f"{info.function} ({info.run_id}) has not ended; it is {info.state}")
    raise RunFailed(info)


def finished(info: RunInfo, since: Since | None) -> RunEvent:
    """The last event of a run, with what it returned and printed."""
    return RunEvent(seq=0 if since is None else since.seq, run_id=info.run_id, kind="finished", data=info)
