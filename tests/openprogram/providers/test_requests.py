"""What a request holds, where the wire formats differ: media, marks for caching, thinking, schemas, settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openprogram.context.messages import Block, Message, text_message
from openprogram.errors import LLMError, Reason, UsageError
from openprogram.providers.base import Constraint, Finish, ModelRequest, ModelSettings, Profile, ToolSpec, Usage
from openprogram.providers.profiles import ROWS, priced, profile_of
from openprogram.providers.schemas import is_supported, is_within
from tests.openprogram.providers.test_histories import Past
from tests.openprogram.providers.wires import ask, every_wire, request_of
from tests.support.http_server import Server
from tests.support.speaking import say

CLOSED: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def body_of(kind: str, request: ModelRequest, **options: Any) -> Any:
    """The body that a server receives."""
    with Server(say("x")) as server:
        ask(kind, server.url, request, **options)
        return server.requests[0].json


def turn(*blocks: Block) -> tuple[Message, ...]:
    return (Message(role="user", blocks=blocks),)


MEDIA: list[tuple[str, Profile, Block, Any]] = [
    ("chat", Profile(audio=True), {"type": "audio", "data": b"\x01", "mime_type": "audio/x-wav"}, {"data": "AQ==", "format": "wav"}),
    ("chat", Profile(images=True), {"type": "image", "url": "https://e.org/a.png"}, {"url": "https://e.org/a.png"}),
    ("responses", Profile(images=True), {"type": "image", "data": "AQ=="}, "data:image/png;base64,AQ=="),
    (
        "anthropic",
        Profile(images=True),
        {"type": "image", "data": "AQ==", "mime_type": "image/gif"},
        {"type": "base64", "media_type": "image/gif", "data": "AQ=="},
    ),
    ("anthropic", Profile(images=True), {"type": "image", "url": "https://e.org/a"}, {"type": "url", "url": "https://e.org/a"}),
    (
        "gemini",
        Profile(audio=True),
        {"type": "audio", "data": "data:audio/ogg;base64,AQ==", "mime_type": "audio/ogg"},
        {"mimeType": "audio/ogg", "data": "AQ=="},
    ),
    ("gemini", Profile(video=True), {"type": "video", "data": "AQ=="}, {"mimeType": "video/mp4", "data": "AQ=="}),
    ("gemini", Profile(video=True), {"type": "video", "url": "https://e.org/a.webm"}, {"mimeType": "video/webm", "fileUri": "https://e.org/a.webm"}),
]


@pytest.mark.parametrize(("kind", "profile", "block", "expected"), MEDIA)
def test_media_take_each_wires_shape(kind: str, profile: Profile, block: Block, expected: Any) -> None:
    """Data, addresses and types arrive as each vendor wants them."""
    body = body_of(kind, request_of(kind, new=turn(block)), profile=profile)
    assert json.dumps(expected) in json.dumps(body)


@every_wire
@pytest.mark.parametrize("media", ["image", "audio", "video"])
def test_media_that_a_model_cannot_take_are_refused_before_anything_is_sent(kind: str, media: str) -> None:
    """The error names the kind; one attempt."""
    with Server(say("x")) as server, pytest.raises(LLMError, match=media) as caught:
        ask(kind, server.url, request_of(kind, new=turn({"type": media, "data": "AQ=="})), profile=Profile())
    assert (caught.value.reason, caught.value.retryable, server.requests) == (Reason.BAD_REQUEST, False, [])


@pytest.mark.parametrize(("kind", "block"), [("chat", "video"), ("responses", "audio"), ("responses", "video")])
def test_media_that_a_wire_does_not_carry_are_refused(kind: str, block: str) -> None:
    """Even where a profile claims them."""
    everything = Profile(images=True, audio=True, video=True)
    with pytest.raises(LLMError, match="takes"):
        body_of(kind, request_of(kind, new=turn({"type": block, "data": "AQ=="})), profile=everything)


@every_wire
def test_a_file_is_read_and_its_type_told_by_its_name(kind: str, tmp_path: Path) -> None:
    """``path`` is the documented way to show an image."""
    (tmp_path / "shot.webp").write_bytes(b"\x01\x02")
    body = json.dumps(body_of(kind, request_of(kind, new=turn({"type": "image", "path": str(tmp_path / "shot.webp")}))))
    assert "image/webp" in body and "AQI=" in body


def marks(body: Any) -> int:
    return json.dumps(body).count('"cache_control"')


TOOL = ToolSpec(name="look", description="Look.", parameters=CLOSED)


def test_what_will_be_continued_is_marked_for_caching() -> None:
    """A lone question is not, since writing a cache costs more; a conversation and a loop are, at the end of the system part and of the last message."""
    assert marks(body_of("anthropic", request_of("anthropic", system="s"))) == 0
    body = body_of("anthropic", request_of("anthropic", system="s", history=Past([text_message("user", "a"), text_message("assistant", "b")])))
    assert body["system"][-1]["cache_control"] == body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert marks(body) == 2
    body = body_of("anthropic", request_of("anthropic", tools=(TOOL,)))
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral"} and marks(body) == 2


@pytest.mark.parametrize(("own", "expected"), [(1, 3), (3, 4), (4, 4), (6, 4)])
def test_marks_of_the_author_are_kept_up_to_the_vendors_limit(own: int, expected: int) -> None:
    """Four are allowed: the author's last ones go before ours."""
    blocks: list[Block] = [{"type": "text", "text": str(n), "cache_control": {"type": "ephemeral", "ttl": "1h"}} for n in range(own)]
    body = body_of("anthropic", request_of("anthropic", system="s", tools=(TOOL,), new=turn(*blocks, {"type": "text", "text": "end"})))
    assert marks(body) == expected
    kept = [block["text"] for block in body["messages"][0]["content"] if block.get("cache_control", {}).get("ttl") == "1h"]
    assert kept == [str(n) for n in range(own)][-4:]


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_openai_gets_the_session_as_cache_key(kind: str) -> None:
    """And a server that does not know the field is asked without it."""
    assert body_of(kind, request_of(kind, session_id="op-1"))["prompt_cache_key"] == "op-1"


