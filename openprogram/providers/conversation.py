"""A request's messages → turns that every provider accepts.

Histories come from sessions that were cancelled, killed, trimmed or begun with another model. Providers refuse a call without its result, a result without its
call, an id that occurs twice, an empty text and arguments that are no object; one such message would make a session unusable for good. So each turn that leaves
here is valid: calls are followed at once by their results in call order, and what stands alone is completed or told in words. The same messages always give
the same turns, since providers cache the longest prefix that they have seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from openprogram.context.messages import Block, Message
from openprogram.providers.base import ModelRequest
from openprogram.providers.media import gone

INTERRUPTED = "(interrupted: this call has no result, and whether it took effect is not known; check before doing it again)"
NO_OUTPUT = "(no output)"
NO_TEXT = "(no text)"


class Turn(NamedTuple):
    """``role`` is ``user``, ``assistant`` or ``system``. The tool results of a user turn come first and answer the calls of the assistant turn before it."""

    role: str
    blocks: list[Block]

    def of(self, kind: str) -> list[Block]:
        """The blocks of one type, in order."""
        return [block for block in self.blocks if block.get("type") == kind]


def turns_of(request: ModelRequest, provider: str, *, tools: bool = True, alternate: bool = False) -> list[Turn]:
    """History and new messages as turns.

    ``tools`` False: the model knows no tools, so calls and results are told in words. ``alternate``: user and assistant take turns and a user begins; there is
    no system turn. Blocks that another provider or model wants back are left out.
    """
    past = [] if request.history is None else list(request.history.messages())
    kept = [_kept(message, request.model, provider, past=True) for message in past]
    kept += [_kept(message, request.model, provider, past=False) for message in request.new]
    turns = _valid(kept, set[str](), tools=tools)
    return _alternating(turns) if alternate else turns


def entry_turns(messages: Sequence[Message], names: Used, model: str, provider: str, *, tools: bool, past: bool = True) -> list[Turn]:
    """The turns of whole entries of a history, or of new messages, behind others whose tool-call ids are ``names``; see `turns_of`."""
    return _valid([_kept(message, model, provider, past=past) for message in messages], names, tools=tools)


class Used(Protocol):
    """The tool-call ids that a request holds so far."""

    def __contains__(self, name: object, /) -> bool: ...

    def add(self, name: str, /) -> None: ...


def _valid(kept: Sequence[Turn], used: Used, *, tools: bool) -> list[Turn]:
    turns = [turn for turn in (kept if tools else [_in_words(turn) for turn in kept]) if turn.blocks]
    return _paired(_with_unique_ids(turns, used)) if tools else turns


def _kept(message: Message, model: str, provider: str, *, past: bool) -> Turn:
    """One message without what this provider must not see."""
    blocks: list[Block] = []
    for block in message.blocks:
        kind = block.get("type")
        if kind == "text" and not str(block.get("text", "")).strip():
            continue
        if kind == "opaque" and (message.role != "assistant" or (block.get("provider"), block.get("model")) != (provider, model)):
            continue
        note = gone(block) if past else None
        blocks.append(block if note is None else {"type": "text", "text": note})
    return Turn("user" if message.role == "tool" else message.role, _in_place(blocks))


def _in_place(blocks: list[Block]) -> list[Block]:
    """Each opaque block behind as many calls as came before it."""
    moved = [block for block in blocks if block.get("type") == "opaque" and block.get("calls")]
    if not moved:
        return blocks
    placed: list[Block] = []
    calls = 0
    for block in blocks:
        if any(block is other for other in moved):
            continue
        placed.append(block)
        if block.get("type") == "tool_call":
            calls += 1
            placed += [other for other in moved if other["calls"] == calls]
    return [*placed, *(other for other in moved if other["calls"] > calls)]


def _in_words(turn: Turn) -> Turn:
    return Turn(turn.role, [in_words(block) for block in turn.blocks])


def in_words(block: Block) -> Block:
    """A tool block as a model without tools reads it."""
    if block.get("type") == "tool_call":
        return {"type": "text", "text": f"[called {block['name']}({arguments_text(block)})]"}
    if block.get("type") == "tool_result":
        return {"type": "text", "text": f"[{block.get('name', 'tool')} {'failed' if block.get('is_error') else 'returned'}: {block.get('text', '')}]"}
    return block


def _with_unique_ids(turns: Sequence[Turn], used: Used) -> list[Turn]:
    """Some servers number the calls of each reply from 0, or give several the same id; a used one gets a suffix, and so does the result that answers it."""
    given: dict[str, list[str]] = {}
    renamed: list[Turn] = []
    for turn in turns:
        own: dict[str, list[str]] = {}
        blocks: list[Block] = []
        for block in turn.blocks:
            old = str(block.get("id", ""))
            if block.get("type") == "tool_call":
                new = _unused(old, used)
                used.add(new)
                given[old] = own.setdefault(old, [])
                own[old].append(new)
            elif block.get("type") == "tool_result" and old in given:
                new = given[old].pop(0) if len(given[old]) > 1 else given[old][0]
            else:
                new = block.get("id")
            blocks.append(block if new == block.get("id") else {**block, "id": new})
        renamed.append(Turn(turn.role, blocks))
    return renamed


def _unused(name: str, used: Used) -> str:
    candidate, number = name or "call", 1
    while candidate in used:
        number += 1
        candidate = f"{name or 'call'}_{number}"
    return candidate


def _paired(turns: Sequence[Turn]) -> list[Turn]:
    """Each assistant turn with calls is followed by one user turn that begins with their results."""
    paired: list[Turn] = []
    position = 0
    while position < len(turns):
        turn = turns[position]
        position += 1
        calls = turn.of("tool_call") if turn.role == "assistant" else []
        if not calls:
            paired.append(Turn(turn.role, [_told(block) for block in turn.blocks]))
            continue
        end = position
        while end < len(turns) and turns[end].role != "assistant":
            end += 1
        paired += [turn, *_answered(calls, turns[position:end])]
        position = end
    return paired


def _told(block: Block) -> Block:
    """A result without its call, in words."""
    return in_words(block) if block.get("type") == "tool_result" else block


def _answered(calls: list[Block], after: Sequence[Turn]) -> list[Turn]:
    """The turns between two assistant turns, with one result for each call in front."""
    wanted = {str(call["id"]): call for call in calls}
    results: dict[str, Block] = {}
    rest: list[Turn] = []
    for turn in after:
        blocks: list[Block] = []
        for block in turn.blocks:
            if block.get("type") == "tool_result" and block.get("id") in wanted and block["id"] not in results:
                results[block["id"]] = block
            else:
                blocks.append(_told(block))
        if blocks:
            rest.append(Turn(turn.role, blocks))
    first = [results.get(name) or _lacking(name, call) for name, call in wanted.items()]
    if rest and rest[0].role == "user":
        return [Turn("user", [*first, *rest[0].blocks]), *rest[1:]]
    return [Turn("user", first), *rest]


def _lacking(name: str, call: Block) -> Block:
    return {"type": "tool_result", "id": name, "name": call["name"], "text": INTERRUPTED, "is_error": True}


def _alternating(turns: Iterable[Turn]) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        role = "assistant" if turn.role == "assistant" else "user"
        if merged and merged[-1].role == role:
            merged[-1] = Turn(role, [*merged[-1].blocks, *turn.blocks])
        else:
            merged.append(Turn(role, turn.blocks))
    if not merged or merged[0].role == "assistant":
        merged.insert(0, Turn("user", [{"type": "text", "text": NO_TEXT}]))
    return [Turn(turn.role, sorted(turn.blocks, key=lambda block: block.get("type") != "tool_result")) if turn.role == "user" else turn for turn in merged]


def arguments_text(call: Block) -> str:
    """The arguments of a recorded call as they are shown to people and to models without tools."""
    args = call.get("args", {})
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)


def arguments_of(call: Block) -> dict[str, Any]:
    """The arguments of a recorded call as an object, which is all that providers take back; text that is none is wrapped, so that nothing is lost."""
    args: Any = call.get("args", {})
    if isinstance(args, str):
        try:
            args = json.loads(args, parse_constant=_no_number) if args.strip() else {}
        except (ValueError, RecursionError):
            return {"invalid_arguments": args}
    if isinstance(args, dict):
        return cast("dict[str, Any]", args)
    return {} if args is None else {"invalid_arguments": args}


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def arguments_json(call: Block) -> str:
    """`arguments_of` as JSON: the model's own text where that is an object."""
    found = arguments_of(call)
    args = call.get("args")
    kept = isinstance(args, str) and args.lstrip().startswith("{") and "invalid_arguments" not in found
    return str(args) if kept else json.dumps(found, ensure_ascii=False)


def result_text(result: Block) -> str:
    """The text of a tool result, never empty or blank, since some providers refuse that."""
    text = str(result.get("text", ""))
    return text if text.strip() else NO_OUTPUT
