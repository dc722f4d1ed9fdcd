"""The shared runtime: the same loop, with a provider and a store that live in the daemon.

`connect` gives a `Runtime` on the daemon's model connections; what runs inside is recorded in the daemon's store. No history crosses: a model request names
the llm node that reads it, and the daemon renders it from the store. A worker builds the same two objects on the socket it was given.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextvars import Token
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from openprogram_protocol import dag
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.model import CancelStream, ModelEvents, ProfileParams, StreamResult

from openprogram.context import scope as scopes
from openprogram.context.call import Call, Close, Frame, LogEntry, SessionInfo
from openprogram.errors import (
    LLMError,
    NoModelError,
    OpenProgramError,
    Reason,
    StoreClosedError,
    StoreError,
    UnknownModelError,
    UnknownSessionError,
    UsageError,
)
from openprogram.providers.base import ModelEvent, ModelRequest, Profile
from openprogram.store.ids import check_session_id
from openprogram.wire import (
    call_of,
    event_of,
    frame_info,
    frame_of,
    node_of,
    profile_of,
    session_of,
    stream_params,
    update_of,
    without_surrogates,
)

if TYPE_CHECKING:
    from openprogram_clients import Client
    from openprogram_clients.connection import Connection, RemoteError

    from openprogram.agentic_programming.runtime import Runtime
    from openprogram.agentic_programming.session import Session

EVENTS = "openprogram/model/events"


def _connection_of(source: Any) -> Connection:
    """Where requests go now: a ``source`` is one connection, or a client, which connects again (to a new daemon, if need be) after its connection was lost."""
    return getattr(source, "connection", source)


class RemoteStore:
    """The daemon's store over a connection, with every promise of the store seam: a call returns when the daemon has committed. `OneWay` writes do not wait.

    Where ``source`` is a client, a call during which the daemon goes away reaches the next one; else it raises StoreError.
    """

    def __init__(self, source: Connection | Client) -> None:
        self.source = source
        self._closed = False

    @property
    def connection(self) -> Connection:
        """The connection to use now."""
        return _connection_of(self.source)

    def _call(self, method: str, params: Any, *, again: Callable[[], Any] | None = None) -> Any:
        """Ask; once more where the connection was lost and there is a way to a new one. ``again`` is first asked then whether it was done already."""
        from openprogram_clients.errors import ConnectionLost, DaemonError, RemoteError

        if self._closed:
            raise StoreClosedError("this store was closed")
        try:
            try:
                return self.connection.call(method, params)
            except ConnectionLost:
                if self.connection is self.source:
                    raise
                done = again() if again is not None else None
                return done if done is not None else self.connection.call(method, params)
        except (ConnectionLost, DaemonError) as error:
            raise StoreError(f"the daemon that keeps the store is gone: {error}") from error
        except RemoteError as error:
            raise _store_error(error) from error

    def create_session(self, session_id: str, *, title: str = "") -> SessionInfo:
        check_session_id(session_id)
        return session_of(self._call("openprogram/session/create", dag.SessionCreateParams(id=session_id, title=title)))

    def session(self, session_id: str) -> SessionInfo:
        return session_of(self._call("openprogram/sessions", dag.SessionsParams(id=session_id)).sessions[0])

    def sessions(self, *, limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        return [session_of(info) for info in self._call("openprogram/sessions", dag.SessionsParams(limit=limit, offset=offset)).sessions]

    def append(self, call: Call, *, opens: Frame | None = None) -> Call:
        params = dag.AppendParams(node=node_of(call), opens=None if opens is None else frame_info(opens))
        written = self._call("openprogram/dag/append", params, again=lambda: self._written(call.id))
        return call_of(written.node)

    def _written(self, node_id: str) -> Any:
        found = self._call("openprogram/dag/node", dag.NodeParams(id=node_id))
        return found if found.node is not None else None

    def finish(self, close: Close) -> Call:
        return call_of(self._call("openprogram/dag/update", update_of(close)).node)

    def post_append(self, call: Call, opens: Frame | None) -> None:
        self._post("openprogram/dag/opened", dag.AppendParams(node=node_of(call), opens=None if opens is None else frame_info(opens)))

    def post_finish(self, close: Close) -> None:
        self._post("openprogram/dag/closed", update_of(close))

    def _post(self, method: str, params: Any) -> None:
        if self._closed:
            raise StoreClosedError("this store was closed")
        self.connection.notify(method, params)

    def node(self, node_id: str) -> Call | None:
        node = self._call("openprogram/dag/node", dag.NodeParams(id=node_id)).node
        return None if node is None else call_of(node)

    def nodes(self, node_ids: Iterable[str]) -> list[Call]:
        ids = list(node_ids)
        return [call_of(node) for node in self._call("openprogram/dag/nodes", dag.NodesParams(ids=ids)).nodes] if ids else []

    def page(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Call]:
        params = dag.NodesParams(session=session_id, after=after, limit=limit)
        return [call_of(node) for node in self._call("openprogram/dag/nodes", params).nodes]

    def frame(self, frame_id: str) -> Frame | None:
        frame = self._call("openprogram/dag/frame", dag.FrameParams(id=frame_id, stop=0)).frame
        return None if frame is None else frame_of(frame)

    def log(self, frame_id: str, start: int = 0, stop: int | None = None) -> Sequence[LogEntry]:
        found = self._call("openprogram/dag/frame", dag.FrameParams(id=frame_id, start=start, stop=stop))
        return [LogEntry(*entry) for entry in found.log]

    def close(self) -> None:
        self._closed = True


def _store_error(error: RemoteError) -> Exception:
    if error.code == ErrorCode.UNKNOWN_SESSION:
        return UnknownSessionError(error.message)
    if error.code in (ErrorCode.USAGE, ErrorCode.INVALID_PARAMS):
        return UsageError(error.message)
    return StoreError(error.message)


class _Streams:
    """The streams that are open on one connection: notifications find theirs by id."""

    def __init__(self, connection: Connection) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue[ModelEvent | None]]] = {}
        connection.on(EVENTS, self._arrived)

    def open(self, stream: str) -> asyncio.Queue[ModelEvent | None]:
        queue: asyncio.Queue[ModelEvent | None] = asyncio.Queue()
        with self._lock:
            self._open[stream] = (asyncio.get_running_loop(), queue)
        return queue

    def close(self, stream: str) -> None:
        with self._lock:
            self._open.pop(stream, None)

    def put(self, stream: str, events: list[ModelEvent | None]) -> None:
        """Hand events to the loop that waits; a loop that has ended waits no more."""
        with self._lock:
            found = self._open.get(stream)
        if found is None or found[0].is_closed():
            return
        loop, queue = found
        loop.call_soon_threadsafe(lambda: [queue.put_nowait(event) for event in events])

    def _arrived(self, params: ModelEvents) -> None:
        self.put(params.stream, [event_of(event) for event in params.events])


class RemoteProvider:
    """The daemon's model connections. ``model`` is a ``"provider:model"``; empty: what the daemon chooses for the workspace, which is the client's when
    ``source`` is one: then requests reach the new daemon after the old one went away."""

    def __init__(self, source: Connection | Client, *, model: str = "", workspace: str = "") -> None:
        self.source = source
        self._given = workspace
        self._streams: tuple[Connection, _Streams] | None = None
        self._profiles: dict[str, Profile] = {}
        self.model, profile = self._ask(model)
        self.name = self.model.partition(":")[0]
        self._profiles[self.model] = profile

    def _ask(self, model: str) -> tuple[str, Profile]:
        from openprogram_clients.connection import RemoteError

        connection, workspace = self._place()
        try:
            found = connection.call("openprogram/model/profile", ProfileParams(model=model, workspace=workspace))
        except RemoteError as error:
            raise _model_error(error) from error
        return found.model, profile_of(found.profile)

    def _place(self) -> tuple[Connection, str]:
        """The connection to use now, and the workspace opened in it. May wait for a daemon to start."""
        if not hasattr(self.source, "connection"):
            return _connection_of(self.source), self._given
        workspace = cast("Client", self.source).workspace
        return _connection_of(self.source), self._given or workspace

    async def _reached(self) -> tuple[Connection, str]:
        from openprogram_clients.errors import ClientError

        if not hasattr(self.source, "connection"):
            return self._place()
        try:
            return await asyncio.to_thread(self._place)
        except ClientError as error:
            raise LLMError(f"the daemon cannot be reached: {error}", reason=Reason.CONNECTION) from error

    def _streams_of(self, connection: Connection) -> _Streams:
        if self._streams is None or self._streams[0] is not connection:
            self._streams = (connection, _Streams(connection))
        return self._streams[1]

    def _full(self, model: str) -> str:
        return model if model.startswith(f"{self.name}:") else f"{self.name}:{model}"

    def profile(self, model: str) -> Profile:
        full = self._full(model)
        if full not in self._profiles:
            self._profiles[full] = self._ask(full)[1]
        return self._profiles[full]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        stream = os.urandom(16).hex()
        connection, workspace = await self._reached()
        streams = self._streams_of(connection)
        queue = streams.open(stream)
        params = stream_params(request, stream=stream, model=self._full(request.model), workspace=workspace, node=self._recorded(request))
        # The reply is sent after the events and read by the same thread, so its callback runs behind theirs.
        try:
            reply = connection.request("openprogram/model/stream", params)
        except UnicodeEncodeError:
            reply = connection.request("openprogram/model/stream", without_surrogates(params))
        reply.add_done_callback(lambda done: streams.put(stream, [*_last_events(done), None]))
        seen = False
        try:
            while (event := await queue.get()) is not None:
                seen = True
                yield event
            _outcome(reply, can_repeat=not seen and connection is not self.source)
        finally:
            streams.close(stream)
            if not reply.done():
                connection.notify("openprogram/model/cancel", CancelStream(stream=stream))

    def _recorded(self, request: ModelRequest) -> str | None:
        """The node that names the history, if the daemon knows it: what a local or hidden frame holds must be sent along."""
        history = request.history
        if history is None:
            return None
        store = getattr(history, "store", None)
        return history.node if isinstance(store, RemoteStore) and store.source is self.source else None

    async def aclose(self) -> None:
        return None


def _last_events(reply: Future[StreamResult]) -> list[ModelEvent]:
    failed = reply.cancelled() or reply.exception() is not None
    return [] if failed else [event_of(event) for event in reply.result().last]


def _outcome(reply: Future[StreamResult], *, can_repeat: bool) -> None:
    """Raise what ended a stream, if anything did. ``can_repeat``: nothing of it was seen, and there is a way to a new daemon."""
    from openprogram_clients.connection import ConnectionLost, RemoteError

    try:
        reply.result()
    except ConnectionLost as error:
        raise LLMError(f"the daemon went away during a model request: {error}", reason=Reason.CONNECTION, retryable=can_repeat) from error
    except RemoteError as error:
        raise _model_error(error) from error


def _model_error(error: RemoteError) -> Exception:
    if error.code == ErrorCode.NO_MODEL:
        return NoModelError(error.message)
    if error.code == ErrorCode.CONFIGURATION:
        return UnknownModelError(error.message)
    if error.code == ErrorCode.LLM:
        known = {"reason", "retryable", "http_status", "retry_after_s", "attempts", "elapsed_s", "provider", "model", "transport_exhausted"}
        return LLMError(error.message, **{name: value for name, value in error.data.items() if name in known})
    if error.code == ErrorCode.REQUEST_CANCELLED:
        return LLMError(error.message, reason=Reason.CONNECTION, retryable=True)
    return OpenProgramError(error.message)


class Connected:
    """What `connect` returns: a context manager whose value is the Runtime."""

    def __init__(self, root: str | Path | None, session: str | None, title: str | None, model: str) -> None:
        self._root = root
        self._session_id = session
        self._title = title
        self._model = model
        self._client: Client | None = None
        self._session: Session | None = None
        self._runtime: Runtime | None = None
        self._token: Token[Any] | None = None

    @property
    def session(self) -> Session:
        """The session that is being written. Raises RuntimeError before the block was entered."""
        if self._session is None:
            raise RuntimeError("the session is opened by `with openprogram.connect(...)`")
        return self._session

    def __enter__(self) -> Runtime:
        import openprogram_clients

        from openprogram.agentic_programming.runtime import Runtime
        from openprogram.agentic_programming.session import Session

        self._client = openprogram_clients.connect(self._root)
        try:
            provider = RemoteProvider(self._client, model=self._model)
            self._session = Session(self._session_id, title=self._title, store=RemoteStore(self._client))
            self._session.__enter__()
        except BaseException:
            self._client.close()
            raise
        self._runtime = Runtime(provider=provider, model=provider.model)
        self._token = scopes.host_runtime.set(self._runtime)
        return self._runtime

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._client and self._session and self._runtime and self._token
        scopes.host_runtime.reset(self._token)
        self._session.__exit__(kind, error, trace)
        self._runtime.close()
        self._client.close()

    async def __aenter__(self) -> Runtime:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.__exit__(kind, error, trace)


def connect(root: str | Path | None = None, *, session: str | None = None, title: str | None = None, model: str = "") -> Connected:
    """``with openprogram.connect() as runtime``: a Runtime on the daemon, started if there is none; calls inside are recorded in its store.

    ``root`` is the workspace (default: the one around the current folder), ``session`` an id to go on with, ``model`` a ``"provider:model"``. Functions that
    declare a runtime get this one. Raises the clients' errors when no daemon can be started, NoModelError when it has no model.
    """
    return Connected(root, session, title, model)