@pytest.mark.parametrize(
    ("kind", "model", "level", "part"),
    [
        ("chat", "gpt-5.4", "high", {"reasoning_effort": "high"}),
        ("chat", "gpt-5.4", "off", {"reasoning_effort": "none"}),
        ("chat", "gpt-5-mini", "off", {"reasoning_effort": "minimal"}),
        ("chat", "o3", "off", {}),
        ("chat", "gpt-4.1", "high", {}),
        ("responses", "o3", "low", {"reasoning": {"effort": "low", "summary": "auto"}}),
        ("anthropic", "claude-sonnet-4-6", "high", {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}}),
        ("anthropic", "claude-haiku-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("anthropic", "claude-haiku-4-5", "off", {}),
        ("anthropic", "claude-3-5-haiku-latest", "high", {}),
        ("gemini", "gemini-2.5-flash", "medium", {"thinkingConfig": {"thinkingBudget": 8192, "includeThoughts": True}}),
        ("gemini", "gemini-2.5-flash", "off", {"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": False}}),
        ("gemini", "gemini-3-pro", "off", {"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": False}}),
        ("gemini", "gemini-2.0-flash", "high", {}),
    ],
)
def test_thinking_is_asked_for_as_each_model_wants(kind: str, model: str, level: str, part: dict[str, Any]) -> None:
    """One word for all; a model that cannot be asked is not."""
    body = body_of(kind, msgspec.structs.replace(request_of(kind), model=model, settings=ModelSettings(thinking=level)))
    body = body if kind != "gemini" else body.get("generationConfig", {})
    keys = ("reasoning_effort", "reasoning", "thinking", "output_config", "thinkingConfig")
    assert {key: value for key, value in body.items() if key in keys} == part


@every_wire
def test_an_unknown_level_of_thinking_is_refused(kind: str) -> None:
    """The error names the levels."""
    with pytest.raises(UsageError, match="off, low, medium, high, xhigh"):
        body_of(kind, request_of(kind, settings=ModelSettings(thinking="very")))


