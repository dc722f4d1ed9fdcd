"""The message types that providers receive and the DAG keeps.

A message is a role and a tuple of content blocks. Blocks stay plain dicts, exactly as the author wrote them, because a ``call=`` function is promised its
blocks unchanged; the block types are ``text``, ``image``, ``audio``, ``video`` (documented to authors) and ``tool_call {id, name, args}`` and ``tool_result
{id, name, text, is_error}`` (made by the loop).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]
Block = dict[str, Any]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a prompt."""

    role: Role
    blocks: tuple[Block, ...]


def text_message(role: Role, text: str) -> Message:
    """A message of one text block."""
    return Message(role=role, blocks=({"type": "text", "text": text},))


def text_of(message: Message) -> str:
    """All text of a message, its text blocks joined by newlines."""
    return "\n".join(block["text"] for block in message.blocks if block.get("type") == "text")


def tool_calls_of(message: Message) -> list[Block]:
    """The tool calls that an assistant message carries, in order."""
    return [block for block in message.blocks if block.get("type") == "tool_call"]
