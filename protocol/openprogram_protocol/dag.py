"""Nodes, frames and sessions as they cross the wire: what the store seam needs, and pages for whoever looks."""

from __future__ import annotations

from typing import Any

import msgspec

from openprogram_protocol.runs import Wire


class Node(Wire, frozen=True, kw_only=True):
    """A node. ``input``, ``output``, ``exchanges`` and ``metadata`` are in the stored form of values (see `openprogram.store.values`); so is ``name``, which is
    a plain text unless it holds what UTF-8 cannot."""

    id: str
    session: str
    role: str
    name: Any
    frame: str
    seq: int = 0
    status: str = "running"
    input: msgspec.Raw | Any = None
    output: msgspec.Raw | Any = None
    caller: str | None = None
    predecessor: str | None = None
    reads: tuple[str, int] | None = None
    exchanges: msgspec.Raw | Any = ()
    metadata: msgspec.Raw | Any = {}
    started_at: float = 0.0
    ended_at: float | None = None


class FrameInfo(Wire, frozen=True, kw_only=True):
    """A frame of a session, see `openprogram.context.call.Frame`."""

    id: str
    session: str
    parent: str | None = None
    base: int = 0
    owner: str | None = None


class SessionInfo(Wire, frozen=True, kw_only=True):
    """A session as it is listed."""

    id: str
    title: str = ""
    frame: str = ""
    nodes: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0


class AppendParams(Wire, frozen=True, kw_only=True):
    """Write a node and, for a function, the frame it opens. The reply of ``append`` says that both are committed; ``opened`` is not waited for, and
    every reply behind it comes after its commit."""

    node: Node
    opens: FrameInfo | None = None


class UpdateParams(Wire, frozen=True, kw_only=True):
    """Close a node. The reply of ``update`` says that it is committed; ``closed`` is not waited for, and every reply behind it comes after its commit."""

    id: str
    status: str
    output: msgspec.Raw | Any = None
    exchanges: msgspec.Raw | Any = ()
    metadata: msgspec.Raw | Any = {}
    ended_at: float = 0.0
    enters: bool = False


class NodeResult(Wire, frozen=True, kw_only=True):
    node: Node | None = None


class NodeParams(Wire, frozen=True, kw_only=True):
    """``prompt``: add the exact messages that an llm node was sent."""

    id: str
    prompt: bool = False


class NodeDetail(Wire, frozen=True, kw_only=True):
    node: Node | None = None
    prompt: list[Any] | None = None


class NodesParams(Wire, frozen=True, kw_only=True):
    """A page of a session by ``seq``, or with ``ids`` those nodes."""

    session: str = ""
    after: int = 0
    limit: int = 1000
    ids: list[str] | None = None


class NodesResult(Wire, frozen=True, kw_only=True):
    nodes: list[Node] = []


class FrameParams(Wire, frozen=True, kw_only=True):
    """A frame and the entries ``start`` to ``stop`` of its log, as (node, inner length)."""

    id: str
    start: int = 0
    stop: int | None = None


class FrameResult(Wire, frozen=True, kw_only=True):
    frame: FrameInfo | None = None
    log: list[tuple[str, int]] = []


class MessagesParams(Wire, frozen=True, kw_only=True):
    """The history that an llm node reads, rendered."""

    node: str


class MessagesResult(Wire, frozen=True, kw_only=True):
    messages: list[Any] = []


class SessionCreateParams(Wire, frozen=True, kw_only=True):
    id: str
    title: str = ""


class SessionsParams(Wire, frozen=True, kw_only=True):
    """Sessions, the one written last first; with ``id`` only that one."""

    id: str | None = None
    limit: int = 50
    offset: int = 0


class SessionsResult(Wire, frozen=True, kw_only=True):
    sessions: list[SessionInfo] = []