@every_wire
def test_extra_fields_go_into_the_body(kind: str) -> None:
    """What has no name here can still be said, and goes before what has."""
    assert body_of(kind, request_of(kind, settings=ModelSettings(extra={"service_tier": "flex"})))["service_tier"] == "flex"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("responses", {"stop": ("x",)}),
        ("responses", {"seed": 1}),
        ("anthropic", {"seed": 1}),
        ("chat", {"web_search": True}),
    ],
)
def test_a_setting_that_a_wire_lacks_is_refused(kind: str, settings: dict[str, Any]) -> None:
    """Left out silently, it would change what a program does."""
    with pytest.raises(LLMError) as caught:
        body_of(kind, request_of(kind, settings=ModelSettings(**settings)))
    assert caught.value.reason is Reason.BAD_REQUEST


def test_models_that_take_no_temperature_say_so() -> None:
    """Newer Claude models; older ones get it."""
    warm = ModelSettings(temperature=0.5)
    assert body_of("anthropic", request_of("anthropic", settings=warm))["temperature"] == 0.5
    with pytest.raises(LLMError, match="neither temperature"):
        body_of("anthropic", msgspec.structs.replace(request_of("anthropic", settings=warm), model="claude-opus-5"))


@pytest.mark.parametrize(
    ("dialect", "schema", "fits"),
    [
        ("openai", CLOSED, True),
        ("openai", {"anyOf": [CLOSED]}, False),
        ("openai", {**CLOSED, "properties": {"a": {"type": "string", "minLength": 1}}}, True),
        ("openai", {**CLOSED, "properties": {"a": {"oneOf": [{"type": "string"}]}}}, False),
        ("anthropic", CLOSED, True),
        ("anthropic", {**CLOSED, "required": []}, True),
        ("anthropic", {**CLOSED, "properties": {"a": {"type": "string", "maxLength": 3}}}, False),
        ("anthropic", {**CLOSED, "additionalProperties": True}, False),
        ("gemini", {"type": "array", "items": {"type": "integer", "minimum": 1}}, True),
        ("gemini", {"type": "object", "patternProperties": {"a": {}}}, False),
        ("gemini", {"$ref": "https://e.org/schema"}, False),
    ],
)
def test_a_dialect_says_which_schemas_a_provider_takes(dialect: str, schema: dict[str, Any], fits: bool) -> None:
    """Whoever asks for a schema can know before whether it will be held."""
    assert is_within(dialect, schema) is fits
    assert is_supported(Profile(schema=True, schema_dialect=dialect), schema) is fits
    assert not is_supported(Profile(schema=False, schema_dialect=dialect), schema)
    assert is_supported(Profile(schema=True), schema)


@every_wire
def test_a_schema_that_a_provider_refuses_is_not_sent(kind: str) -> None:
    """The prompt alone asks for it then, and the answer is checked here anyway: a 400 would help nobody."""
    schema: dict[str, Any] = {"anyOf": [{"type": "object", "patternProperties": {"a": {}}}], "not": {}}
    body = json.dumps(body_of(kind, request_of(kind, constraint=Constraint(schema=schema))))
    assert "patternProperties" not in body


@pytest.mark.parametrize("provider", ROWS)
def test_every_provider_has_a_row_for_models_that_nobody_knows(provider: str) -> None:
    """The last row fits any name, so that a new model works on the day it appears, without a price."""
    pattern, profile = ROWS[provider][-1]
    assert pattern == "*"
    assert profile_of(provider, "some-model-of-next-year") == profile
    assert provider == "deepseek" or profile.price is None


def test_every_pattern_of_the_profiles_can_be_reached() -> None:
    """A row behind a wider one would never count."""
    for provider, rows in ROWS.items():
        for pattern, profile in rows:
            name = pattern.replace("[678]", "7").replace("[78]", "8").replace("*", "")
            assert profile_of(provider, name) == profile, pattern


def test_a_cost_that_the_server_tells_counts() -> None:
    """A gateway knows better what it charges; without a price there is no cost."""
    told = Finish(usage=Usage(input_tokens=10, cost=0.5))
    assert priced(told, profile_of("openai", "gpt-5.4")) is told
    assert priced(Finish(usage=Usage(input_tokens=10)), profile_of("groq", "llama")).usage == Usage(input_tokens=10)
