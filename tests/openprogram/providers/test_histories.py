"""Histories that providers would refuse, sent on every wire to a server that refuses what its vendor refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openprogram.context.messages import Block, Message, text_message
from openprogram.providers.base import Opaque, ToolCall
from openprogram.providers.conversation import INTERRUPTED, NO_OUTPUT, turns_of
from tests.openprogram.providers.wires import WIRES, ask, every_wire, request_of, text_of
from tests.support.http_server import Server
from tests.support.speaking import Call, say


class Past:
    """A history of these messages."""

    node = None

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def messages(self) -> Sequence[Message]:
        return self._messages


def call(id: str, name: str = "f", args: Any = None) -> Block:
    return {"type": "tool_call", "id": id, "name": name, "args": {"q": 1} if args is None else args}


def result(id: str, text: str = "found", **fields: Any) -> Block:
    return {"type": "tool_result", "id": id, "name": "f", "text": text, **fields}


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def message(role: Any, *blocks: Block) -> Message:
    return Message(role=role, blocks=blocks)


ASKED = text_message("user", "ask")
HISTORIES: dict[str, list[Message]] = {
    "c01 killed inside a tool": [ASKED, message("assistant", call("t1"))],
    "c01 killed inside the second of two tools": [ASKED, message("assistant", call("t1"), call("t2")), message("tool", result("t1"))],
    "c02 results apart, in the wrong order": [
        ASKED,
        message("assistant", call("t1"), call("t2")),
        message("tool", result("t2")),
        message("tool", result("t1")),
    ],
    "c02 text before the results": [ASKED, message("assistant", call("t1")), message("user", text("well"), result("t1"))],
    "c12 empty and blank results": [
        ASKED,
        message("assistant", call("t1"), call("t2")),
        message("tool", result("t1", ""), result("t2", " \n")),
        text_message("assistant", "hm"),
    ],
    "c18 a result without its call": [message("tool", result("t1")), text_message("assistant", "so")],
    "c18 begins with a reply": [text_message("assistant", "so")],
    "c24 arguments that are no object": [
        ASKED,
        message("assistant", *(call(f"t{n}", args=args) for n, args in enumerate(['{"q": "x"', '"x"', "", "null", "[1]", '{"q": NaN}', "{" * 9000]))),
        message("tool", *(result(f"t{n}", "bad arguments", is_error=True) for n in range(7))),
    ],
    "c25 empty replies": [ASKED, text_message("assistant", ""), text_message("user", "?"), text_message("assistant", " \n "), text_message("user", "??")],
    "c25 nothing but blanks": [text_message("user", " "), message("assistant")],
    "c28 an id in every reply": [
        *(part for _ in range(3) for part in (ASKED, message("assistant", call("call_0")), message("tool", result("call_0")), text_message("assistant", "ok")))
    ],
    "c28 an id twice in one reply": [ASKED, message("assistant", call("t"), call("t")), message("tool", result("t", "a"), result("t", "b"))],
    "users in a row": [ASKED, ASKED, text_message("assistant", "a"), text_message("assistant", "b")],
    "a result twice": [ASKED, message("assistant", call("t1")), message("tool", result("t1"), result("t1", "again"))],
    "nothing": [],
}


@every_wire
@pytest.mark.parametrize("history", HISTORIES)
def test_every_history_is_accepted(kind: str, history: str) -> None:
    """Whatever a session went through, its next request is valid (c01, c02, c12, c18, c24, c25)."""
    with Server(say("fine")) as server:
        assert text_of(ask(kind, server.url, request_of(kind, "go on", history=Past(HISTORIES[history])))) == "fine"
        assert "go on" in server.requests[0].body.decode()


@every_wire
def test_an_empty_turn_is_sent(kind: str) -> None:
    """A turn of blanks only, with no history, is still a request that the vendor takes."""
    with Server(say("fine")) as server:
        assert text_of(ask(kind, server.url, request_of(kind, " "))) == "fine"


def turns(history: str) -> list[tuple[str, list[Block]]]:
    request = request_of("chat", "go on", history=Past(HISTORIES[history]))
    return [(turn.role, turn.blocks) for turn in turns_of(request, "openai_chat")]


def test_a_lacking_result_is_told_as_unknown() -> None:
    """The model reads that the outcome is not known, beside the result that there is (c01)."""
    role, blocks = turns("c01 killed inside the second of two tools")[2]
    assert role == "user"
    assert [(block.get("id"), block["text"]) for block in blocks] == [("t1", "found"), ("t2", INTERRUPTED), (None, "go on")]


def test_results_of_repeated_ids_stay_with_their_calls() -> None:
    """The first result belongs to the first call, under ids that differ."""
    _, (_, calls), (_, results) = turns("c28 an id twice in one reply")
    assert [block["id"] for block in calls] == ["t", "t_2"]
    assert [(block.get("id"), block["text"]) for block in results] == [("t", "a"), ("t_2", "b"), (None, "go on")]


def test_arguments_that_are_no_object_are_wrapped(tmp_path: Path) -> None:
    """Their text is kept, so that the model sees what it wrote (c24)."""
    with Server(say("fine")) as server:
        ask("chat", server.url, request_of("chat", history=Past(HISTORIES["c24 arguments that are no object"])))
        calls = server.requests[0].json["messages"][1]["tool_calls"]
    found = [json.loads(one["function"]["arguments"]) for one in calls]
    assert found[:5] == [{"invalid_arguments": '{"q": "x"'}, {"invalid_arguments": "x"}, {}, {}, {"invalid_arguments": [1]}]


def test_an_empty_result_is_sent_in_words() -> None:
    """Blanks become words, other texts stay (c12)."""
    with Server(say("fine")) as server:
        ask("chat", server.url, request_of("chat", history=Past(HISTORIES["c12 empty and blank results"])))
        messages = server.requests[0].json["messages"]
    assert [one["content"] for one in messages if one["role"] == "tool"] == [NO_OUTPUT, NO_OUTPUT]


@every_wire
def test_a_file_that_is_gone_from_the_history_is_told_in_words(kind: str, tmp_path: Path) -> None:
    """An old turn's image may have been deleted since: the session goes on. This turn's must be there."""
    picture: Block = {"type": "image", "path": str(tmp_path / "gone.png")}
    with Server(say("fine")) as server:
        past = Past([message("user", picture), text_message("assistant", "I see")])
        assert text_of(ask(kind, server.url, request_of(kind, history=past))) == "fine"
        assert "gone.png: the file is no longer there" in server.requests[0].body.decode()
        with pytest.raises(FileNotFoundError, match=r"gone\.png"):
            ask(kind, server.url, request_of(kind, new=(message("user", picture),)))
        assert len(server.requests) == 1


def carried(kind: str, model: str | None = None) -> tuple[list[Any], Any]:
    """A reply with a signed thought and a call, and the request that answers it: the opaque blocks, and the second request's body."""
    first = say("Let me see.", calls=[Call("t1", "f", '{"q": 1}', signature="c2ln")], thinking="hm", signature="c2lnbmVk")
    with Server(first, say("fine")) as server:
        events = ask(kind, server.url)
        blocks: list[Block] = []
        for event in events:
            if isinstance(event, Opaque):
                blocks.append(event.block())
            elif isinstance(event, ToolCall):
                blocks.append({"type": "tool_call", "id": event.id, "name": event.name, "args": event.arguments})
        new = (text_message("user", "hi"), message("assistant", *blocks), message("tool", result("t1")))
        request = request_of(kind, new=new)
        assert text_of(ask(kind, server.url, request if model is None else msgspec.structs.replace(request, model=model))) == "fine"
        return [event.data for event in events if isinstance(event, Opaque)], server.requests[1].json


