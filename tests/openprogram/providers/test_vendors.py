"""Our requests and the test server's replies against the vendors' own types and clients, so that both are known to speak the vendors' formats.

The requests are kept as golden files beside this one. ``OPENPROGRAM_GOLDEN=write`` writes them anew; look at the difference before you keep it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anthropic
import anthropic.types
import openai
import openai.types.responses
import pydantic
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from google import genai
from google.genai import types as google_types
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from openprogram.context.messages import Block, Message, text_message
from openprogram.providers.base import Constraint, ModelRequest, ModelSettings, Opaque, ToolSpec
from tests.openprogram.providers.wires import KEY, WIRES, ask, every_wire, request_of
from tests.support.http_server import Server
from tests.support.speaking import Call, Say, pieces, say

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("OPENPROGRAM_GOLDEN") == "write"  # read before the tests' own surroundings hide it
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CLOSED: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
OPAQUE: dict[str, Any] = {
    "chat": {"reasoning_content": "hm"},
    "responses": {"type": "reasoning", "id": "rs1", "summary": [], "encrypted_content": "c2ln"},
    "anthropic": {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    "gemini": {"thoughtSignature": "c2ln"},
}


class Past:
    node = None

    def __init__(self, *messages: Message) -> None:
        self._messages = messages

    def messages(self) -> tuple[Message, ...]:
        return self._messages


def tool_turns(kind: str) -> Past:
    """A history with a thought, two calls and their results."""
    _, provider, model = WIRES[kind]
    thought = [] if kind == "chat" else [Opaque(provider, model, OPAQUE[kind]).block()]
    calls: list[Block] = [{"type": "tool_call", "id": f"t{n}", "name": "look", "args": {"a": f"é{n}"}} for n in (1, 2)]
    results: list[Block] = [{"type": "tool_result", "id": f"t{n}", "name": "look", "text": "found", "is_error": n == 2} for n in (1, 2)]
    return Past(
        text_message("user", "earlier"),
        Message(role="assistant", blocks=(*thought, {"type": "text", "text": "Let me look."}, *calls)),
        Message(role="tool", blocks=tuple(results)),
        text_message("assistant", "done"),
    )


def requests_of(kind: str) -> dict[str, ModelRequest]:
    """Requests that use everything a wire has."""
    tool = ToolSpec(name="look", description="Look it up.", parameters=CLOSED, strict=kind != "gemini")
    image: Block = {"type": "image", "data": PIXEL, "mime_type": "image/png"}
    new = (Message(role="user", blocks=({"type": "text", "text": "what is this?", "cache_control": {"type": "ephemeral"}}, image)),)
    stop = () if kind == "responses" else ("END",)
    sampling: dict[str, Any] = {} if kind == "anthropic" else {"temperature": 0.5, "top_p": 0.9}  # newer models there take none, and the types do not know them
    settings = ModelSettings(**sampling, max_output_tokens=2000, stop=stop, seed=7 if kind in ("chat", "gemini") else None)
    return {
        "plain": request_of(kind),
        "everything": request_of(kind, new=new, system="be brief", tools=(tool,), history=tool_turns(kind), settings=settings, session_id="op-1"),
        "forced": request_of(kind, tools=(tool,), tool_choice={"type": "function", "name": "look"}, parallel_tool_calls=False),
        "required": request_of(kind, tools=(tool,), tool_choice="required"),
        "none": request_of(kind, tools=(tool,), tool_choice="none"),
        "schema": request_of(kind, constraint=Constraint(schema=CLOSED, name="answer")),
        "thinking": request_of(kind, settings=ModelSettings(thinking="high")),
        "not thinking": request_of(kind, settings=ModelSettings(thinking="off")),
        **({} if kind == "chat" else {"web search": request_of(kind, settings=ModelSettings(web_search=True))}),
    }


def sent(kind: str) -> dict[str, Any]:
    """The bodies of these requests as a server received them."""
    with Server(say("fine")) as server:
        for request in requests_of(kind).values():
            ask(kind, server.url, request)
        return dict(zip(requests_of(kind), (request.json for request in server.requests), strict=True))


@every_wire
def test_requests_are_those_of_the_golden_files(kind: str) -> None:
    """What goes out is looked at by a person when it changes."""
    found = json.dumps(sent(kind), indent=1, ensure_ascii=False) + "\n"
    file = GOLDEN / f"{kind}.json"
    if WRITE:
        file.write_text(found, "utf-8")
    assert found == file.read_text("utf-8")


def exhausted(value: Any) -> None:
    """Look at everything in a validated value: pydantic checks an Iterable only when it is read."""
    if isinstance(value, dict):
        for inner in cast("dict[str, Any]", value).values():
            exhausted(inner)
    elif isinstance(value, list) or type(value).__name__ == "ValidatorIterator":
        for inner in cast("list[Any]", value):
            exhausted(inner)


def closed(kind: str) -> pydantic.TypeAdapter[Any]:
    """A check that refuses unknown fields at every depth; a list around it, since a TypedDict itself takes no configuration from outside."""
    several: Any = list.__class_getitem__(PARAMS[kind])
    return pydantic.TypeAdapter(several, config=pydantic.ConfigDict(extra="forbid"))


PARAMS: dict[str, Any] = {"chat": CompletionCreateParamsStreaming, "responses": ResponseCreateParamsStreaming, "anthropic": MessageCreateParamsStreaming}


@pytest.mark.parametrize("kind", PARAMS)
def test_request_bodies_fit_the_vendors_types(kind: str) -> None:
    """Every field exists there, and every value is of its type."""
    adapter = closed(kind)
    for name, body in sent(kind).items():
        try:
            exhausted(adapter.validate_python([body]))
        except pydantic.ValidationError as error:
            pytest.fail(f"{name}: {error}")


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in PARAMS for field in ("no_such_field", "tools")])
def test_the_vendors_types_would_notice(kind: str, field: str) -> None:
    """The check above refuses an unknown field and a tool without a name."""
    adapter = closed(kind)
    with pytest.raises(pydantic.ValidationError):
        exhausted(adapter.validate_python([{**sent(kind)["everything"], field: [{"type": "function"}]}]))


def test_gemini_request_bodies_fit_the_vendors_types() -> None:
    """Google's client has no type for the body as a whole, only for its parts."""
    parts: dict[str, Any] = {
        "contents": list[google_types.Content],
        "systemInstruction": google_types.Content,
        "tools": list[google_types.Tool],
        "toolConfig": google_types.ToolConfig,
        "generationConfig": google_types.GenerationConfig,
    }
    for name, body in sent("gemini").items():
        assert body.keys() <= parts.keys(), name
        for field, value in body.items():
            pydantic.TypeAdapter[Any](parts[field]).validate_python(value)


