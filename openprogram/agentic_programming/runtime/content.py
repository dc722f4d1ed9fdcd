"""Content blocks as authors write them → the blocks of one user message, and what went to the system part."""

from __future__ import annotations

import itertools
from typing import Any, Literal, cast

from openprogram.context.messages import Block, Message, text_of

ROLES = ("user", "assistant", "system")
MEDIA = ("image", "audio", "video")


def blocks_of(content: Any) -> tuple[list[Block], list[str]]:
    """``content`` (a text or a list of blocks) as blocks for the user message, and the texts of ``role: system`` blocks.

    Raises TypeError for anything that is no block, ValueError for a block without its field, FileNotFoundError for a media file that is not there.
    """
    if isinstance(content, str):
        return [{"type": "text", "text": content}], []
    if not isinstance(content, list | tuple):
        raise TypeError(f"content is a text or a list of blocks such as {{'type': 'text', 'text': …}}, not {type(content).__name__}")
    turn: list[Block] = []
    system: list[str] = []
    for item in cast("list[Any]", content):
        block = _checked(item)
        if block["type"] == "text" and block.get("role") == "system":
            system.append(block["text"])
        else:
            turn.append(block)
    return turn, system


def messages_of(blocks: list[Block]) -> tuple[Message, ...]:
    """Blocks as messages: text blocks with ``role: assistant`` are replies of the model, so that worked examples can be shown as the turns they stand for."""
    return tuple(Message(role=role, blocks=tuple(group)) for role, group in itertools.groupby(blocks, _speaker))


def _speaker(block: Block) -> Literal["user", "assistant"]:
    return "assistant" if block.get("role") == "assistant" else "user"


def question_of(content: Any) -> str:
    """The text that the content ends with: what the model is to answer."""
    last = messages_of(blocks_of(content)[0])[-1:]
    return "\n".join(text_of(message) for message in last)


def _checked(item: Any) -> Block:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if not isinstance(item, dict) or not isinstance(cast("Block", item).get("type"), str):
        raise TypeError(f"a content block is a dict with a 'type', not {item!r:.200}")
    block = cast("Block", item)
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        raise ValueError(f"a text block needs its 'text' (a str): {block!r:.200}")
    if block["type"] in MEDIA and "path" in block:
        _check_file(block)
    if block["type"] == "text" and block.get("role", "user") not in ROLES:
        raise ValueError(f"a text block's role is one of {', '.join(ROLES)}, not {block['role']!r}")
    return block


def _check_file(block: Block) -> None:
    from pathlib import Path

    if not Path(block["path"]).is_file():
        raise FileNotFoundError(f"{block['type']} block: there is no file {block['path']}")
