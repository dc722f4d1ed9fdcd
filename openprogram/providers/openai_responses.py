"""The OpenAI Responses wire.

Nothing is stored at the provider (``store`` is false): the whole conversation goes along, and what the model thought comes back encrypted, as `Opaque` items
that are sent again with the calls they led to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import httpx

from openprogram.context.messages import Block
from openprogram.errors import LLMError, Reason
from openprogram.providers.base import ModelEvent, ModelRequest, Opaque, Profile, TextDelta, ThinkingDelta, ToolSpec, Usage
from openprogram.providers.conversation import Turn, arguments_json, result_text, turns_of
from openprogram.providers.media import KINDS, media_of
from openprogram.providers.openai_messages import check_tools, chosen_name, openai_schema
from openprogram.providers.thinking import effort
from openprogram.providers.transport import Where, payload_error
from openprogram.providers.wire import DONE, Calls, Fields, broken_off, count, empty, ending, no_object, object_of, objects


class ResponsesWire:
    """OpenAI Responses. ``key_header`` names the header of the key where that is no bearer token."""

    path = "/responses"
    root = "/v1"

    def __init__(self, *, key_header: str = "") -> None:
        self._key_header = key_header

    def url(self, base: httpx.URL, model: str) -> httpx.URL:
        return base.copy_with(path=base.path + self.path)

    def models_url(self, base: httpx.URL) -> httpx.URL:
        return base.copy_with(path=f"{base.path}/models")

    def headers(self, key: str) -> Mapping[str, str]:
        return {self._key_header: key} if self._key_header else {"Authorization": f"Bearer {key}"}

    def body(self, request: ModelRequest, profile: Profile, provider: str) -> Fields:
        settings = request.settings
        level = effort(settings.thinking, profile)
        options = {
            "instructions": request.system,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_output_tokens": settings.max_output_tokens,
            "prompt_cache_key": request.session_id,
            "reasoning": None if level is None else {"effort": level, "summary": "auto"},
            "include": ["reasoning.encrypted_content"] if profile.thinking else None,
        }
        body: Fields = {"model": request.model, "input": _input(request, profile, provider), "stream": True, "store": False}
        body.update({key: value for key, value in options.items() if value is not None})
        if settings.stop or settings.seed is not None:
            raise LLMError("the Responses API takes neither stop nor seed; the provider openai_chat does", reason=Reason.BAD_REQUEST, model=request.model)
        body.update(_tools(request, profile))
        if request.constraint is not None:
            body.update(_constraint(request, profile))
        return {**body, **settings.extra}

    def reader(self, where: Where) -> ResponsesReply:
        return ResponsesReply(where)

    def without(self, body: Fields, refusal: bytes) -> Fields | None:
        return None


def _tools(request: ModelRequest, profile: Profile) -> Fields:
    check_tools(request, profile)
    tools: list[Fields] = [_tool(tool) for tool in request.tools]
    if request.settings.web_search:
        tools.append({"type": "web_search"})
    if not tools:
        return {}
    name = chosen_name(request.tool_choice)
    body: Fields = {"tools": tools, "tool_choice": request.tool_choice if name is None else {"type": "function", "name": name}}
    if not request.parallel_tool_calls:
        body["parallel_tool_calls"] = False
    return body


def _tool(tool: ToolSpec) -> Fields:
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": tool.strict}


def _constraint(request: ModelRequest, profile: Profile) -> Fields:
    assert request.constraint is not None
    if request.constraint.grammar is not None:
        raise NotImplementedError(f"the model {request.model!r} takes no grammar; its profile says so")
    schema = openai_schema(request.constraint, profile)
    return {} if schema is None else {"text": {"format": {"type": "json_schema", **schema}}}


def _input(request: ModelRequest, profile: Profile, provider: str) -> list[Fields]:
    items = [item for turn in turns_of(request, provider, tools=profile.tools) for item in _items(turn, request.model, profile)]
    return items or [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": ""}]}]


def _items(turn: Turn, model: str, profile: Profile) -> Iterator[Fields]:
    """One turn is several items: messages, calls, their outputs and what the model thought, each in its place."""
    content: list[Block] = []
    for block in turn.blocks:
        item = _item(block)
        if item is None:
            content.append(block)
            continue
        if content:
            yield _message(turn.role, content, model, profile)
            content = []
        yield item
    if content:
        yield _message(turn.role, content, model, profile)


def _message(role: str, blocks: list[Block], model: str, profile: Profile) -> Fields:
    """What a model said is a plain text here: its own form would need ids that nobody kept."""
    if role == "assistant":
        return {"type": "message", "role": role, "content": "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")}
    return {"type": "message", "role": role, "content": [_part(block, model, profile) for block in blocks]}


def _item(block: Block) -> Fields | None:
    """A block that is an item of its own; None for what belongs into a message."""
    kind = block.get("type")
    if kind == "tool_call":
        return {"type": "function_call", "call_id": str(block["id"]), "name": block["name"], "arguments": arguments_json(block)}
    if kind == "tool_result":
        return {"type": "function_call_output", "call_id": str(block["id"]), "output": result_text(block)}
    return dict(block["data"]) if kind == "opaque" else None


def _part(block: Block, model: str, profile: Profile) -> Fields:
    if block.get("type") not in KINDS:
        return {"type": "input_text", "text": str(block.get("text", ""))}
    media = media_of(block, model, profile)
    if media.kind != "image":
        raise LLMError(f"the Responses API takes no {media.kind} input; the provider openai_chat does", reason=Reason.BAD_REQUEST, model=model)
    return {"type": "input_image", "detail": "auto", "image_url": media.uri}


class ResponsesReply:
    """Typed events in, events out. The response as a whole comes with the last one."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._calls = Calls()
        self._usage: Usage | None = None
        self._status: str | None = None
        self._why = ""
        self._refused = False
        self._said = False
        self.done = False

    @property
    def finished(self) -> bool:
        return self._status is not None

    def feed(self, piece: Any) -> Iterator[ModelEvent]:
        if piece == DONE:
            self.done = True
            return
        if not isinstance(piece, dict):
            raise no_object(self._where, piece)
        fields = cast("Fields", piece)
        kind = str(fields.get("type") or "")
        if kind == "error" or (not kind and fields.get("error")):
            raise payload_error(self._where, fields.get("error") or fields)
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self._end(object_of(fields.get("response")))
        elif kind.startswith("response.output_item."):
            yield from self._item(kind, fields)
        else:
            yield from self._delta(kind, fields)

    def _delta(self, kind: str, fields: Fields) -> Iterator[ModelEvent]:
        delta = fields.get("delta")
        if not isinstance(delta, str) or not delta:
            return
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._said = True
            self._refused = self._refused or kind == "response.refusal.delta"
            yield TextDelta(delta)
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            yield ThinkingDelta(delta)
        elif kind == "response.function_call_arguments.delta":
            self._calls.add(fields.get("output_index"), "", "", delta)

    def _item(self, kind: str, fields: Fields) -> Iterator[ModelEvent]:
        item, index = object_of(fields.get("item")), fields.get("output_index")
        if item.get("type") == "function_call":
            if kind.endswith(".added"):
                self._calls.add(index, str(item.get("call_id") or ""), str(item.get("name") or ""), item.get("arguments"))
            else:
                self._calls.add(index, str(item.get("call_id") or ""), str(item.get("name") or ""), "")
                self._calls.replace(index, str(item.get("arguments") or ""))
        elif item.get("type") == "reasoning" and kind.endswith(".done"):
            yield self._opaque(item)

    def _opaque(self, item: Fields) -> Opaque:
        data = {key: value for key, value in item.items() if key not in ("status", "content") or value}
        return Opaque(self._where.provider, self._where.model, data, len(self._calls))

    def _end(self, response: Fields) -> None:
        self._usage = _usage(response.get("usage")) or self._usage
        self._status = str(response.get("status") or "completed")
        self.done = True
        if self._status in ("failed", "cancelled"):
            raise payload_error(self._where, response.get("error") or {"message": f"the response {self._status}"})
        self._why = str(object_of(response.get("incomplete_details")).get("reason") or "")

    def whole(self, document: Any) -> Iterator[ModelEvent]:
        response = object_of(document)
        if error := response.get("error"):
            raise payload_error(self._where, error)
        for index, item in enumerate(objects(response.get("output"))):
            if item.get("type") == "message":
                for part in objects(item.get("content")):
                    kind = "response.refusal.delta" if part.get("type") == "refusal" else "response.output_text.delta"
                    yield from self._delta(kind, {"delta": part.get("refusal") or part.get("text")})
            else:
                yield from self._item("response.output_item.done", {"item": item, "output_index": index})
        if response.get("output") or response.get("status"):
            self._end(response)
        else:
            raise empty(self._where)

    def end(self) -> Iterator[ModelEvent]:
        if self._status is None:
            raise empty(self._where) if self.done and not self._said else broken_off(self._where)
        reason = "refusal" if self._refused else "stop"
        if self._status == "incomplete":
            reason = "content_filter" if self._why == "content_filter" else "length"
        yield from ending(self._where, reason, self._calls, self._usage, said=self._said, why=self._why)


def _usage(value: Any) -> Usage | None:
    fields = object_of(value)
    if not fields:
        return None
    read = object_of(fields.get("input_tokens_details"))
    return Usage(
        input_tokens=count(fields.get("input_tokens")),
        output_tokens=count(fields.get("output_tokens")),
        cache_read=count(read.get("cached_tokens")),
        cache_create=count(read.get("cache_write_tokens")),
        reasoning_tokens=count(object_of(fields.get("output_tokens_details")).get("reasoning_tokens")),
    )