def test_anthropic_thoughts_go_back_unchanged() -> None:
    """The signed block stands first in the assistant's message, byte for byte, through JSON and back (c19)."""
    data, body = carried("anthropic")
    assert data == [{"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}]
    assert body["messages"][1]["content"] == [*data, {"type": "tool_use", "id": "t1", "name": "f", "input": {"q": 1}}]


def test_gemini_signatures_go_back_on_their_call() -> None:
    """The signature stands on the function call's own part (c19)."""
    _, body = carried("gemini")
    assert body["contents"][1]["parts"] == [{"functionCall": {"id": "t1", "name": "f", "args": {"q": 1}}, "thoughtSignature": "c2ln"}]


def test_responses_reasoning_goes_back_before_its_call() -> None:
    """The item comes back encrypted as it was, right before the call (c19)."""
    data, body = carried("responses")
    summary = [{"type": "summary_text", "text": "hm"}]
    assert data == [{"type": "reasoning", "id": "rs1", "summary": summary, "encrypted_content": "c2lnbmVk"}]
    assert [item["type"] for item in body["input"]] == ["message", "reasoning", "function_call", "function_call_output"]
    assert body["input"][1] == data[0]


@pytest.mark.parametrize(("kind", "model"), [("anthropic", "claude-haiku-4-5"), ("responses", "gpt-5.2"), ("gemini", "gemini-3-pro")])
def test_another_model_does_not_see_them(kind: str, model: str) -> None:
    """Signed thoughts are left out when another model goes on with the session (c19)."""
    _, body = carried(kind, model)
    assert "c2lnbmVk" not in json.dumps(body) and '"c2ln"' not in json.dumps(body)


def test_another_provider_does_not_see_them() -> None:
    """A session that goes on elsewhere is valid there, without them."""
    foreign = Opaque("anthropic", "claude-sonnet-4-6", {"type": "thinking", "thinking": "hm", "signature": "S"}).block()
    history = Past([ASKED, message("assistant", foreign, call("t1")), message("tool", result("t1"))])
    for kind in set(WIRES) - {"anthropic"}:
        with Server(say("fine")) as server:
            assert text_of(ask(kind, server.url, request_of(kind, history=history))) == "fine"
            assert '"hm"' not in server.requests[0].body.decode()


@every_wire
def test_a_longer_conversation_begins_with_the_shorter_ones_request(kind: str) -> None:
    """Providers cache the longest prefix that they have seen: what was sent before is sent again in the same bytes."""
    history = [*HISTORIES["c28 an id in every reply"], *HISTORIES["c01 killed inside the second of two tools"]]
    list_name = {"chat": "messages", "responses": "input", "anthropic": "messages", "gemini": "contents"}[kind]
    with Server(say("fine")) as server:
        ask(kind, server.url, request_of(kind, "first", history=Past(history)))
        ask(kind, server.url, request_of(kind, "second", history=Past([*history, text_message("user", "first"), text_message("assistant", "fine")])))
        before, after = (json.dumps(without_marks(one.json[list_name])) for one in server.requests)
    assert after.startswith(before[:-1])


def without_marks(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A mark for caching moves with the end of a prompt and is no part of what is cached."""
    kept = json.dumps(items).replace(', "cache_control": {"type": "ephemeral"}', "")
    return json.loads(kept)


@pytest.mark.parametrize("kind", ["anthropic", "responses", "gemini"])
def test_thoughts_between_calls_go_back_into_their_places(kind: str) -> None:
    """However the loop groups a reply, each thought stands before the call that it led to."""
    _, provider, model = WIRES[kind]
    shapes: dict[str, list[Any]] = {
        "anthropic": [{"type": "thinking", "thinking": str(n), "signature": f"s{n}"} for n in (1, 2)],
        "responses": [{"type": "reasoning", "id": f"s{n}", "summary": []} for n in (1, 2)],
        "gemini": [{"thoughtSignature": f"s{n}"} for n in (1, 2)],
    }
    thoughts = [Opaque(provider, model, one, calls).block() for calls, one in enumerate(shapes[kind])]
    new = (ASKED, message("assistant", text("so"), *thoughts, call("t1"), call("t2")), message("tool", result("t1"), result("t2")))
    with Server(say("fine")) as server:
        ask(kind, server.url, request_of(kind, new=new))
        body = server.requests[0].body.decode()
    marks = ['"so"', '"s1"', '"t1"', '"s2"', '"t2"'] if kind != "gemini" else ['"so"', '"t1"', '"s1"', '"t2"', '"s2"']
    places = [body.index(mark) for mark in marks]
    assert places == sorted(places)
