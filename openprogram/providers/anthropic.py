"""The Anthropic Messages wire.

What the model thought is signed and must come back unchanged before the results of the calls it led to, so thoughts travel as `Opaque` blocks. A prompt that
will be continued (it has a history or tools) is marked for caching at the end of the system part and of the last message.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from openprogram.context.messages import Block
from openprogram.errors import LLMError, Reason
from openprogram.providers.anthropic_reply import AnthropicReply
from openprogram.providers.base import ModelRequest, Profile, ToolSpec
from openprogram.providers.conversation import arguments_of, result_text, turns_of
from openprogram.providers.media import Media, media_of
from openprogram.providers.openai_messages import check_tools, chosen_name
from openprogram.providers.schemas import is_supported
from openprogram.providers.thinking import budget, check_level
from openprogram.providers.transport import Where
from openprogram.providers.wire import Fields

VERSION = "2023-06-01"
_MAX_TOKENS = 4096
_MOST_MARKS = 4
_MARK = {"type": "ephemeral"}


class AnthropicWire:
    """Anthropic Messages. ``bearer`` sends the key as a bearer token, as gateways want it."""

    path = "/v1/messages"
    root = ""

    def __init__(self, *, bearer: bool = False) -> None:
        self._bearer = bearer

    def url(self, base: httpx.URL, model: str) -> httpx.URL:
        root = base.path.rstrip("/").removesuffix("/v1")
        return base.copy_with(path=root + self.path)

    def models_url(self, base: httpx.URL) -> httpx.URL:
        root = base.path.rstrip("/").removesuffix("/v1")
        return base.copy_with(path=f"{root}/v1/models").copy_merge_params({"limit": 1000})

    def headers(self, key: str) -> Mapping[str, str]:
        shown = {"Authorization": f"Bearer {key}"} if self._bearer else {"x-api-key": key}
        return {**shown, "anthropic-version": VERSION}

    def body(self, request: ModelRequest, profile: Profile, provider: str) -> Fields:
        settings = request.settings
        if settings.seed is not None:
            raise LLMError("the Messages API takes no seed", reason=Reason.BAD_REQUEST, model=request.model)
        if not profile.sampling and (settings.temperature is not None or settings.top_p is not None):
            raise LLMError(f"the model {request.model!r} takes neither temperature nor top_p", reason=Reason.BAD_REQUEST, model=request.model)
        most = settings.max_output_tokens or profile.max_output_tokens or _MAX_TOKENS
        thinking = _thinking(request, profile, most)
        continued = request.history is not None or bool(request.tools)
        body: Fields = {"model": request.model, "max_tokens": most, "messages": _messages(request, profile, provider), "stream": True, **thinking}
        if request.system:
            body["system"] = [{"type": "text", "text": request.system}]
        options = {"temperature": settings.temperature, "top_p": settings.top_p, "stop_sequences": list(settings.stop) or None}
        body.update({key: value for key, value in options.items() if value is not None})
        body.update(_tools(request, profile))
        if (constraint := request.constraint) is not None:
            if constraint.grammar is not None:
                raise NotImplementedError(f"the model {request.model!r} takes no grammar; its profile says so")
            if is_supported(profile, constraint.schema):
                body["output_config"] = {**body.get("output_config", {}), "format": {"type": "json_schema", "schema": constraint.schema}}
        return {**_marked(body, continued), **settings.extra}

    def reader(self, where: Where) -> AnthropicReply:
        return AnthropicReply(where)

    def without(self, body: Fields, refusal: bytes) -> Fields | None:
        return None


def _thinking(request: ModelRequest, profile: Profile, most: int) -> Fields:
    level = check_level(request.settings.thinking)
    if level is None or level == "off" or profile.thinking is None:
        return {}
    if profile.thinking == "adaptive":
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}
    tokens = min(budget(level) or 0, most - 1024)
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens >= 1024 else {}


def _messages(request: ModelRequest, profile: Profile, provider: str) -> list[Fields]:
    turns = turns_of(request, provider, tools=profile.tools, alternate=True)
    return [{"role": turn.role, "content": [_block(block, request.model, profile) for block in turn.blocks]} for turn in turns]


def _block(block: Block, model: str, profile: Profile) -> Fields:
    kind = block.get("type")
    if kind == "tool_call":
        return {"type": "tool_use", "id": str(block["id"]), "name": block["name"], "input": arguments_of(block)}
    if kind == "tool_result":
        failed = {"is_error": True} if block.get("is_error") else {}
        return {"type": "tool_result", "tool_use_id": str(block["id"]), "content": result_text(block), **failed}
    if kind == "opaque":
        return dict(block["data"])
    mark = {"cache_control": block["cache_control"]} if block.get("cache_control") else {}
    if kind == "text":
        return {"type": "text", "text": str(block.get("text", "")), **mark}
    return {**_image(media_of(block, model, profile)), **mark}


def _image(media: Media) -> Fields:
    source = {"type": "url", "url": media.url} if media.url else {"type": "base64", "media_type": media.mime_type, "data": media.data}
    return {"type": "image", "source": source}


def _tools(request: ModelRequest, profile: Profile) -> Fields:
    check_tools(request, profile)
    tools: list[Fields] = [_tool(tool) for tool in request.tools]
    if request.settings.web_search:
        tools.append({"type": "web_search_20250305", "name": "web_search"})
    if not tools:
        return {}
    name = chosen_name(request.tool_choice)
    word = {"auto": "auto", "required": "any", "none": "none"}.get(str(request.tool_choice), "auto")
    choice: Fields = {"type": word} if name is None else {"type": "tool", "name": name}
    if not request.parallel_tool_calls and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return {"tools": tools, "tool_choice": choice}


def _tool(tool: ToolSpec) -> Fields:
    strict = {"strict": True} if tool.strict else {}
    return {"name": tool.name, "description": tool.description, "input_schema": {"type": "object", **tool.parameters}, **strict}


def _marked(body: Fields, continued: bool) -> Fields:
    """The body with marks for caching: the author's own (the last ones, where there are too many), and two of ours where there is room."""
    blocks: list[Fields] = [block for message in body["messages"] for block in message["content"]]
    marked = [block for block in blocks if "cache_control" in block]
    for block in marked[:-_MOST_MARKS]:
        del block["cache_control"]
    room = max(0, _MOST_MARKS - len(marked))
    ends = [block for block in (*blocks[-1:], *body.get("system", [])[-1:], *body.get("tools", [])[-1:]) if "cache_control" not in block]
    for block in ends[: min(2, room)] if continued else ():
        if block.get("type") not in ("thinking", "redacted_thinking"):
            block["cache_control"] = _MARK
    return body
