"""The Gemini wire (generateContent).

Newer models sign their thoughts, and refuse a function call that comes back without its signature. A signature travels as an `Opaque` block right before the
call or after the text that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import httpx

from openprogram.context.messages import Block
from openprogram.errors import Reason
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, Opaque, Profile, TextDelta, ThinkingDelta, ToolCall, ToolSpec, Usage
from openprogram.providers.conversation import Turn, arguments_of, result_text, turns_of
from openprogram.providers.media import media_of
from openprogram.providers.openai_messages import check_tools, chosen_name
from openprogram.providers.schemas import is_supported
from openprogram.providers.thinking import budget, check_level
from openprogram.providers.transport import Where, payload_error
from openprogram.providers.wire import DONE, Fields, broken_off, count, empty, no_object, object_of, objects, withheld

_UNSIGNED = "skip_thought_signature_validator"
"""What Google documents for calls that another model made."""

_BLOCKED = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "JAILBREAK"}
    | {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"}
)
_ENDED = {"STOP": "stop", "MAX_TOKENS": "length"}


class GeminiWire:
    """Gemini's streamGenerateContent; the model is a part of the address."""

    path = ""
    root = "/v1beta"

    def url(self, base: httpx.URL, model: str) -> httpx.URL:
        name = model if "/" in model else f"models/{model}"
        return base.copy_with(path=f"{base.path}/{name}:streamGenerateContent").copy_merge_params({"alt": "sse"})

    def models_url(self, base: httpx.URL) -> httpx.URL:
        return base.copy_with(path=f"{base.path}/models").copy_merge_params({"pageSize": 1000})

    def headers(self, key: str) -> Mapping[str, str]:
        return {"x-goog-api-key": key}

    def body(self, request: ModelRequest, profile: Profile, provider: str) -> Fields:
        turns = turns_of(request, provider, tools=profile.tools, alternate=True)
        body: Fields = {"contents": [_content(turn, request.model, profile) for turn in turns]}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        body.update(_tools(request, profile))
        if config := {**_settings(request), **_thinking(request, profile), **_constraint(request, profile)}:
            body["generationConfig"] = config
        return {**body, **request.settings.extra}

    def reader(self, where: Where) -> GeminiReply:
        return GeminiReply(where)

    def without(self, body: Fields, refusal: bytes) -> Fields | None:
        return None


def _settings(request: ModelRequest) -> Fields:
    settings = request.settings
    fields = {
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "maxOutputTokens": settings.max_output_tokens,
        "seed": settings.seed,
        "stopSequences": list(settings.stop) or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _thinking(request: ModelRequest, profile: Profile) -> Fields:
    level = check_level(request.settings.thinking)
    if level is None or profile.thinking is None:
        return {}
    if profile.thinking == "budget":
        tokens = int(profile.thinking_off or 0) if level == "off" else budget(level)
        return {"thinkingConfig": {"thinkingBudget": tokens, "includeThoughts": level != "off"}}
    named = profile.thinking_off if level == "off" else level
    return {"thinkingConfig": {"thinkingLevel": str(named).upper(), "includeThoughts": level != "off"}}


def _constraint(request: ModelRequest, profile: Profile) -> Fields:
    constraint = request.constraint
    if constraint is None:
        return {}
    if constraint.grammar is not None:
        raise NotImplementedError(f"the model {request.model!r} takes no grammar; its profile says so")
    if request.tools or not is_supported(profile, constraint.schema):  # older models refuse a schema beside tools
        return {}
    return {"responseMimeType": "application/json", "responseJsonSchema": constraint.schema}


def _tools(request: ModelRequest, profile: Profile) -> Fields:
    check_tools(request, profile)
    tools: list[Fields] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}] if request.tools else []
    if request.settings.web_search:
        tools.append({"googleSearch": {}})
    if not request.tools:
        return {"tools": tools} if tools else {}
    name = chosen_name(request.tool_choice)
    mode = "ANY" if name is not None else {"auto": "AUTO", "required": "ANY", "none": "NONE"}.get(str(request.tool_choice), "AUTO")
    only = {} if name is None else {"allowedFunctionNames": [name]}
    return {"tools": tools, "toolConfig": {"functionCallingConfig": {"mode": mode, **only}}}


def _tool(tool: ToolSpec) -> Fields:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}


def _content(turn: Turn, model: str, profile: Profile) -> Fields:
    parts: list[Fields] = []
    signature: str | None = None
    for block in turn.blocks:
        if block.get("type") == "opaque" and "thoughtSignature" in block["data"]:
            signature = block["data"]["thoughtSignature"]
            continue
        part = _part(block, model, profile)
        if "functionCall" in part:
            first = not any("functionCall" in other for other in parts)
            signature = signature or (_UNSIGNED if first and profile.thinking == "level" else None)
            part = {**part, "thoughtSignature": signature} if signature else part
            signature = None
        parts.append(part)
    return {"role": "model" if turn.role == "assistant" else "user", "parts": parts}


