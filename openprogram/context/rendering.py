"""Nodes as the messages that a prompt shows of them.

Everything here follows from a node alone, so that a prompt of the past can be made again from the store, byte for byte. Nothing that is shown holds a time or a
duration, and no tool call is shown without its result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from openprogram.context.call import Call
from openprogram.context.messages import Block, Message, text_message

Messages = tuple[Message, ...]


class Fragment(NamedTuple):
    """What a prompt shows of one entry: ``node`` is the node it shows (empty for none)."""

    node: str
    messages: Messages


# Values in an entry line are shown in full up to this many characters: a prompt is no place for a five-megabyte argument, the node keeps it whole.
SHOWN_CHARACTERS = 4000
STUB_CHARACTERS = 200
"""Tool results up to this length are never replaced by stubs, which are about as long."""
MEDIA = ("image", "audio", "video")


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


def entry_line(node: Call) -> Messages:
    """How a function introduces itself to the calls inside it: its docstring, then its call."""
    doc = node.metadata.get("doc")
    line = call_line(node)
    return (text_message("user", f"{doc}\n\n{line}" if doc else line),)


def error_line(node: Call) -> Messages:
    """How a function that raised is shown to those outside."""
    error = _mapping(node.metadata.get("error"))
    return (text_message("user", f"{call_line(node)} failed: {error.get('type', 'error')}: {shown(error.get('message', ''), 500)}"),)


def result_line(node: Call) -> Messages:
    """How a function that returned is shown to those outside."""
    return (text_message("user", f"{call_line(node)} returned {shown(node.output)}"),)


def said(node: Call) -> Messages:
    """What a person said, whole: a text, or content blocks."""
    value = node.input
    if isinstance(value, list) and value and all(map(_is_block, cast("list[Any]", value))):
        return (Message(role="user", blocks=tuple(cast("list[Block]", value))),)
    return (text_message("user", value if isinstance(value, str) else shown(value)),)


def _is_block(value: Any) -> bool:
    return isinstance(_mapping(value).get("type"), str)


def sent_messages(node: Call) -> Messages:
    """The messages that an llm node added to its history; none of a node whose input can no longer be read."""
    return _messages(_mapping(node.input).get("messages"))


def transcript(node: Call) -> Messages:
    """An llm node exactly as sent and received: prompt, tool calls with their results, reply."""
    reply = (text_message("assistant", node.output),) if isinstance(node.output, str) and node.output.strip() else ()
    return (*sent_messages(node), *_paired(_messages(node.exchanges)), *reply)


def _messages(items: Any) -> Messages:
    """Stored messages; what is none (a corrupt row reads as a form that says so) is left out, since one bad row hides nothing else."""
    found: list[Message] = []
    for item in cast("Iterable[Any]", items) if isinstance(items, list | tuple) else ():
        with contextlib.suppress(msgspec.ValidationError):
            found.append(item if isinstance(item, Message) else msgspec.convert(item, Message))
    return tuple(found)


def _paired(messages: Messages) -> Messages:
    """Without the tool calls that no result follows before the model's next message: providers refuse them, and no request held them."""
    kept: list[Message] = []
    answered: set[Any] = set()
    for message in reversed(messages):
        if message.role != "assistant":
            answered |= {block.get("id") for block in message.blocks if block.get("type") == "tool_result"}
            kept.append(message)
            continue
        blocks = tuple(block for block in message.blocks if block.get("type") != "tool_call" or block.get("id") in answered)
        answered = set()
        if len(blocks) == len(message.blocks):
            kept.append(message)
        elif any(block.get("type") != "opaque" for block in blocks):
            kept.append(msgspec.structs.replace(message, blocks=blocks))
    return tuple(reversed(kept))


def stubbed(fragment: Fragment) -> Fragment:
    """The fragment with its long tool results and its media replaced by a line that says where they are."""
    if not any(_is_bulky(block) for message in fragment.messages for block in message.blocks):
        return fragment
    return Fragment(fragment.node, tuple(_thinned(message, fragment.node) for message in fragment.messages))


def _is_bulky(block: Block) -> bool:
    kind = block.get("type")
    return kind in MEDIA or (kind == "tool_result" and len(str(block.get("text", ""))) > STUB_CHARACTERS)


def _thinned(message: Message, node: str) -> Message:
    return msgspec.structs.replace(message, blocks=tuple(_stub(block, node) if _is_bulky(block) else block for block in message.blocks))


def _stub(block: Block, node: str) -> Block:
    if block["type"] != "tool_result":
        return {"type": "text", "text": f"[{block['type']} left out to save room; node {node} holds it]"}
    length = len(str(block.get("text", "")))
    return {**block, "text": f"[result of {block.get('name', 'a tool')} left out to save room: {length} characters; node {node} holds it]"}


def summary_fragment(node: Call, replaced: int) -> Fragment:
    """What stands for the first ``replaced`` entries after they were summarized."""
    text = f"(Summary of what came before; it replaces {replaced} entries of this conversation.)\n\n{node.output}"
    return Fragment(node.id, (text_message("user", text),))


def weight(messages: Sequence[Message]) -> int:
    """About how many tokens messages take: one for three bytes of text, which is rather too many, and a fixed number for media."""
    return sum(MESSAGE_TOKENS + sum(map(_block_weight, message.blocks)) for message in messages)


MESSAGE_TOKENS = 4
MEDIA_TOKENS = 1500
BYTES_PER_TOKEN = 3


def text_weight(text: str) -> int:
    """About how many tokens a text takes."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def _block_weight(block: Block) -> int:
    kind = block.get("type")
    if kind in MEDIA:
        return MEDIA_TOKENS
    if kind in ("text", "tool_result"):
        return text_weight(str(block.get("text", "")))
    return text_weight(shown({key: value for key, value in block.items() if key != "type"}, 1_000_000))
