"""Reading a reply of the Anthropic Messages wire: typed events in, events out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from openprogram.providers.base import ModelEvent, Opaque, TextDelta, ThinkingDelta, Usage
from openprogram.providers.transport import Where, payload_error
from openprogram.providers.wire import DONE, Calls, Fields, broken_off, count, empty, ending, no_object, object_of, objects

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refusal",
}
_SENT_BACK = ("thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result")


class AnthropicReply:
    """Content blocks come one after another, each begun, continued and ended by its own events."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._calls = Calls()
        self._blocks: dict[Any, Fields] = {}
        self._usage: Fields = {}
        self._reason: str | None = None
        self._why = ""
        self._said = False
        self.done = False

    @property
    def finished(self) -> bool:
        return self.done or self._reason is not None

    def feed(self, piece: Any) -> Iterator[ModelEvent]:
        if piece == DONE:
            self.done = True
            return
        if not isinstance(piece, dict):
            raise no_object(self._where, piece)
        fields = cast("Fields", piece)
        kind = fields.get("type")
        if kind == "error" or (kind is None and fields.get("error")):
            raise payload_error(self._where, fields.get("error") or fields)
        if kind == "message_start":
            self._count(object_of(fields.get("message")).get("usage"))
        elif kind == "content_block_start":
            yield from self._start(fields.get("index"), object_of(fields.get("content_block")))
        elif kind == "content_block_delta":
            yield from self._delta(fields.get("index"), object_of(fields.get("delta")))
        elif kind == "content_block_stop":
            yield from self._stop(fields.get("index"))
        elif kind == "message_delta":
            self._ended(object_of(fields.get("delta")))
            self._count(fields.get("usage"))
        elif kind == "message_stop":
            self.done = True

    def _start(self, index: Any, block: Fields) -> Iterator[ModelEvent]:
        kind = block.get("type")
        self._blocks[index] = {**block}
        if kind == "tool_use":
            self._calls.add(index, str(block.get("id") or ""), str(block.get("name") or ""), block.get("input") or "")
        elif kind == "text":
            yield from self._text(block.get("text"))
        elif kind == "thinking" and isinstance(block.get("thinking"), str) and block["thinking"]:
            yield ThinkingDelta(block["thinking"])

    def _text(self, text: Any) -> Iterator[ModelEvent]:
        if isinstance(text, str) and text:
            self._said = True
            yield TextDelta(text)

    def _delta(self, index: Any, delta: Fields) -> Iterator[ModelEvent]:
        kind, block = delta.get("type"), self._blocks.setdefault(index, {})
        if kind == "text_delta":
            yield from self._text(delta.get("text"))
        elif kind == "thinking_delta" and isinstance(delta.get("thinking"), str) and delta["thinking"]:
            block["thinking"] = f"{block.get('thinking', '')}{delta['thinking']}"
            yield ThinkingDelta(delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = f"{block.get('signature') or ''}{delta.get('signature') or ''}"
        elif kind == "input_json_delta" and block.get("type") == "tool_use":
            self._calls.add(index, "", "", delta.get("partial_json"))
        elif kind == "input_json_delta":
            block["partial"] = f"{block.get('partial', '')}{delta.get('partial_json') or ''}"

    def _stop(self, index: Any) -> Iterator[ModelEvent]:
        """A finished block that the next request must repeat."""
        block = self._blocks.pop(index, {})
        if block.get("type") in _SENT_BACK:
            yield Opaque(self._where.provider, self._where.model, _whole(block), len(self._calls))

    def _ended(self, delta: Fields) -> None:
        self._reason = str(delta.get("stop_reason") or "") or self._reason
        self._why = str(object_of(delta.get("stop_details")).get("category") or "") or self._why

    def _count(self, usage: Any) -> None:
        """Counts are cumulative: a later one replaces an earlier one."""
        self._usage.update({key: value for key, value in object_of(usage).items() if value is not None})

    def whole(self, document: Any) -> Iterator[ModelEvent]:
        message = object_of(document)
        if error := message.get("error"):
            raise payload_error(self._where, error)
        for index, block in enumerate(objects(message.get("content"))):
            yield from self._start(index, block)
            yield from self._stop(index)
        self._ended(message)
        self._count(message.get("usage"))
        self.done = True

    def end(self) -> Iterator[ModelEvent]:
        if not self.finished:
            raise broken_off(self._where)
        if self._reason is None and not self._said and not self._calls:
            raise empty(self._where)
        reason = _FINISH.get(self._reason or "end_turn", "stop")
        yield from ending(self._where, reason, self._calls, self._usages(), said=self._said, why=self._why)

    def _usages(self) -> Usage | None:
        """Here the prompt's tokens are three disjoint counts; `Usage` counts it whole."""
        fields = self._usage
        if not fields:
            return None
        read, created = count(fields.get("cache_read_input_tokens")), count(fields.get("cache_creation_input_tokens"))
        return Usage(
            input_tokens=count(fields.get("input_tokens")) + read + created,
            output_tokens=count(fields.get("output_tokens")),
            cache_read=read,
            cache_create=created,
            reasoning_tokens=count(object_of(fields.get("output_tokens_details")).get("thinking_tokens")),
        )


def _whole(block: Fields) -> Fields:
    """The block as it is sent back: a server tool's input comes in pieces of JSON."""
    partial = block.pop("partial", None)
    if not partial:
        return block
    import json

    try:
        return {**block, "input": json.loads(partial)}
    except ValueError:
        return block
