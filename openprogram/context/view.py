"""View logs rendered to messages: what a model call sees of the past.

A frame has a *base*, frozen when it opened (its parent's base, the parent's log up to that moment, its own entry line), and a *log*, append-only. A node is
rendered when it has closed, from the node alone, so that any historical prompt can be reproduced from the store: base, then ``log[:k]``, then what the call
added. A `View` keeps what was rendered of one frame and reads only the entries that are new.

A compaction is an entry of the log, too: it opens an *epoch*, in which a summary stands for what was before. What was asked before it is shown as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from openprogram.context.call import Call, Frame, LogEntry
from openprogram.context.fragments import Form, Names, Stretch, flat_blocks
from openprogram.context.messages import Block, Message
from openprogram.context.rendering import (
    Fragment,
    entry_line,
    error_line,
    result_line,
    said,
    sent_messages,
    stubbed,
    summary_fragment,
    transcript,
)
from openprogram.errors import StoreCorruptError

if TYPE_CHECKING:
    from openprogram.store.base import Store


MOST_CLOSED = 64
"""So many nodes are kept until they are rendered; a frame in which nobody asks a model never renders any."""


class Base:
    """What a frame begins with: all that ``parent`` showed at ``upto``, then ``own``. Read when it is first wanted."""

    def __init__(self, own: Sequence[Fragment] = (), *, parent: View | None = None, upto: int = 0) -> None:
        self._own = Stretch(own)
        self._parent = parent
        self._upto = upto
        self._encoded: dict[Form, list[bytes]] = {}

    @property
    def outside(self) -> tuple[View | None, int]:
        """The view of the frame around, and how many entries of its log are seen of it."""
        return self._parent, self._upto

    def fragments(self) -> list[Fragment]:
        """All of it."""
        return [*(self._parent.fragments(self._upto) if self._parent else ()), *self._own.fragments]

    def messages(self, last: int | None) -> list[Message]:
        """The messages of the last entries, or of all."""
        own = len(self._own)
        if self._parent is None or (last is not None and last <= own):
            return self._own.messages(_first(own, last), own)
        before = self._parent.messages(self._upto) if last is None else self._messages_of(self._parent.fragments(self._upto), last - own)
        return [*before, *self._own.messages(0, own)]

    def blocks(self) -> list[Block]:
        """The blocks of all its messages, see `Stretch.blocks`."""
        return [*(self._parent.blocks(self._upto) if self._parent else ()), *self._own.blocks(0, len(self._own))]

    def _messages_of(self, fragments: Sequence[Fragment], last: int) -> list[Message]:
        return [message for fragment in fragments[_first(len(fragments), last) :] for message in fragment.messages]

    def tokens(self) -> int:
        """About how many tokens all of it takes."""
        return self._own.tokens(0, len(self._own)) + (self._parent.tokens(self._upto) if self._parent else 0)

    def encoded(self, form: Form) -> list[bytes]:
        """All of it in a provider's bytes, in pieces."""
        if (made := self._encoded.get(form)) is None:
            own = self._own.encoded(form, 0, len(self._own), self._before(form))
            made = self._encoded[form] = [*(self._parent.encoded(form, self._upto) if self._parent else ()), own]
        return made

    def names(self, form: Form) -> Names:
        """The tool-call ids in it."""
        return self._own.names(form, len(self._own), self._before(form))

    def _before(self, form: Form) -> Names | None:
        return self._parent.names(form, self._upto) if self._parent else None


class LateBase(Base):
    """The base of a frame that was opened in another process, which knows where it begins. Read when somebody renders it: mostly that other process does."""

    def __init__(self, store: Store, frame: Frame, parent: View | None = None, owner: Call | None = None) -> None:
        self._late = (store, frame, parent, owner)

    def __getattr__(self, name: str) -> Any:
        if name not in ("_own", "_parent", "_upto", "_encoded"):
            raise AttributeError(name)
        store, frame, parent, owner = self._late
        written = store.frame(frame.id)
        if written is None:
            raise StoreCorruptError(f"frame {frame.id} was opened, but the store does not hold it")
        if parent is None:
            found = inner_view(store, written, view_of(store, written.parent) if written.parent else None)
        else:
            found = view_inside(parent, written, owner)
        self.__dict__.update(found.base.__dict__)
        return self.__dict__[name]


class Epoch:
    """From entry ``start`` of the log on, prompts are made of ``base`` and ``log``; the first ``head`` fragments of ``log`` are older than that."""

    def __init__(self, start: int, base: Base, head: Sequence[Fragment] = (), compaction: Call | None = None) -> None:
        self.start = start
        self.base = base
        self.head = len(head)
        self.log = Stretch(head)
        self.compaction = compaction

    def stop(self, upto: int) -> int:
        """Where ``upto`` entries of the frame's log end in this epoch's."""
        return upto - self.start + self.head


class View:
    """The rendered fragments of one frame; safe to share between threads."""

    def __init__(self, store: Store, frame: Frame, base: Base) -> None:
        self.store = store
        self.frame = frame
        self._epochs = [Epoch(0, base)]
        self._raw: list[Fragment] = []
        self._closed: dict[str, Call] = {}
        self._lock = threading.RLock()

    @property
    def base(self) -> Base:
        """What the frame began with."""
        return self._epochs[0].base

    def closed(self, node: Call) -> None:
        """A node of this frame as the store wrote it, so that it need not be read back."""
        with self._lock:
            if len(self._closed) < MOST_CLOSED:
                self._closed[node.id] = node

    @property
    def known(self) -> int:
        """How many entries of the log were read so far."""
        return len(self._raw)

    def epoch(self, upto: int) -> Epoch:
        """The epoch of a prompt that shows ``upto`` entries of the log. Raises StoreCorruptError where the log holds fewer, or a node is missing."""
        with self._lock:
            if len(self._raw) < upto:
                self._extend(upto)
            return next(epoch for epoch in reversed(self._epochs) if epoch.start <= upto)

    def _extend(self, upto: int) -> None:
        entries = self.store.log(self.frame.id, len(self._raw), upto)
        if len(entries) < upto - len(self._raw):
            raise StoreCorruptError(f"the log of frame {self.frame.id} ends after {len(self._raw) + len(entries)} entries, but {upto} were read from it")
        found = {entry.node: node for entry in entries if (node := self._closed.pop(entry.node, None))}
        missing = [entry.node for entry in entries if entry.node not in found]
        found |= {node.id: node for node in self.store.nodes(missing)} if missing else {}
        for entry in entries:
            if (node := found.get(entry.node)) is None:
                raise StoreCorruptError(f"node {entry.node} stands in the log of frame {self.frame.id}, but the store does not hold it")
            fragment = Fragment(node.id, self._rendered(entry, node))
            self._raw.append(fragment)
            if node.metadata.get("compaction"):
                self._epochs.append(self._opened_by_compaction(node))
            else:
                self._epochs[-1].log.add([fragment])

    def _rendered(self, entry: LogEntry, node: Call) -> tuple[Message, ...]:
        if node.metadata.get("compaction"):
            return ()
        if node.role == "llm":
            return transcript(node)
        if node.role == "user":
            return said(node)
        return self._rendered_code(entry, node)

    def _rendered_code(self, entry: LogEntry, node: Call) -> tuple[Message, ...]:
        if node.status == "error":
            return error_line(node)
        expose = node.metadata.get("expose", "io")
        if expose == "io":
            return result_line(node)
        inner = self._inside(node, entry.inner, only_exchanges=expose == "llm")
        return inner if expose == "llm" else (*entry_line(node), *inner, *result_line(node))

    def _inside(self, node: Call, upto: int, *, only_exchanges: bool) -> tuple[Message, ...]:
        """What the function's own frame shows, without what it began with."""
        frame = self.store.frame(node.metadata.get("frame", ""))
        if frame is None:
            raise StoreCorruptError(f"function node {node.id} exposes what is inside it, but the store does not hold its frame")
        fragments = View(self.store, frame, Base()).raw(upto)
        if only_exchanges:
            roles = {inner.id: inner.role for inner in self.store.nodes([fragment.node for fragment in fragments])}
            fragments = [fragment for fragment in fragments if roles.get(fragment.node) == "llm"]
        return tuple(message for fragment in fragments for message in fragment.messages)

    def raw(self, upto: int) -> list[Fragment]:
        """The first ``upto`` entries of the log, each as it was rendered, whatever was summarized since."""
        with self._lock:
            self.epoch(upto)
            return self._raw[:upto]

    def _opened_by_compaction(self, node: Call) -> Epoch:
        """The epoch that a compaction, the last entry read, opens; its numbers count entries of the base and the log together."""
        base = self.base.fragments()
        everything = [*base, *self._raw[:-1]]
        covered, thinned = _numbers(node, len(everything))
        kept = [stubbed(fragment) if place < thinned else fragment for place, fragment in enumerate(everything)]
        summary = [summary_fragment(node, covered)] if covered else []
        split = max(covered, len(base))
        return Epoch(len(self._raw), Base([*summary, *kept[covered:split]]), kept[split:], node)

    def everything(self, upto: int) -> list[Fragment]:
        """The entries of the base and the first ``upto`` of the log, each as it was rendered: what the numbers of a compaction count."""
        with self._lock:
            return [*self.base.fragments(), *self.raw(upto)]

    def compacted(self, upto: int) -> tuple[int, int, Fragment | None]:
        """How many entries of `everything` a prompt with ``upto`` entries shows as a summary and how many as stubs, and that summary."""
        with self._lock:
            node = self.epoch(upto).compaction
            if node is None:
                return 0, 0, None
            covered, thinned = _numbers(node, len(self.everything(upto)))
            return covered, thinned, summary_fragment(node, covered) if covered else None

    def fragments(self, upto: int) -> list[Fragment]:
        """All that a prompt with ``upto`` entries shows."""
        with self._lock:
            epoch = self.epoch(upto)
            return [*epoch.base.fragments(), *epoch.log.fragments[: epoch.stop(upto)]]

    def messages(self, upto: int, *, callers: int | None = None, subcalls: int | None = None) -> list[Message]:
        """The prompt's history: the last ``callers`` entries of the base and the last ``subcalls`` of ``log[:upto]`` (None or -1: all, 0: none)."""
        with self._lock:
            epoch = self.epoch(upto)
            stop = epoch.stop(upto)
            return [*epoch.base.messages(_count(callers)), *epoch.log.messages(_first(stop, _count(subcalls)), stop)]

    def blocks(self, upto: int, *, callers: int | None = None, subcalls: int | None = None) -> list[Block]:
        """`messages` as flat blocks, see `Stretch.blocks`."""
        with self._lock:
            epoch = self.epoch(upto)
            stop = epoch.stop(upto)
            base = epoch.base.blocks() if _count(callers) is None else flat_blocks(epoch.base.messages(_count(callers)))
            return [*base, *epoch.log.blocks(_first(stop, _count(subcalls)), stop)]

    def tokens(self, upto: int, *, callers: int | None = None, subcalls: int | None = None) -> int:
        """About how many tokens `messages` takes."""
        with self._lock:
            epoch = self.epoch(upto)
            stop = epoch.stop(upto)
            base = epoch.base.tokens() if _count(callers) is None else Stretch([Fragment("", tuple(epoch.base.messages(_count(callers))))]).tokens(0, 1)
            return base + epoch.log.tokens(_first(stop, _count(subcalls)), stop)

    def encoded(self, form: Form, upto: int, *, callers: int | None = None, subcalls: int | None = None) -> list[bytes]:
        """`messages` in a provider's bytes, in pieces; a comma stands before each value."""
        with self._lock:
            epoch = self.epoch(upto)
            stop, last = epoch.stop(upto), _count(callers)
            names = epoch.base.names(form)
            base = epoch.base.encoded(form) if last is None else [Stretch([Fragment("", tuple(epoch.base.messages(last)))]).encoded(form, 0, 1, None)]
            return [*base, epoch.log.encoded(form, _first(stop, _count(subcalls)), stop, names)]

    def names(self, form: Form, upto: int) -> Names:
        """The tool-call ids of a prompt with ``upto`` entries."""
        with self._lock:
            epoch = self.epoch(upto)
            return epoch.log.names(form, epoch.stop(upto), epoch.base.names(form))


