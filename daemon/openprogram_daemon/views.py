"""Histories rendered in the daemon, so that none crosses a process boundary.

The view of a frame is kept, so that a later request of the same frame reads only what is new. Safe to use from several threads; everything here reads the
store and belongs into a thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from openprogram.context.call import Call
from openprogram.context.messages import Message
from openprogram.context.rendering import sent_messages
from openprogram.context.view import View, ViewHistory, inner_view
from openprogram.errors import StoreError
from openprogram.store.base import Store

MOST_VIEWS = 256


class Views:
    """Views by frame, those used last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, View] = OrderedDict()
        self._lock = threading.Lock()

    def history(self, node_id: str) -> ViewHistory:
        """What an llm node reads. Raises StoreError for a node that is none or does not exist."""
        node = self._store.node(node_id)
        if node is None or node.reads is None:
            raise StoreError(f"there is no llm node {node_id!r} whose history could be rendered")
        view = self._view(node.reads.frame)
        if view is None:
            raise StoreError(f"llm node {node_id} reads frame {node.reads.frame}, which the store does not hold")
        return ViewHistory(view, node_id, node.reads.upto, node.metadata.get("render_range"))

    def prompt(self, node: Call) -> list[Message] | None:
        """What an llm node's first request held; None for other nodes."""
        return None if node.reads is None else [*self.history(node.id).messages(), *sent_messages(node)]

    def _view(self, frame_id: str) -> View | None:
        with self._lock:
            if (kept := self._kept.get(frame_id)) is not None:
                self._kept.move_to_end(frame_id)
                return kept
        view = self._built(frame_id)
        if view is not None:
            with self._lock:
                self._kept[frame_id] = view
                while len(self._kept) > MOST_VIEWS:
                    self._kept.popitem(last=False)
        return view

    def _built(self, frame_id: str) -> View | None:
        frame = self._store.frame(frame_id)
        if frame is None:
            return None
        return inner_view(self._store, frame, self._view(frame.parent) if frame.parent else None)
