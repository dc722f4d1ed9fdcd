"""One reply in each of the four wire formats, and what a vendor's server refuses: together with `tests.support.http_server` a server that speaks them all.

``Server(say("Hello"))`` answers a Chat Completions request with chat chunks, a Gemini request with Gemini chunks, and refuses a history that the vendor would
refuse with a 400 that says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_server import Answer, Ending, Request
from tests.support.refusing import refusal_of

KINDS = ("chat", "responses", "anthropic", "gemini")
Piece = tuple[str | None, Any]
"""The name of a server-sent event, None for none, and its data: an object, or text that is sent as it is."""


@dataclass(frozen=True)
class Call:
    """A tool call of a reply; ``signature`` is what Gemini signs it with."""

    id: str
    name: str
    arguments: str = "{}"
    signature: str | None = None


@dataclass(frozen=True)
class Say:
    """A reply. ``finish`` is ``stop``, ``length``, ``content_filter`` or ``refusal``; ``usage`` counts prompt, cached, output and reasoning tokens."""

    texts: Sequence[str] = ()
    calls: Sequence[Call] = ()
    thinking: str = ""
    signature: str = "sig=="
    finish: str = "stop"
    usage: tuple[int, int, int, int] = (12, 4, 5, 2)
    error: dict[str, Any] | None = None
    interleaved: bool = False
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


def kind_of(target: str) -> str:
    """The wire format that a request's path belongs to."""
    path = target.partition("?")[0]
    endings = {"/chat/completions": "chat", "/responses": "responses", "/messages": "anthropic", ":streamGenerateContent": "gemini"}
    return next(kind for ending, kind in endings.items() if path.endswith(ending))


def say(*texts: str, ending: Ending = "close", cut: int | None = None, **fields: Any) -> Callable[[Request], Answer]:
    """An answer in the format that is asked for. ``cut`` sends only so many of its events."""
    reply = Say(texts=texts, **fields)

    def answer(request: Request) -> Answer:
        kind = kind_of(request.target)
        refused = refusal_of(kind, request.json)
        if refused is not None:
            return Answer(chunks=[json.dumps({"error": {"message": refused}}).encode()], status=400, headers={"Content-Type": "application/json"})
        chunks = [encoded(piece) for piece in pieces(kind, reply)]
        return Answer(chunks=chunks[:cut], headers={"Content-Type": "text/event-stream"}, ending=ending)

    return answer


def bytes_of(kind: str, reply: Say) -> list[bytes]:
    """The events of a reply, each a chunk of its own."""
    return [encoded(piece) for piece in pieces(kind, reply)]


def encoded(piece: Piece) -> bytes:
    """One server-sent event."""
    name, data = piece
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{f'event: {name}{chr(10)}' if name else ''}data: {text}\n\n".encode()


def pieces(kind: str, reply: Say) -> list[Piece]:
    """The events of a reply."""
    return list({"chat": _chat, "responses": _responses, "anthropic": _anthropic, "gemini": _gemini}[kind](reply))


