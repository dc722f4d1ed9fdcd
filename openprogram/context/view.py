"""View logs rendered to messages: what a model call sees of the past.

A frame has a *base*, frozen when it opened (its parent's base, the parent's log up to that moment, its own entry line), and a *log*, append-only. A node is
rendered when it has closed, from the node alone, so that any historical prompt can be reproduced from the store: base, then ``log[:k]``, then what the call
added. A `View` caches the fragments of one frame and reads only the entries that are new.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from openprogram.context.call import Call, Frame, LogEntry
from openprogram.context.messages import Message, text_message

if TYPE_CHECKING:
    from openprogram.store.base import Store

Fragment = tuple[Message, ...]

# Values in an entry line are shown in full up to this many characters: a prompt is no place for a five-megabyte argument, the node keeps it whole.
SHOWN_CHARACTERS = 4000


def shown(value: Any, limit: int = SHOWN_CHARACTERS) -> str:
    """A value as one line of a prompt: JSON where it has that form, else its repr; head and tail when it is longer than ``limit`` characters."""
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        text = repr(value)
    if len(text) <= limit:
        return text
    head = limit * 7 // 10
    return f"{text[:head]} … [{len(text) - limit} characters left out] … {text[head - limit :]}"


def call_line(node: Call) -> str:
    """``name(parameter=value, …)`` as a prompt shows it."""
    arguments = _mapping(node.input)
    return f"{node.name}({', '.join(f'{key}={_argument(value)}' for key, value in arguments.items())})"


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _argument(value: Any) -> str:
    return shown(repr(value)) if isinstance(value, str) else shown(value)


def entry_line(node: Call) -> Fragment:
    """How a function introduces itself to the calls inside it: its docstring, then its call."""
    doc = node.metadata.get("doc")
    line = call_line(node)
    return (text_message("user", f"{doc}\n\n{line}" if doc else line),)


def sent_messages(node: Call) -> Fragment:
    """The messages that an llm node added to its history; none of a node whose input can no longer be read."""
    return _messages(_mapping(node.input).get("messages"))


def _messages(items: Any) -> Fragment:
    """Stored messages; what is none (a corrupt row reads as a form that says so) is left out, since one bad row hides nothing else."""
    found: list[Message] = []
    for item in cast("Iterable[Any]", items) if isinstance(items, list | tuple) else ():
        with contextlib.suppress(msgspec.ValidationError):
            found.append(item if isinstance(item, Message) else msgspec.convert(item, Message))
    return tuple(found)


def transcript(node: Call) -> Fragment:
    """An llm node exactly as sent and received: prompt, tool calls with their results, reply."""
    reply = (text_message("assistant", node.output),) if isinstance(node.output, str) and node.output.strip() else ()
    return (*sent_messages(node), *_messages(node.exchanges), *reply)


def _error_line(node: Call) -> Fragment:
    error = _mapping(node.metadata.get("error"))
    return (text_message("user", f"{call_line(node)} failed: {error.get('type', 'error')}: {shown(error.get('message', ''), 500)}"),)


def _result_line(node: Call) -> Fragment:
    return (text_message("user", f"{call_line(node)} returned {shown(node.output)}"),)


class View:
    """The rendered fragments of one frame; safe to share between threads."""

    def __init__(self, store: Store, frame: Frame, base: Sequence[Fragment]) -> None:
        self.store = store
        self.frame = frame
        self.base: tuple[Fragment, ...] = tuple(base)
        self._log: list[Fragment] = []
        self._lock = threading.Lock()

    def log(self, upto: int) -> list[Fragment]:
        """The first ``upto`` entries of the log, rendered."""
        with self._lock:
            if len(self._log) < upto:
                self._extend(upto)
            return self._log[:upto]

    def _extend(self, upto: int) -> None:
        entries = self.store.log(self.frame.id, len(self._log), upto)
        found = {node.id: node for node in self.store.nodes([entry.node for entry in entries])}
        self._log += [self._render(entry, found.get(entry.node)) for entry in entries]

    def _render(self, entry: LogEntry, node: Call | None) -> Fragment:
        if node is None:
            return ()
        if node.role == "llm":
            return transcript(node)
        if node.role == "user":
            return (text_message("user", shown(node.input)),)
        return self._render_code(entry, node)

    def _render_code(self, entry: LogEntry, node: Call) -> Fragment:
        if node.status == "error":
            return _error_line(node)
        expose = node.metadata.get("expose", "io")
        if expose == "io":
            return _result_line(node)
        inner = self._inner(node, entry.inner, only_exchanges=expose == "llm")
        return inner if expose == "llm" else (*entry_line(node), *inner, *_result_line(node))

    def _inner(self, node: Call, upto: int, *, only_exchanges: bool) -> Fragment:
        view = view_of(self.store, node.metadata.get("frame", ""))
        if view is None:
            return ()
        fragments = view.log(upto)
        if only_exchanges:
            entries = self.store.log(view.frame.id, 0, upto)
            roles = {n.id: n.role for n in self.store.nodes([entry.node for entry in entries])}
            fragments = [fragment for entry, fragment in zip(entries, fragments, strict=True) if roles.get(entry.node) == "llm"]
        return tuple(message for fragment in fragments for message in fragment)

    def messages(self, upto: int, *, callers: int | None = None, subcalls: int | None = None) -> list[Message]:
        """The prompt's history: the last ``callers`` entries of the base and the last ``subcalls`` of ``log[:upto]`` (None or -1: all, 0: none)."""
        fragments = [*_last(self.base, callers), *_last(self.log(upto), subcalls)]
        return [message for fragment in fragments for message in fragment]

    def opened_by(self, node: Call, frame: Frame) -> View:
        """The view of the frame that ``node`` opened inside this one."""
        return View(self.store, frame, (*self.base, *self.log(frame.base), entry_line(node)))


def _last(fragments: Sequence[Fragment], count: int | None) -> Sequence[Fragment]:
    if count is None or count < 0:
        return fragments
    return fragments[len(fragments) - count :] if count < len(fragments) else fragments


def view_of(store: Store, frame_id: str) -> View | None:
    """The view of a frame, built from the store alone; None for an unknown frame."""
    frame = store.frame(frame_id)
    if frame is None:
        return None
    parent = view_of(store, frame.parent) if frame.parent else None
    if parent is None:
        return View(store, frame, ())
    owner = store.node(frame.owner) if frame.owner else None
    if owner is None:
        return View(store, frame, (*parent.base, *parent.log(frame.base)))
    return parent.opened_by(owner, frame)


def prompt_of(store: Store, node: Call) -> list[Message]:
    """The exact messages that an llm node's first request held (its system part is ``metadata["system"]``); empty for other nodes."""
    if node.role != "llm" or node.reads is None:
        return []
    view = view_of(store, node.reads.frame)
    history = [] if view is None else view.messages(node.reads.upto, **node.metadata.get("render_range", {}))
    return [*history, *sent_messages(node)]