REPLY = Say(texts=["Hel", "lo"], calls=[Call("t1", "look", '{"a": "x"}', signature="c2ln")], thinking="hm", signature="c2ln")
EVENTS: dict[str, Any] = {
    "chat": ChatCompletionChunk,
    "responses": openai.types.responses.ResponseStreamEvent,
    "anthropic": anthropic.types.RawMessageStreamEvent,
    "gemini": google_types.GenerateContentResponse,
}


@every_wire
@pytest.mark.parametrize(
    "reply", [REPLY, Say(texts=["no"], finish="refusal"), Say(texts=["a"], finish="length"), Say(calls=[*REPLY.calls] * 2, interleaved=True)]
)
def test_the_test_server_sends_the_vendors_events(kind: str, reply: Say) -> None:
    """Each event that the misbehaving server sends when it behaves is one of the vendor's."""
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(EVENTS[kind])
    for _, data in pieces(kind, reply):
        if data not in ("[DONE]", {"type": "ping"}):
            adapter.validate_python(data)


def by_chat(url: str) -> Iterator[str]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "hi"}]
        for chunk in client.chat.completions.create(model="m", messages=messages, stream=True):
            for choice in chunk.choices:
                yield choice.delta.content or ""
                yield from (part.function.name or "" for part in choice.delta.tool_calls or () if part.function)


def by_responses(url: str) -> Iterator[str]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        content: Any = [{"type": "message", "role": "user", "content": "hi"}]
        for event in client.responses.create(model="m", input=content, stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                yield event.item.name


def by_anthropic(url: str) -> Iterator[str]:
    content: Any = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    with (
        anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=10, messages=content) as stream,
    ):
        yield from stream.text_stream
        yield from (block.name for block in stream.get_final_message().content if block.type == "tool_use")


def by_gemini(url: str) -> Iterator[str]:
    client: Any = genai.Client(api_key=KEY, http_options=google_types.HttpOptions(base_url=url))
    try:
        for chunk in client.models.generate_content_stream(model="m", contents="hi"):
            for candidate in chunk.candidates or ():
                for part in (candidate.content.parts if candidate.content else None) or ():
                    yield (part.text or "" if not part.thought else "") + (part.function_call.name or "" if part.function_call else "")
    finally:
        client.close()


CLIENTS = {"chat": by_chat, "responses": by_responses, "anthropic": by_anthropic, "gemini": by_gemini}


@every_wire
def test_the_vendors_client_reads_the_test_server(kind: str) -> None:
    """Text and tool call come out of the vendor's own client as out of ours."""
    with Server(say(*REPLY.texts, calls=REPLY.calls, thinking="hm", signature="c2ln")) as server:
        assert "".join(CLIENTS[kind](server.url)) == "Hellolook"


@every_wire
def test_the_vendors_client_sees_errors_of_the_test_server(kind: str) -> None:
    """A history that the server refuses is a 400 in the vendor's client, too."""
    bad: Any = {
        "chat": [{"role": "tool", "tool_call_id": "t", "content": "x"}],
        "responses": [{"type": "function_call_output", "call_id": "t", "output": "x"}],
        "anthropic": [{"role": "assistant", "content": [{"type": "text", "text": "x"}]}],
        "gemini": [{"role": "model", "parts": [{"text": "x"}]}],
    }[kind]

    def ask_theirs(url: str) -> object:
        if kind == "anthropic":
            return anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0).messages.create(model="m", max_tokens=9, messages=bad, stream=True)
        if kind == "gemini":
            client: Any = genai.Client(api_key=KEY, http_options=google_types.HttpOptions(base_url=url))
            return list(client.models.generate_content_stream(model="m", contents=bad))
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
        create: Any = client.chat.completions.create if kind == "chat" else client.responses.create
        return create(model="m", stream=True, **{"messages" if kind == "chat" else "input": bad})

    with Server(say("x")) as server, pytest.raises((openai.BadRequestError, anthropic.BadRequestError, genai.errors.ClientError)):
        ask_theirs(server.url)
