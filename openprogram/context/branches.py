"""Branches of a session: where one begins, what stands on it, and that its chain is whole.

A branch is a frame with a log of its own. Making one copies nothing and changes nothing: it says after how many entries of its parent it goes on. What replaces
a node gets the same predecessor as that node, so the two are siblings, and neither sees the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from openprogram.context.call import Branch, Call, Frame, new_id
from openprogram.context.rendering import said, sent_messages
from openprogram.errors import StoreCorruptError, StoreError, UsageError

if TYPE_CHECKING:
    from openprogram.store.base import Branching, Store


def branching(store: Store) -> Branching:
    """The store, if its sessions can have branches; raises StoreError for one that keeps only the main branch."""
    from typing import cast

    if not hasattr(store, "open_branch"):
        raise StoreError(f"a {type(store).__name__} keeps the main branch of a session only; open the store itself to make and read branches")
    return cast("Branching", store)


def find(store: Store, session_id: str, name: str) -> Branch:
    """The branch of that name, or that id. Raises UsageError for an unknown one."""
    found = branching(store).branches(session_id)
    for branch in found:
        if name in (branch.name, branch.id):
            return branch
    raise UsageError(f"session {session_id!r} has no branch {name!r}; it has {', '.join(branch.name for branch in found)}")


def fork(store: Store, branch: Branch, after: str | None = None, *, name: str = "") -> Branch:
    """A branch that goes on after the node ``after``, by default after all that stands on ``branch`` now.

    Raises UsageError for a node that nothing can follow: unknown, inside a function, or one that never entered the conversation.
    """
    if after is None:
        return _made(store, branch.session, branch.id, len(store.log(branch.id)), name)
    node, frame = _on_a_branch(store, branch.session, after)
    place = _place(store, frame.id, node.id)
    if place is None:
        raise UsageError(
            f"node {node.id} is {node.status} and not part of the conversation, so nothing can follow it; use retry() to put something in its place"
        )
    return _made(store, branch.session, frame.id, place + 1, name)


def sibling(store: Store, session_id: str, node_id: str, *, name: str = "") -> Branch:
    """A branch on which something else can stand in the place of a node, whichever way that ended: its first node gets the same predecessor.

    Raises UsageError for a node that is unknown or inside a function.
    """
    node, frame = _on_a_branch(store, session_id, node_id)
    place = None if node.predecessor is None else _place(store, frame.id, node.predecessor)
    return _made(store, session_id, frame.id, 0 if place is None else place + 1, name)


def spawn(store: Store, session_id: str, *, name: str = "") -> Branch:
    """A branch that begins with nothing."""
    return branching(store).open_branch(Branch(id=new_id("frame"), session=session_id, name=name))


def _made(store: Store, session_id: str, parent: str, base: int, name: str) -> Branch:
    return branching(store).open_branch(Branch(id=new_id("frame"), session=session_id, name=name, parent=parent, base=base))


def _on_a_branch(store: Store, session_id: str, node_id: str) -> tuple[Call, Frame]:
    node = store.node(node_id)
    if node is None or node.session != session_id:
        raise UsageError(f"session {session_id!r} holds no node {node_id!r}")
    frame = store.frame(node.frame)
    if frame is None:
        raise StoreCorruptError(f"node {node.id} stands in frame {node.frame}, but the store does not hold that one")
    if frame.owner is not None:
        raise UsageError(
            f"node {node.id} ran inside a function, node {frame.owner}; branches are made where nodes stand on a branch, so name that function's node"
        )
    return node, frame


def _place(store: Store, frame_id: str, node_id: str) -> int | None:
    return next((place for place, entry in enumerate(store.log(frame_id)) if entry.node == node_id), None)


def entries(store: Store, frame_id: str) -> list[str]:
    """The ids of the nodes that stand on a branch, from its beginning to its head, those of the branches it goes on from included.

    Raises StoreCorruptError where the chain is broken, naming the frame.
    """
    parts: list[list[str]] = []
    frame, stop = store.frame(frame_id), None
    while frame is not None:
        log = store.log(frame.id, 0, stop)
        if stop is not None and len(log) < stop:
            raise StoreCorruptError(f"a branch goes on from entry {stop} of frame {frame.id}, whose log holds {len(log)}")
        parts.append([entry.node for entry in log])
        if frame.parent is None:
            return [node for part in reversed(parts) for node in part]
        frame_id, stop = frame.parent, frame.base
        frame = store.frame(frame_id)
    raise StoreCorruptError(f"a branch goes on from frame {frame_id}, but the store does not hold that one")


def head(store: Store, frame_id: str) -> str | None:
    """The node that the next one on a branch will follow; None at the beginning."""
    return next(reversed(entries(store, frame_id)), None)


def conversation(store: Store, frame_id: str) -> list[Call]:
    """The nodes that stand on a branch, in order. Raises StoreCorruptError for one that the store has lost, naming it."""
    ids = entries(store, frame_id)
    found = {node.id: node for node in store.nodes(ids)}
    if lost := [node_id for node_id in ids if node_id not in found]:
        raise StoreCorruptError(f"node {lost[0]} stands on branch {frame_id}, but the store does not hold it ({len(lost)} such nodes)")
    return [found[node_id] for node_id in ids]


def chain(store: Store, node_id: str) -> Iterator[Call]:
    """A node, what it followed, what that followed, to the beginning. Raises StoreCorruptError for a broken chain or one that never ends, naming the node."""
    seen: set[str] = set()
    wanted, by = node_id, ""
    while True:
        node = store.node(wanted)
        if node is None:
            raise StoreCorruptError(f"node {by} follows {wanted}, but the store does not hold that one") if by else UsageError(f"there is no node {wanted!r}")
        if node.id in seen:
            raise StoreCorruptError(f"node {node.id} follows itself, by way of {by}")
        seen.add(node.id)
        yield node
        if node.predecessor is None:
            return
        wanted, by = node.predecessor, node.id


def content_of(node: Call) -> list[dict[str, Any]] | None:
    """What a turn added to its history, as content blocks that `Runtime.exec` takes; None for a function, whose arguments are ``node.input``."""
    if node.role == "code":
        return None
    messages = sent_messages(node) if node.role == "llm" else said(node)
    return [
        {**block, "role": "assistant"} if message.role == "assistant" and block.get("type") == "text" else block
        for message in messages
        for block in message.blocks
    ]
