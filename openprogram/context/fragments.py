"""Fragments in order, that only grow at their end, and what was made of them once: messages, tokens, a provider's bytes.

Every form of a fragment is made when it is first wanted and kept, and all forms of one kind lie behind each other. So a prompt of n fragments is a slice, made
at the speed of memory, and each fragment is encoded once however many prompts show it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from openprogram.context.messages import Block, Message
from openprogram.context.rendering import Fragment, weight


def flat_blocks(messages: Iterable[Message]) -> list[Block]:
    """Messages as the flat list of blocks that a ``call=`` function is promised: each text block with its role."""
    return [{**block, "role": message.role} if block.get("type") == "text" else block for message in messages for block in message.blocks]


class Names:
    """The tool-call ids that a prompt holds: those before some place, and those that are added. Providers want each to be there once."""

    def __init__(self, before: Names | None = None, ids: dict[str, int] | None = None, limit: int | None = None) -> None:
        self._before = before
        self._ids: dict[str, int] = {} if ids is None else ids
        self._limit = limit
        self.place = 0

    def __contains__(self, name: object) -> bool:
        place = self._ids.get(name) if isinstance(name, str) else None
        if place is not None and (self._limit is None or place < self._limit):
            return True
        return self._before is not None and name in self._before

    def add(self, name: str) -> None:
        """One more id."""
        self._ids.setdefault(name, self.place)

    def forget(self, place: int) -> None:
        """Take back the ids that were added at a place."""
        for name in [name for name, at in self._ids.items() if at == place]:
            del self._ids[name]


class Form(Hashable, Protocol):
    """How a provider writes messages. Two forms that are equal write the same."""

    def encode(self, messages: Sequence[Message], names: Names) -> bytes:
        """Whole entries of a history as JSON values with commas between them, without brackets; ``names`` holds the ids before them and takes the new ones."""
        ...


class _Encoded:
    """The bytes of a stretch in one form: each fragment's with a comma before every value."""

    def __init__(self, before: Names | None) -> None:
        self.data = bytearray()
        self.ends = [0]
        self.ids: dict[str, int] = {}
        self.names = Names(before, self.ids)


class Stretch:
    """Fragments that only grow at their end. Not locked: its owner is."""

    def __init__(self, fragments: Iterable[Fragment] = ()) -> None:
        self.fragments: list[Fragment] = []
        self._messages: list[Message] = []
        self._ends = [0]
        self._tokens = [0]
        self._flat: list[Block] = []
        self._flat_ends = [0]
        self._encoded: dict[Form, _Encoded] = {}
        self.add(fragments)

    def __len__(self) -> int:
        return len(self.fragments)

    def add(self, fragments: Iterable[Fragment]) -> None:
        """Put fragments at the end."""
        for fragment in fragments:
            self.fragments.append(fragment)
            self._messages += fragment.messages
            self._ends.append(len(self._messages))

    def messages(self, start: int, stop: int) -> list[Message]:
        """The messages of the fragments ``start`` to ``stop``."""
        return self._messages[self._ends[start] : self._ends[stop]]

    def blocks(self, start: int, stop: int) -> list[Block]:
        """The blocks of those messages, each text block with its role. The dicts are the caller's own."""
        for fragment in self.fragments[len(self._flat_ends) - 1 : stop]:
            self._flat += flat_blocks(fragment.messages)
            self._flat_ends.append(len(self._flat))
        return list(map(dict[str, Any].copy, self._flat[self._flat_ends[start] : self._flat_ends[stop]]))

    def tokens(self, start: int, stop: int) -> int:
        """About how many tokens they take."""
        for fragment in self.fragments[len(self._tokens) - 1 : stop]:
            self._tokens.append(self._tokens[-1] + weight(fragment.messages))
        return self._tokens[stop] - self._tokens[start]

    def encoded(self, form: Form, start: int, stop: int, before: Names | None) -> bytes:
        """The bytes of the fragments ``start`` to ``stop``, a comma before each value. ``before`` holds the ids of what stands before the stretch."""
        found = self._form(form, stop, before)
        first, last = found.ends[start], found.ends[stop]
        with memoryview(found.data) as data:
            return bytes(data[first:last])

    def names(self, form: Form, stop: int, before: Names | None) -> Names:
        """The ids of the first ``stop`` fragments and of what stands before them."""
        return Names(before, self._form(form, stop, before).ids, stop)

    def _form(self, form: Form, stop: int, before: Names | None) -> _Encoded:
        found = self._encoded.get(form)
        if found is None:
            found = self._encoded[form] = _Encoded(before)
        for place in range(len(found.ends) - 1, stop):
            found.names.place = place
            try:
                piece = form.encode(self.fragments[place].messages, found.names)
            except BaseException:
                found.names.forget(place)  # it will be encoded again, and must then find its ids free
                raise
            if piece:
                found.data += b","
                found.data += piece
            found.ends.append(len(found.data))
        return found