def halves(text: str) -> tuple[str, str]:
    """A text in two pieces."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def _rounds(calls: Sequence[Call], interleaved: bool) -> Iterator[tuple[int, Call, int]]:
    """(index, call, which half of its arguments), one call after the other or all at once."""
    if interleaved:
        yield from ((index, call, half) for half in (0, 1) for index, call in enumerate(calls))
    else:
        yield from ((index, call, half) for index, call in enumerate(calls) for half in (0, 1))


def _chat(reply: Say) -> Iterator[Piece]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> Piece:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return None, {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m1", "choices": [choice]}

    yield chunk({"role": "assistant", "content": None})
    if reply.thinking:
        yield chunk({"reasoning_content": reply.thinking})
    for text in reply.texts:
        yield chunk({"refusal" if reply.finish == "refusal" else "content": text})
    if reply.error is not None:
        yield None, {"error": reply.error}
    for index, call, half in _rounds(reply.calls, reply.interleaved):
        named = {"id": call.id, "type": "function"} if half == 0 else {}
        function = {"name": call.name} if half == 0 else {}
        yield chunk({"tool_calls": [{"index": index, **named, "function": {**function, "arguments": halves(call.arguments)[half]}}]})
    finish = {"stop": "tool_calls" if reply.calls else "stop", "refusal": "stop"}.get(reply.finish, reply.finish)
    yield chunk({}, finish)
    prompt, cached, output, reasoning = reply.usage
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    yield None, {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m1", "choices": [], "usage": usage}
    yield None, "[DONE]"


def _responses(reply: Say) -> Iterator[Piece]:
    number = iter(range(1000))

    def event(kind: str, **fields: Any) -> Piece:
        return kind, {"type": kind, "sequence_number": next(number), **fields}

    yield event("response.created", response=_response(reply, "in_progress", []))
    output: list[dict[str, Any]] = []
    if reply.thinking:
        place = {"item_id": "rs1", "output_index": 0, "summary_index": 0}
        item: dict[str, Any] = {"type": "reasoning", "id": "rs1", "summary": [], "encrypted_content": None}
        yield event("response.output_item.added", output_index=0, item=item)
        yield event("response.reasoning_summary_text.delta", **place, delta=reply.thinking)
        item = {**item, "summary": [{"type": "summary_text", "text": reply.thinking}], "encrypted_content": reply.signature}
        yield event("response.output_item.done", output_index=0, item=item)
        output.append(item)
    if reply.texts:
        kind = "refusal" if reply.finish == "refusal" else "output_text"
        index = len(output)
        item: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": []}
        yield event("response.output_item.added", output_index=index, item=item)
        for text in reply.texts:
            logprobs: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
            yield event(f"response.{kind}.delta", item_id="m1", output_index=index, content_index=0, delta=text, **logprobs)
        text = "".join(reply.texts)
        part: dict[str, Any] = {"type": kind, "refusal": text} if kind == "refusal" else {"type": kind, "text": text, "annotations": []}
        output.append({**item, "status": "completed", "content": [part]})
        yield event("response.output_item.done", output_index=index, item=output[-1])
    if reply.error is not None:
        yield "error", {"type": "error", "sequence_number": next(number), "param": None, **reply.error}
    yield from _response_calls(reply, event, output)
    status = "completed" if reply.finish in ("stop", "refusal") else "incomplete"
    yield event(f"response.{status}", response=_response(reply, status, output))


def _response_calls(reply: Say, event: Callable[..., Piece], output: list[dict[str, Any]]) -> Iterator[Piece]:
    base = len(output)
    items = [{"type": "function_call", "id": f"fc{n}", "call_id": call.id, "name": call.name, "arguments": ""} for n, call in enumerate(reply.calls)]
    for index, call, half in _rounds(reply.calls, reply.interleaved):
        if half == 0:
            yield event("response.output_item.added", output_index=base + index, item={**items[index], "status": "in_progress"})
        delta = halves(call.arguments)[half]
        yield event("response.function_call_arguments.delta", item_id=f"fc{index}", output_index=base + index, delta=delta)
    for index, call in enumerate(reply.calls):
        output.append({**items[index], "arguments": call.arguments, "status": "completed"})
        yield event("response.output_item.done", output_index=base + index, item=output[-1])


def _response(reply: Say, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    prompt, cached, written, reasoning = reply.usage
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + written,
    }
    why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish)
    return {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "model": "m1",
        "status": status,
        "output": output,
        "error": None,
        "incomplete_details": {"reason": why} if status == "incomplete" else None,
        "usage": None if status == "in_progress" else usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _anthropic(reply: Say) -> Iterator[Piece]:
    def event(kind: str, **fields: Any) -> Piece:
        return kind, {"type": kind, **fields}

    prompt, cached, written, reasoning = reply.usage
    usage = {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield event("message_start", message=message)
    yield event("ping")
    index = 0
    if reply.thinking:
        yield event("content_block_start", index=index, content_block={"type": "thinking", "thinking": "", "signature": ""})
        yield event("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": reply.thinking})
        yield event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": reply.signature})
        yield event("content_block_stop", index=index)
        index += 1
    if reply.texts:
        yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for text in reply.texts:
            yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})
        yield event("content_block_stop", index=index)
        index += 1
    if reply.error is not None:
        yield event("error", error=reply.error)
    for offset, call, half in _rounds(reply.calls, reply.interleaved):
        if half == 0:
            block: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            yield event("content_block_start", index=index + offset, content_block=block)
        delta = {"type": "input_json_delta", "partial_json": halves(call.arguments)[half]}
        yield event("content_block_delta", index=index + offset, delta=delta)
        if half == 1:
            yield event("content_block_stop", index=index + offset)
    finish = {"stop": "tool_use" if reply.calls else "end_turn", "length": "max_tokens", "content_filter": "refusal"}.get(reply.finish, reply.finish)
    counted = {"output_tokens": written, "output_tokens_details": {"thinking_tokens": reasoning}}
    yield event("message_delta", delta={"stop_reason": finish, "stop_sequence": None}, usage=counted)
    yield event("message_stop")


def _gemini(reply: Say) -> Iterator[Piece]:
    def chunk(*parts: dict[str, Any], **fields: Any) -> Piece:
        return None, {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **fields}], "modelVersion": "m1", "responseId": "g1"}

    if reply.thinking:
        yield chunk({"text": reply.thinking, "thought": True})
    for text in reply.texts:
        yield chunk({"text": text})
    if reply.error is not None:
        yield None, {"error": reply.error}
    for call in reply.calls:
        signed = {"thoughtSignature": call.signature} if call.signature else {}
        yield chunk({"functionCall": {"id": call.id, "name": call.name, "args": json.loads(call.arguments)}, **signed})
    finish = {"stop": "STOP", "length": "MAX_TOKENS"}.get(reply.finish, "SAFETY")
    prompt, cached, written, reasoning = reply.usage
    usage = {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": written - reasoning,
        "thoughtsTokenCount": reasoning,
        "totalTokenCount": prompt + written,
    }
    name, last = chunk(finishReason=finish)
    yield name, {**last, "usageMetadata": usage}