def _part(block: Block, model: str, profile: Profile) -> Fields:
    kind = block.get("type")
    if kind == "tool_call":
        return {"functionCall": {"id": str(block["id"]), "name": block["name"], "args": arguments_of(block)}}
    if kind == "tool_result":
        said = {"error" if block.get("is_error") else "result": result_text(block)}
        return {"functionResponse": {"id": str(block["id"]), "name": str(block.get("name", "tool")), "response": said}}
    if kind == "opaque":
        return dict(block["data"]["part"])
    if kind == "text":
        return {"text": str(block.get("text", ""))}
    media = media_of(block, model, profile)
    if media.url:
        return {"fileData": {"mimeType": media.mime_type, "fileUri": media.url}}
    return {"inlineData": {"mimeType": media.mime_type, "data": media.data}}


class GeminiReply:
    """Chunks in, events out; a function call comes whole."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._calls: list[tuple[ToolCall, str | None]] = []
        self._usage: Usage | None = None
        self._reason: str | None = None
        self._why = ""
        self._blocked: str | None = None
        self._said = False
        self.done = False

    @property
    def finished(self) -> bool:
        return self.done or self._reason is not None or self._blocked is not None

    def feed(self, piece: Any) -> Iterator[ModelEvent]:
        if piece == DONE:
            self.done = True
            return
        if not isinstance(piece, dict):
            raise no_object(self._where, piece)
        fields = cast("Fields", piece)
        if error := fields.get("error"):
            raise payload_error(self._where, error)
        self._usage = _usage(fields.get("usageMetadata")) or self._usage
        feedback = object_of(fields.get("promptFeedback"))
        if "blockReason" in feedback:
            self._blocked = str(feedback.get("blockReason") or "no reason was given")
        for candidate in objects(fields.get("candidates"))[:1]:
            for part in objects(object_of(candidate.get("content")).get("parts")):
                yield from self._part(part)
            self._reason = str(candidate.get("finishReason") or "") or self._reason
            self._why = str(candidate.get("finishMessage") or "") or self._why

    def _part(self, part: Fields) -> Iterator[ModelEvent]:
        text, signature = part.get("text"), part.get("thoughtSignature")
        if call := object_of(part.get("functionCall")):
            arguments = call.get("args")
            named = ToolCall(str(call.get("id") or f"call_{len(self._calls)}"), str(call.get("name") or ""), _json(arguments))
            self._calls.append((named, signature if isinstance(signature, str) else None))
            return
        if isinstance(text, str) and text:
            self._said = self._said or not part.get("thought")
            yield ThinkingDelta(text) if part.get("thought") else TextDelta(text)
        if isinstance(signature, str) and signature and not part.get("thought"):
            yield self._opaque({"part": {"text": "", "thoughtSignature": signature}}, len(self._calls))

    def _opaque(self, data: Any, calls: int) -> Opaque:
        return Opaque(self._where.provider, self._where.model, data, calls)

    def whole(self, document: Any) -> Iterator[ModelEvent]:
        self.done = True
        for piece in cast("list[Any]", document) if isinstance(document, list) else [document]:
            yield from self.feed(object_of(piece))

    def end(self) -> Iterator[ModelEvent]:
        reason = self._reason
        if self._blocked is not None and reason is None:
            raise withheld(self._where, self._blocked)
        if not self.finished:
            raise broken_off(self._where)
        if reason in _BLOCKED:
            if not self._said:
                raise withheld(self._where, f"{reason} {self._why}".strip(), retryable=reason == "RECITATION")
            yield Finish(reason="content_filter", usage=self._usage)
            return
        if reason is not None and reason not in _ENDED:
            raise self._where.error(f"the model ended its reply with {reason} {self._why}".strip(), Reason.PROTOCOL, retryable=True)
        if not self._said and not self._calls and reason != "MAX_TOKENS":
            raise empty(self._where, reason or "")
        for number, (call, signature) in enumerate(self._calls):
            if signature:
                yield self._opaque({"thoughtSignature": signature}, number)
            yield call
        ended = _ENDED[reason or "STOP"]
        yield Finish(reason="tool_calls" if self._calls and ended == "stop" else ended, usage=self._usage)


def _json(arguments: Any) -> str:
    import msgspec

    return msgspec.json.encode({} if arguments is None else arguments).decode()


def _usage(value: Any) -> Usage | None:
    fields = object_of(value)
    if not fields:
        return None
    thoughts = count(fields.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=count(fields.get("promptTokenCount")) + count(fields.get("toolUsePromptTokenCount")),
        output_tokens=count(fields.get("candidatesTokenCount")) + thoughts,
        cache_read=count(fields.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )
