"""The store seam: append, close, read. Every backend keeps the same promises, checked by one set of contract tests.

* A call returns when what it wrote is committed: an acknowledged node survives the death of any process.
* ``seq`` is unique in its session and taken at commit, also with several processes on one store.
* The first terminal state of a node wins; closing it again changes nothing.
* Any Python value and any string can be stored; what JSON cannot hold comes back as a typed, readable form (`openprogram.store.values`).
* Any thread may call; after `close` every call raises `StoreClosedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from openprogram.context.call import Branch, Call, Close, Frame, LogEntry, SessionInfo
from openprogram.errors import StoreError

if TYPE_CHECKING:
    from openprogram.store.transfer import Dump


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


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a search found. ``excerpt`` is one line of what it says, around the first word that was looked for."""

    node: str
    session: str
    seq: int
    role: str
    name: str
    status: str
    started_at: float
    excerpt: str


@runtime_checkable
class Archive(Protocol):
    """What a store has besides where its sessions can be searched, taken elsewhere and thrown away."""

    def search(self, query: str, *, session: str | None = None, limit: int = 20, offset: int = 0) -> list[Hit]:
        """The nodes in which every word and ``"quoted phrase"`` of the query occurs (see `openprogram.store.search`), the newest first.

        What is committed is found, also what was written a moment ago and what is still running. Raises UsageError for a query without a word,
        UnknownSessionError.
        """
        ...

    def rename_session(self, session_id: str, title: str) -> SessionInfo:
        """Give a session another title; its id stays. Raises UnknownSessionError."""
        ...

    def delete_session(self, session_id: str, *, force: bool = False) -> SessionInfo:
        """Delete a session with all its nodes and return what it was.

        Raises UnknownSessionError, and StoreError while calls of a living process are open in it; ``force`` deletes it nevertheless, and whatever those calls
        write afterwards is lost.
        """
        ...

    def export(self, session_id: str, write: Callable[[bytes], object]) -> SessionInfo:
        """Hand a session, as it is at one moment, to ``write``, line by line (see `openprogram.store.transfer`). Raises UnknownSessionError."""
        ...

    def load(self, dump: Dump) -> SessionInfo:
        """Write a session that was exported, all of it or nothing. Raises StoreError when the session or one of its nodes is there already."""
        ...


def in_use(session_id: str, calls: int, processes: str) -> StoreError:
    """For a session that is not deleted since somebody works in it."""
    return StoreError(
        f"session {session_id!r} is in use: {calls} call{'' if calls == 1 else 's'} of {processes} {'is' if calls == 1 else 'are'} running in it; "
        "wait for the end, end that process, or delete it by force"
    )
