"""The store seam: append, close, read. Every backend keeps the same promises, checked by one set of contract tests.

* A call returns when what it wrote is committed: an acknowledged node survives the death of any process.
* ``seq`` is unique in its session and taken at commit, also with several processes on one store.
* The first terminal state of a node wins; closing it again changes nothing.
* Any Python value and any string can be stored; what JSON cannot hold comes back as a typed, readable form (`openprogram.store.values`).
* Any thread may call; after `close` every call raises `StoreClosedError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from openprogram.context.call import Branch, Call, Close, Frame, LogEntry, SessionInfo


@runtime_checkable
class Store(Protocol):
    """Where sessions are kept."""

    def create_session(self, session_id: str, *, title: str = "") -> SessionInfo:
        """Make the session and its main branch, or return the one that exists (``title`` then stays as it was unless it was empty).

        Raises ValueError for an id that is empty, over 200 characters, not printable, or a path (``/``, ``\\``, ``.``, ``..``).
        """
        ...

    def session(self, session_id: str) -> SessionInfo:
        """The session of that id; raises UnknownSessionError."""
        ...

    def sessions(self, *, limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions, the one written last first."""
        ...

    def append(self, call: Call, *, opens: Frame | None = None) -> Call:
        """Write a node and, for a function, the frame it opens, in one commit.

        Returns the node with ``seq``, and where they were left open ``predecessor`` (the last entry of its frame's log; of a branch whose log is empty, the
        entry after which it was made) and, for an llm node, ``reads = (frame, length of the log now)``, filled in. ``opens.base`` is set to the length of the
        parent's log now. Raises StoreError for an id that exists already, an unknown frame, a ``predecessor`` that the session does not hold, and a node that
        would have none although its branch goes on from somewhere.
        """
        ...

    def finish(self, close: Close) -> Call:
        """Close a node and, if ``enters``, put it at the end of its frame's view log, in one commit; return the node as it stands."""
        ...

    def node(self, node_id: str) -> Call | None:
        """One node, whole."""
        ...

    def nodes(self, node_ids: Iterable[str]) -> list[Call]:
        """Several nodes, whole, in the order asked for; unknown ids are left out."""
        ...

    def page(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Call]:
        """Nodes of a session by ``seq``, those greater than ``after``."""
        ...

    def frame(self, frame_id: str) -> Frame | None:
        """One frame."""
        ...

    def log(self, frame_id: str, start: int = 0, stop: int | None = None) -> Sequence[LogEntry]:
        """The entries ``start`` to ``stop`` of a frame's view log."""
        ...

    def close(self) -> None:
        """Release everything; may be called twice."""
        ...


@runtime_checkable
class Branching(Protocol):
    """What a store has besides where its sessions can have branches."""

    def open_branch(self, branch: Branch) -> Branch:
        """Write a branch; its name is made up where it is empty.

        Raises StoreError for an id or name that exists already, and for a parent that is no branch of the session or has fewer than ``base`` entries;
        UsageError for a name that cannot be one.
        """
        ...

    def branches(self, session_id: str) -> list[Branch]:
        """The branches of a session, the main one first, then as they were made. Raises UnknownSessionError."""
        ...


@runtime_checkable
class OneWay(Protocol):
    """What a store behind a connection has besides: writes that are sent and not waited for.

    They are written in the order in which they were sent, and every later answer of the same connection comes behind their commit. A failure is logged
    where the store is.
    """

    def post_append(self, call: Call, opens: Frame | None) -> None:
        """`Store.append` without its result."""
        ...

    def post_finish(self, close: Close) -> None:
        """`Store.finish` without its result."""
        ...