def _numbers(compaction: Call, most: int) -> tuple[int, int]:
    """How many entries a compaction shows as a summary and how many as stubs."""
    facts = compaction.metadata["compaction"]
    summarized, thinned = (facts.get(key) if isinstance(facts, dict) else 0 for key in ("summarized", "stubbed"))  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return tuple(max(0, min(number, most)) if isinstance(number, int) else 0 for number in (summarized, thinned))  # type: ignore[return-value]


def _count(last: int | None) -> int | None:
    return None if last is None or last < 0 else last


def _first(length: int, last: int | None) -> int:
    return 0 if last is None else max(0, length - last)


def inner_view(store: Store, frame: Frame, parent: View | None) -> View:
    """The view of a frame inside ``parent``'s; a function's node introduces what is in it. Raises StoreCorruptError where either is missing."""
    if frame.parent is None:
        return View(store, frame, Base())
    if parent is None:
        raise StoreCorruptError(f"frame {frame.id} goes on from frame {frame.parent}, but the store does not hold that one")
    owner = store.node(frame.owner) if frame.owner else None
    if frame.owner and owner is None:
        raise StoreCorruptError(f"frame {frame.id} belongs to node {frame.owner}, but the store does not hold it")
    return view_inside(parent, frame, owner)


def view_inside(parent: View, frame: Frame, owner: Call | None) -> View:
    """`inner_view`, where the function's node is at hand."""
    own = (Fragment(owner.id, entry_line(owner)),) if owner else ()
    return View(parent.store, frame, Base(own, parent=parent, upto=frame.base))


