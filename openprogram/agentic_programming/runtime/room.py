"""Making room: before a turn opens, what its frame shows is cut to what the model can take (see `openprogram.context.budget`).

A compaction is a node, with the requests that made its summary below it, and enters the log of its frame; nothing of it happens inside a turn. It is never
silent: the node says what it covers, the log says that it happened, and a turn that cannot fit at all is an error which says by how much.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from openprogram.context import scope as scopes
from openprogram.context.budget import SURE_FACTOR, Cut, Room, cut_of, cut_outside, facts_of, room_of
from openprogram.context.call import Call
from openprogram.context.messages import Block, Message
from openprogram.context.rendering import Fragment, shown, text_weight, weight
from openprogram.context.view import View
from openprogram.errors import LLMError, Reason

logger = logging.getLogger("openprogram.context")

Ask = Callable[[str, int], Awaitable[str]]
"""Ask the model a text for at most so many tokens."""

_TASK = """Summarize this conversation so that it can go on without its text. Keep what was asked for, what was decided, names, numbers, paths and what is \
still open. Write no more than {words} words, as notes."""
_MOST_CUTS = 4


async def make_room(*, model: str, window: int | None, reply: int | None, fixed: Sequence[str], new: Sequence[Message], ask: Ask) -> None:
    """Cut what the current frame shows until the next turn fits.

    ``fixed`` are the texts that the request holds besides messages. ``ask`` is called in a scope of its own. Raises LLMError (``context_length``) for a turn
    that cannot fit, and what ``ask`` raises.
    """
    if window is None:
        return
    room = room_of(window, reply)
    total = extra = weight(new) + sum(map(text_weight, fixed))
    scope = scopes.current.get()
    for _ in range(_MOST_CUTS if scope is not None and extra * SURE_FACTOR <= window else 0):
        assert scope is not None
        upto = _length(scope)
        total = scope.view.tokens(upto, **scope.render_range) + extra
        cut = cut_of(scope.view, upto, extra, room) if total > room.prompt else None
        if cut is None or not await _compact(scope, upto, cut, room, total, ask):
            break
    if total * SURE_FACTOR > window:
        raise _too_large(total, room, model)


def _length(scope: scopes.Scope) -> int:
    """How long the frame's log is; what is known of it where the store cannot be read any more."""
    with scopes.recording():
        return len(scope.store.log(scope.view.frame.id))
    return scope.view.known


def _too_large(tokens: int, room: Room, model: str) -> LLMError:
    message = (
        f"the prompt takes about {tokens} tokens and the model {model!r} has room for {room.window}, {room.window - room.prompt} of them kept for its reply; "
        "send less at a time (split the text, name fewer tools), or use a model with a larger window"
    )
    return LLMError(message, reason=Reason.CONTEXT_LENGTH, model=model)


async def _compact(scope: scopes.Scope, upto: int, cut: Cut, room: Room, total: int, ask: Ask) -> bool:
    """Write one compaction of the frame: opened before its summary is asked for, entered when that is there. False where it cannot be recorded."""
    view, previous = scope.view, scope.view.epoch(upto).compaction
    facts = {"entries": len(view.everything(upto)), "tokens": total, "window": room.window}
    opened = _opened(scope, view, facts)
    if opened.node is None:
        return False
    try:
        summary = await _summary(scope, opened.id, cut, room, ask) if cut.old else previous.output if previous else None
    except BaseException as error:
        details = {"type": type(error).__name__, "message": str(error), "trace": ""}
        opened.finish("cancelled" if scopes.is_cancellation(error) else "error", metadata={"error": details}, enters=False)
        raise
    _enter(scope, opened, view, cut, previous, summary)
    what = f"{len(cut.nodes)} more entries were summarized" if cut.old else "the tool results and media of older entries were left out"
    logger.warning("%s: a prompt of about %d tokens did not fit the window of %d; node %s says what", what, total, room.window, opened.id)
    outside = cut_outside(view, cut)
    while outside is not None:
        view, upto, cut = outside
        previous = view.epoch(upto).compaction
        _enter(scope, _opened(scope, view, facts), view, cut, previous, summary)
        outside = cut_outside(view, cut)
    return True


def _opened(scope: scopes.Scope, view: View, facts: dict[str, Any]) -> scopes.OpenCall:
    outside = msgspec.structs.replace(scope, view=view, caller=view.frame.owner, transcript=False)
    return scopes.open_call_in(outside, "code", "compaction", facts, metadata={})


def _enter(scope: scopes.Scope, opened: scopes.OpenCall, view: View, cut: Cut, previous: Call | None, summary: str | None) -> None:
    """Close a compaction. It enters only if no other has made room in the meantime: two would cover the same twice."""
    with scopes.recording():
        is_first = view.epoch(len(scope.store.log(view.frame.id))).compaction is previous
        metadata = {"compaction": facts_of(cut, previous.id if previous else None)} if is_first else {}
        opened.finish("completed", summary, metadata=metadata, enters=is_first)


async def _summary(scope: scopes.Scope, node: str | None, cut: Cut, room: Room, ask: Ask) -> str:
    """One summary of the fragments, made piece by piece where they do not fit one request."""
    outer = scopes.current.get()
    ranges = {"callers": 0, "subcalls": 0}  # what is summarized stands in the request itself
    scopes.current.set(msgspec.structs.replace(scope, caller=node, function=None, render_range=ranges, transcript=True))
    try:
        summary = ""
        for piece in _pieces(cut.old, room.prompt - 2 * room.summary - 200):
            before = f"Summary of what came before:\n{summary}\n\n" if summary else ""
            words = max(20, room.summary // 2)
            summary = await ask(f"{_TASK.format(words=words)}\n\n{before}The conversation:\n{piece}", room.summary)
        return shown(summary, room.summary * 4)
    finally:
        scopes.current.set(outer)


def _pieces(fragments: Sequence[Fragment], most: int) -> list[str]:
    """The fragments as texts of at most ``most`` tokens, at least one."""
    pieces: list[list[str]] = [[]]
    taken = 0
    for fragment in fragments:
        for message in fragment.messages:
            line = shown(_told(message), max(200, most * 2))
            tokens = text_weight(line) + 1
            if pieces[-1] and taken + tokens > most:
                pieces.append([])
                taken = 0
            pieces[-1].append(line)
            taken += tokens
    return ["\n".join(piece) for piece in pieces]


def _told(message: Message) -> str:
    return f"{message.role}: {' '.join(map(_block_text, message.blocks))}"


def _block_text(block: Block) -> str:
    kind: Any = block.get("type")
    if kind == "tool_call":
        return f"[calls {block.get('name')}({shown(block.get('args', ''))})]"
    if kind == "tool_result":
        return f"[{block.get('name')} {'failed' if block.get('is_error') else 'returned'}: {block.get('text', '')}]"
    return str(block.get("text", f"[{kind}]"))
