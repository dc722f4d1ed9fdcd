"""Nodes, frames and sessions over the store: written in the order in which they were sent, answered when they are committed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

import msgspec
from openprogram_protocol import dag

from openprogram import wire
from openprogram.context.call import Call, Frame, LogEntry
from openprogram.store.base import Store
from openprogram_daemon.core import Core
from openprogram_daemon.peer import Peer

_MOST_NODES = 1000
_MOST_BYTES = 16 * 1024 * 1024
_STEP = 100


async def append(core: Core, peer: Peer, params: dag.AppendParams) -> dag.NodeResult:
    """``openprogram/dag/append``."""

    node = await _append(core, peer, params)
    return dag.NodeResult(node=_acknowledged(node, params.node))


async def opened(core: Core, peer: Peer, params: dag.AppendParams) -> None:
    """``openprogram/dag/opened``."""
    await _append(core, peer, params)


async def _append(core: Core, peer: Peer, params: dag.AppendParams) -> Call:
    def work(connection: sqlite3.Connection) -> Call:
        opens = None if params.opens is None else wire.frame_of(params.opens)
        return core.store.appending(wire.call_of(params.node), opens)(connection)

    node = await core.write(work, peer)
    if node.is_open:
        peer.opened.add(node.id)
    core.node_changed(lambda: node)
    return node


def _acknowledged(node: Call, sent: dag.Node) -> dag.Node:
    """What was sent, with what the store filled in: the values need not be encoded again."""
    reads = None if node.reads is None else (node.reads.frame, node.reads.upto)
    return msgspec.structs.replace(sent, seq=node.seq, predecessor=node.predecessor, reads=reads)


async def update(core: Core, peer: Peer, params: dag.UpdateParams) -> dag.NodeResult:
    """``openprogram/dag/update``."""
    node = await _finish(core, peer, params)
    return dag.NodeResult(node=await core.read(lambda: wire.node_of(node())))


async def closed(core: Core, peer: Peer, params: dag.UpdateParams) -> None:
    """``openprogram/dag/closed``."""
    await _finish(core, peer, params)


async def _finish(core: Core, peer: Peer, params: dag.UpdateParams) -> Callable[[], Call]:
    def work(connection: sqlite3.Connection) -> Callable[[], Call]:
        close = wire.close_of(params)  # in the writing thread: it may be large
        return core.store.finishing(close)(connection)

    node = await core.write(work, peer)
    peer.opened.discard(params.id)
    core.node_changed(node)
    return node


async def messages(core: Core, peer: Peer, params: dag.MessagesParams) -> dag.MessagesResult:
    """``openprogram/dag/messages``."""

    def work() -> list[object]:
        return [msgspec.to_builtins(message) for message in core.views.history(params.node).messages()]

    return dag.MessagesResult(messages=await core.read(work, peer))


async def node(core: Core, peer: Peer, params: dag.NodeParams) -> dag.NodeDetail:
    """``openprogram/dag/node``."""

    def work() -> dag.NodeDetail:
        found = core.store.node(params.id)
        if found is None:
            return dag.NodeDetail()
        prompt = core.views.prompt(found) if params.prompt else None
        return dag.NodeDetail(node=wire.node_of(found), prompt=None if prompt is None else [msgspec.to_builtins(message) for message in prompt])

    return await core.read(work, peer)


async def nodes(core: Core, peer: Peer, params: dag.NodesParams) -> dag.NodesResult:
    """``openprogram/dag/nodes``."""

    def work() -> list[dag.Node]:
        if params.ids is not None:
            return [wire.node_of(found) for found in core.store.nodes(params.ids)]
        return _page(core.store, params)

    return dag.NodesResult(nodes=await core.read(work, peer))


def _page(store: Store, params: dag.NodesParams) -> list[dag.Node]:
    """What was asked for, or as much of it as one message should hold: whoever wants the rest asks behind the last one."""
    found: list[dag.Node] = []
    left, size = min(params.limit, _MOST_NODES), 0
    while size < _MOST_BYTES:
        after = found[-1].seq if found else params.after
        step = [wire.node_of(node) for node in store.page(params.session, after=after, limit=min(left, _STEP))]
        for node in step:
            found.append(node)
            size += sum(len(bytes(value)) for value in (node.input, node.output, node.exchanges))
            if size >= _MOST_BYTES:
                break
        left -= len(step)
        if len(step) < _STEP or left <= 0:
            break
    return found


async def frame(core: Core, peer: Peer, params: dag.FrameParams) -> dag.FrameResult:
    """``openprogram/dag/frame``."""

    def work() -> dag.FrameResult:
        found: Frame | None = core.store.frame(params.id)
        log: Sequence[LogEntry] = () if params.stop == 0 else core.store.log(params.id, params.start, params.stop)
        return dag.FrameResult(frame=None if found is None else wire.frame_info(found), log=[(entry.node, entry.inner) for entry in log])

    return await core.read(work, peer)


async def sessions(core: Core, peer: Peer, params: dag.SessionsParams) -> dag.SessionsResult:
    """``openprogram/sessions``."""

    def work() -> list[dag.SessionInfo]:
        if params.id is not None:
            return [wire.session_info(core.store.session(params.id))]
        return [wire.session_info(found) for found in core.store.sessions(limit=params.limit, offset=params.offset)]

    return dag.SessionsResult(sessions=await core.read(work, peer))


async def create_session(core: Core, peer: Peer, params: dag.SessionCreateParams) -> dag.SessionInfo:
    """``openprogram/session/create``."""
    return wire.session_info(await core.write(core.store.creating_session(params.id, params.title), peer))