def view_of(store: Store, frame_id: str) -> View | None:
    """The view of a frame, built from the store alone; None for an unknown frame. Raises StoreCorruptError for a broken chain, naming where."""
    frame = store.frame(frame_id)
    if frame is None:
        return None
    return inner_view(store, frame, view_of(store, frame.parent) if frame.parent else None)


class ViewHistory:
    """What one llm node reads: the history of a `openprogram.providers.base.ModelRequest`, rendered when a provider asks for it."""

    def __init__(self, view: View, node: str | None, upto: int, ranges: dict[str, int] | None = None) -> None:
        self.view = view
        self.node = node
        self.upto = upto
        self.ranges: dict[str, Any] = ranges or {}

    def messages(self) -> list[Message]:
        """The history, rendered."""
        return self.view.messages(self.upto, **self.ranges)

    def blocks(self) -> list[Block]:
        """The history as flat blocks, each text block with its role."""
        return self.view.blocks(self.upto, **self.ranges)

    def encoded(self, form: Form) -> list[bytes]:
        """The history in a provider's bytes, in pieces; a comma stands before each value. What was encoded for an earlier request is not encoded again."""
        return self.view.encoded(form, self.upto, **self.ranges)

    def names(self, form: Form) -> Names:
        """The tool-call ids that it holds."""
        return Names(self.view.names(form, self.upto))


def prompt_of(store: Store, node: Call) -> list[Message]:
    """The exact messages that an llm node's first request held (its system part is ``metadata["system"]``); empty for other nodes.

    Raises StoreCorruptError where the store has lost what it read, naming the node.
    """
    if node.role != "llm" or node.reads is None:
        return []
    view = view_of(store, node.reads.frame)
    if view is None:
        raise StoreCorruptError(f"llm node {node.id} reads frame {node.reads.frame}, but the store does not hold that one")
    return [*view.messages(node.reads.upto, **node.metadata.get("render_range", {})), *sent_messages(node)]
