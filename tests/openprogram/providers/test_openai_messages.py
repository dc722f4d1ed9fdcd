"""What a request looks like on the Chat Completions wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openprogram.context.messages import Block, Message, text_message
from openprogram.errors import LLMError, Reason
from openprogram.providers.base import Constraint, ModelRequest, ModelSettings, Profile, ToolSpec
from openprogram.providers.openai_messages import chat_body
from openprogram.providers.schemas import is_within

EVERYTHING = Profile(tools=True, schema=True, grammar=True, images=True)
NOTHING = Profile(tools=False)
CLOSED: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def messages(*new: Message, profile: Profile = EVERYTHING, system: str | None = None) -> list[dict[str, Any]]:
    return chat_body(ModelRequest(model="m", new=new, system=system), profile)["messages"]


def message(role: Any, *blocks: Block) -> Message:
    return Message(role=role, blocks=blocks)


CALL = {"type": "tool_call", "id": "t1", "name": "f", "args": {"q": "é"}}
RESULT = {"type": "tool_result", "id": "t1", "name": "f", "text": "found"}


class Past:
    """A history of one exchange."""

    node = None

    def messages(self) -> list[Message]:
        return [text_message("user", "earlier"), text_message("assistant", "answer")]


def test_system_history_and_turn_come_in_that_order() -> None:
    """The system part opens the request, then the rendered history, then what is new."""
    request = ModelRequest(model="m", system="be brief", history=Past(), new=(text_message("user", "now"),))
    wire = chat_body(request, EVERYTHING)["messages"]
    assert [(one["role"], one["content"]) for one in wire] == [("system", "be brief"), ("user", "earlier"), ("assistant", "answer"), ("user", "now")]


def test_tool_calls_and_results_become_their_own_messages() -> None:
    """Calls ride on the assistant's message, each result is a message of role tool in the order of the calls, and other blocks follow the results."""
    second = {**RESULT, "id": "t2", "text": "more"}
    calls = (CALL, {**CALL, "id": "t2"})
    wire = messages(message("assistant", {"type": "text", "text": "let me look"}, *calls), message("tool", second, RESULT, {"type": "text", "text": "go on"}))
    assert wire == [
        {
            "role": "assistant",
            "content": "let me look",
            "tool_calls": [{"id": name, "type": "function", "function": {"name": "f", "arguments": '{"q": "é"}'}} for name in ("t1", "t2")],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "found"},
        {"role": "tool", "tool_call_id": "t2", "content": "more"},
        {"role": "user", "content": "go on"},
    ]


def test_a_model_without_tools_reads_them_as_words() -> None:
    """Where the profile has no tools, a recorded call and its result are told in text, in roles that every template knows."""
    wire = messages(message("assistant", CALL), message("tool", {**RESULT, "is_error": True}), profile=NOTHING)
    assert wire == [{"role": "assistant", "content": '[called f({"q": "é"})]'}, {"role": "user", "content": "[f failed: found]"}]


@pytest.mark.parametrize(
    ("block", "url"),
    [
        ({"type": "image", "data": b"\x01\x02", "mime_type": "image/gif"}, "data:image/gif;base64,AQI="),
        ({"type": "image", "data": "AQI="}, "data:image/png;base64,AQI="),
        ({"type": "image", "url": "https://example.org/a.png"}, "https://example.org/a.png"),
    ],
)
def test_images_are_sent_inline(block: Block, url: str) -> None:
    """An image's data becomes a data URI; an address is sent as it is."""
    assert messages(message("user", {"type": "text", "text": "see"}, block)) == [
        {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]}
    ]


def test_an_image_file_is_read(tmp_path: Path) -> None:
    """A path is read, its type told by its name."""
    (tmp_path / "a.jpg").write_bytes(b"\x01\x02")
    wire = messages(message("user", {"type": "image", "path": str(tmp_path / "a.jpg")}))
    assert wire[0]["content"][0]["image_url"]["url"] == "data:image/jpeg;base64,AQI="


@pytest.mark.parametrize(("kind", "profile"), [("image", NOTHING), ("audio", EVERYTHING), ("video", EVERYTHING)])
def test_media_the_model_cannot_take_is_refused(kind: str, profile: Profile) -> None:
    """The error names the kind and is not worth a retry."""
    with pytest.raises(LLMError, match=f"takes no {kind} input") as caught:
        messages(message("user", {"type": kind, "data": "AQI="}), profile=profile)
    assert (caught.value.reason, caught.value.retryable) == (Reason.BAD_REQUEST, False)


def test_tools_and_their_options() -> None:
    """Tools, a forced choice and the switch for parallel calls take this wire's shape."""
    request = ModelRequest(
        model="m",
        new=(text_message("user", "x"),),
        tools=(ToolSpec(name="f", description="d", parameters=CLOSED),),
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
    )
    body = chat_body(request, EVERYTHING)
    assert body["tools"] == [{"type": "function", "function": {"name": "f", "description": "d", "parameters": CLOSED}}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert body["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    "request_",
    [
        ModelRequest(model="m", new=(), tools=(ToolSpec(name="f", description="d", parameters={}),)),
        ModelRequest(model="m", new=(), constraint=Constraint(grammar='root ::= "a"')),
    ],
)
def test_what_the_profile_lacks_is_a_programming_mistake(request_: ModelRequest) -> None:
    """Tools or a grammar sent to a model whose profile has none raise before anything is sent."""
    with pytest.raises(NotImplementedError, match="profile"):
        chat_body(request_, NOTHING)


def test_settings_are_sent_only_when_set() -> None:
    """Unset settings leave the server's defaults; the field of the token limit can be named."""
    plain = chat_body(ModelRequest(model="m", new=()), EVERYTHING)
    assert not {"temperature", "max_tokens", "seed", "stop", "tools", "response_format", "grammar"} & set(plain)
    settings = ModelSettings(temperature=0.0, max_output_tokens=5, seed=0, stop=("END",))
    body = chat_body(ModelRequest(model="m", new=(), settings=settings), EVERYTHING, max_tokens_field="max_completion_tokens")
    assert {key: body[key] for key in ("temperature", "max_completion_tokens", "seed", "stop")} == {
        "temperature": 0.0,
        "max_completion_tokens": 5,
        "seed": 0,
        "stop": ["END"],
    }


def test_constraints() -> None:
    """A schema becomes response_format, a grammar the llama.cpp field."""
    by_schema = chat_body(ModelRequest(model="m", new=(), constraint=Constraint(schema=CLOSED, name="pick")), EVERYTHING)
    assert by_schema["response_format"] == {"type": "json_schema", "json_schema": {"name": "pick", "schema": CLOSED, "strict": True}}
    by_grammar = chat_body(ModelRequest(model="m", new=(), constraint=Constraint(grammar='root ::= "a"')), EVERYTHING)
    assert by_grammar["grammar"] == 'root ::= "a"' and "response_format" not in by_grammar


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "properties": {"a": {"type": "object"}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {}}}}}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "properties": {"a": {"enum": [{"properties": 1}]}}}, True),
        ({**CLOSED, "$defs": {"x": {"type": "object"}}}, False),
        ({}, False),
    ],
)
def test_strict_is_claimed_only_where_it_holds(schema: dict[str, Any], strict: bool) -> None:
    """Only schemas whose objects are closed and whose properties are all required are sent as strict."""
    assert is_within("openai", schema) is strict
