"""What to do when a prompt would not fit the model's window. Pure policy: nothing is asked or written here.

1. Tool results and media of older entries become stubs that say how much was left out and which node holds it.
2. Where that does not make enough room, a summary takes the place of the oldest entries; the latest ones stay as they are.

Either is an entry of the log, made between turns: it says how many entries it covers and which nodes those are, earlier prompts stay what they were, and later
ones grow from it at their end, as before. A cut makes more room than the turn needs, so that the next one comes many turns later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from openprogram.context.rendering import Fragment, stubbed, weight
from openprogram.context.view import View

SURE_FACTOR = 0.6
"""Estimates are rather too high. What is over the window even at this part of the estimate certainly does not fit."""
KEPT = 0.25
"""The part of the room that the latest entries may take and still stay as they are."""
ENOUGH = 0.7
"""Stubs alone are enough if the prompt then fills no more than this part of the room."""
SUMMARY = 0.125
"""The part of the room that a summary may take."""
SMALLEST_SUMMARY = 64


class Room(NamedTuple):
    """Tokens: the model's window, and what of it a prompt may fill."""

    window: int
    prompt: int

    @property
    def summary(self) -> int:
        """How long a summary may be."""
        return max(SMALLEST_SUMMARY, int(self.prompt * SUMMARY))


def room_of(window: int, reply: int | None) -> Room:
    """The room for a prompt in a window that also takes the reply: ``reply`` tokens, or a quarter where that is not known; the prompt has at least half."""
    return Room(window, window - min(reply or window // 4, window // 2))


class Cut(NamedTuple):
    """Of the entries of a frame (its base, then its log), the first ``summarized`` are replaced by a summary and the first ``stubbed`` are stubs.

    ``old`` are the fragments that a new summary is made of, an earlier one first; empty when none is needed. ``nodes`` are the ids that it newly covers.
    """

    summarized: int
    stubbed: int
    old: tuple[Fragment, ...] = ()
    nodes: tuple[str, ...] = ()


def cut_of(view: View, upto: int, extra: int, room: Room) -> Cut | None:
    """How to make room for a turn of ``extra`` tokens behind ``upto`` entries; None when nothing is left to cut."""
    entries = view.everything(upto)
    covered, thinned, summary = view.compacted(upto)
    weights = [weight(entry.messages) for entry in entries]
    kept = _first_kept(weights, int(room.prompt * KEPT))
    boundary = max(thinned, kept)
    thin = [stubbed(entry) if place < boundary else entry for place, entry in enumerate(entries)]
    rest = sum(weight(entry.messages) for entry in thin[covered:])
    if boundary > thinned and _tokens(summary) + rest + extra <= room.prompt * ENOUGH:
        return Cut(covered, boundary)
    first = max(covered, _first_kept(weights, min(int(room.prompt * KEPT), room.prompt - extra - room.summary)))
    if first <= covered:
        return Cut(covered, boundary) if boundary > thinned else None
    old = (*((summary,) if summary else ()), *entries[covered:first])
    return Cut(first, first, old, tuple(entry.node for entry in entries[covered:first] if entry.messages))


def cut_outside(view: View, cut: Cut) -> tuple[View, int, Cut] | None:
    """The same cut for the frame outside, with how many entries of it that frame then showed, where the summary covers nothing but what it showed; else None.

    So the next function called there finds the room made.
    """
    outside, upto = view.base.outside
    if outside is None or not cut.old:
        return None
    covered, _, summary = outside.compacted(upto)
    shown = len(outside.fragments(upto))
    newly = cut.summarized - (1 if summary else 0)
    if cut.summarized > shown or newly <= 0:
        return None
    return outside, upto, Cut(covered + newly, covered + newly, cut.old, cut.nodes)


def _first_kept(weights: list[int], allowance: int) -> int:
    """The place of the first of the latest entries that fit the allowance together."""
    place = len(weights)
    while place and weights[place - 1] <= allowance:
        place -= 1
        allowance -= weights[place]
    return place


def _tokens(summary: Fragment | None) -> int:
    return weight(summary.messages) if summary else 0


def facts_of(cut: Cut, previous: str | None) -> dict[str, Any]:
    """What the node of a compaction keeps in ``metadata["compaction"]``: `View` reads the numbers, people the ids."""
    return {"summarized": cut.summarized, "stubbed": cut.stubbed, "nodes": list(cut.nodes), "previous": previous}
