"""Model requests: the history is rendered here, the events go out in batches, the last of them with the reply."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, cast

import msgspec
from openprogram_protocol.admin import RunEvent
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.model import CancelStream, ModelEvents, ProfileParams, ProfileResult, StreamParams, StreamResult

from openprogram import wire
from openprogram.providers.base import ModelEvent, TextDelta
from openprogram_daemon.core import Core
from openprogram_daemon.errors import RefusedError
from openprogram_daemon.events import Key
from openprogram_daemon.peer import Peer
from openprogram_daemon.workspaces import Workspace


class _Batch:
    """Events that arrive together leave together."""

    def __init__(self, core: Core, peer: Peer, stream: str) -> None:
        self._core = core
        self._peer = peer
        self._stream = stream
        self._events: list[Any] = []
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        self.count = 0

    def add(self, event: ModelEvent) -> None:
        self.count += 1
        self._events.append(wire.event_data(event))
        if self._handle is None:
            self._handle = self._loop.call_soon(self.flush)
        run_id = self._peer.serving
        if run_id is not None and isinstance(event, TextDelta):
            text = event.text
            self._core.events.publish(Key("run", run_id), lambda seq: RunEvent(seq=seq, run_id=run_id, kind="delta", data=text))

    def flush(self) -> None:
        if events := self.take():
            self._peer.notify("openprogram/model/events", ModelEvents(stream=self._stream, events=events))

    def take(self) -> list[Any]:
        """The events that have not left."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        events, self._events = self._events, []
        return events


def _workspace(core: Core, peer: Peer, named: str) -> Workspace | None:
    return core.workspaces.get(named) if named else core.workspaces.find(peer.workspace)


async def stream(core: Core, peer: Peer, params: StreamParams) -> StreamResult:
    """``openprogram/model/stream``."""
    if params.stream in peer.streams:
        raise RefusedError(ErrorCode.INVALID_PARAMS, f"a stream {params.stream[:80]!r} is open already - at `$.stream`")
    peer.streams[params.stream] = cast("asyncio.Task[Any]", asyncio.current_task())
    try:
        async with core.models.lend(_workspace(core, peer, params.workspace), params.model) as lent:
            node = params.node
            history = None if node is None else await core.read(lambda: core.views.history(node), peer)
            request = wire.request_of(params, model=lent.name, history=history)
            batch = _Batch(core, peer, params.stream)
            async with aclosing(lent.provider.stream(request)) as events:
                async for event in events:
                    batch.add(event)
                    await peer.room()
            return StreamResult(events=batch.count, last=batch.take())
    finally:
        del peer.streams[params.stream]


async def cancel(core: Core, peer: Peer, params: CancelStream) -> None:
    """``openprogram/model/cancel``."""
    if (task := peer.streams.get(params.stream)) is not None:
        task.cancel()


async def profile(core: Core, peer: Peer, params: ProfileParams) -> ProfileResult:
    """``openprogram/model/profile``."""
    async with core.models.lend(_workspace(core, peer, params.workspace), params.model) as lent:
        return ProfileResult(model=lent.model, profile=msgspec.to_builtins(lent.provider.profile(lent.name)))
