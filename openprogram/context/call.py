"""The node of the session DAG.

Everything that happened is a `Call`: a function call (role ``code``), a model call (``llm``), something a person said (``user``). A node is written twice:
when it opens, before its work begins, and when it closes; nothing that was written is overwritten.

Two edges: ``caller`` says who invoked me, ``predecessor`` what I follow in the conversation. ``frame`` names the view log I enter when I close (see `view`),
and ``reads`` = ``(frame, k)`` the prompt a model call was given: the frame's base, then the first k entries of its log.
"""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

import msgspec

CallRole = Literal["user", "llm", "code"]
Status = Literal["running", "completed", "error", "cancelled", "interrupted"]
Expose = Literal["io", "llm", "full", "hidden"]

TERMINAL: frozenset[str] = frozenset({"completed", "error", "cancelled", "interrupted"})


def new_id(prefix: str) -> str:
    """A random 128-bit id, made by whoever writes the node: ``prefix-`` and 32 hexadecimal digits."""
    return f"{prefix}-{os.urandom(16).hex()}"


class Reads(NamedTuple):
    """What a model call saw: the base of ``frame`` and the first ``upto`` entries of its log."""

    frame: str
    upto: int


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One node.

    ``seq`` (unique in its session, from 1) and ``predecessor`` are filled in by the store when the node is appended. Times are seconds since the epoch.
    ``input`` is, for code, the arguments by name; for llm, ``{"messages": [...]}``, the messages this call added to the history; for user, what was said.
    ``output`` is the return value, the reply text, or None while running. ``exchanges`` holds, for an llm node, the messages between the prompt and the final
    reply: tool calls and their results as sent.
    """

    id: str
    session: str
    role: CallRole
    name: str
    frame: str
    seq: int = 0
    status: Status = "running"
    input: Any = None
    output: Any = None
    caller: str | None = None
    predecessor: str | None = None
    reads: Reads | None = None
    exchanges: tuple[Any, ...] = ()
    metadata: dict[str, Any] = {}
    started_at: float = 0.0
    ended_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended yet."""
        return self.status == "running"


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """How a node ends. ``metadata`` is merged over what the node was opened with; ``enters`` says whether it joins its frame's view log."""

    id: str
    status: Status
    output: Any = None
    exchanges: tuple[Any, ...] = ()
    metadata: dict[str, Any] = {}
    ended_at: float = 0.0
    enters: bool = False


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Something with a view log: a branch of a session (``owner`` None) or a running function (``owner`` its code node).

    ``parent`` and ``base`` freeze what a nested frame sees of its surroundings: the parent's base and the first ``base`` entries of the parent's log.
    """

    id: str
    session: str
    parent: str | None = None
    base: int = 0
    owner: str | None = None


MAIN = "main"
"""The name of the branch that a session begins with."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch of a session: a frame (``id``) without owner, with a name that is unique in the session.

    It sees ``parent``'s base and the first ``base`` entries of its log, then what enters its own log; a branch without parent begins with nothing. The main
    branch is called `MAIN`.
    """

    id: str
    session: str
    name: str = ""
    parent: str | None = None
    base: int = 0
    created_at: float = 0.0


class LogEntry(NamedTuple):
    """An entry of a view log: the node that closed and, for a code node, how long its own frame's log was at that moment."""

    node: str
    inner: int


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is listed; ``nodes`` counts its nodes, ``frame`` is its main branch. Times are seconds since the epoch."""

    id: str
    title: str = ""
    frame: str = ""
    nodes: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
