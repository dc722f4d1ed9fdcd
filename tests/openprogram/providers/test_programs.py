"""One program on every wire format: the same answers, the same events and the same DAG; and a key that is nowhere but in its header."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openprogram_protocol.paths import home

from openprogram import Runtime, agentic_function, session
from openprogram.errors import LLMError, Reason
from openprogram.providers.recorded import RecordedProvider
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.providers.test_vendors import PIXEL
from tests.openprogram.providers.wires import KEY, WIRES, every_wire, provider_of
from tests.support.http_server import Answer, Request, Server, whole
from tests.support.speaking import Call, encoded, say


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""
    monkeypatch.setenv("OPENPROGRAM_RETRY_BACKOFF_BASE", "0")


def runtime_of(kind: str, url: str, **options: Any) -> Runtime:
    return Runtime(provider=provider_of(kind, url), model=WIRES[kind][2], **options)


def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is sunny"


def busy(request: Request) -> Answer:
    return whole({"error": {"message": "busy"}}, 503)


def script() -> list[Callable[[Request], Answer]]:
    """What the model says to `program`, with a failure of every kind in between."""
    return [
        say("Hello ", "there."),
        say("Let me look.", calls=[Call("c1", "look", '{"place": "Rome"}'), Call("c2", "look", '{"place": "Oslo"}')], thinking="two places", signature="c2ln"),
        busy,
        say("Both are ", "fine."),
        say("Broken", "off", error={"message": "busy", "code": 503}),
        say('{"call": "picture"}'),
    ]


def program(runtime: Runtime) -> list[Any]:
    """A text, a tool loop, and a choice about a picture."""

    @agentic_function
    def look_around(runtime: Runtime) -> list[Any]:
        """Look around."""
        greeting = runtime.exec("greet")
        answer = runtime.exec("what is the weather in Rome and Oslo?", tools=[look])
        picture = {"type": "image", "data": PIXEL, "mime_type": "image/png"}
        return [greeting, answer, runtime.exec([picture, {"type": "text", "text": "what is this?"}], choices=["picture", "text"])]

    return look_around(runtime=runtime)


def shape(node: Any) -> Any:
    """A node without what must differ: ids, times, the model's name."""
    kept = {key: value for key, value in node.metadata.items() if key in ("finish_reason", "usage", "pick")}
    kept.get("usage", {}).pop("cost", None)
    messages: list[Any] = msgspec.to_builtins(node.exchanges)
    exchanges = [[one["role"], *(block.get("text") or block.get("name") for block in one["blocks"] if block["type"] != "opaque")] for one in messages]
    return [node.role, "?" if node.role == "llm" else node.name, node.status, msgspec.to_builtins(node.output), exchanges, kept]


def run(kind: str) -> tuple[list[Any], list[Any], list[dict[str, Any]]]:
    """Results, nodes and streamed events of the program on one wire."""
    events: list[dict[str, Any]] = []
    with Server(*script()) as server, session("s", store=MemoryStore()) as recorded, runtime_of(kind, server.url) as runtime:
        runtime.on_stream = events.append
        results = program(runtime)
        nodes = [shape(node) for node in recorded.nodes()]
        assert len(server.requests) == 6
    for event in events:
        event.pop("id", None)
        if event["type"] == "tool_use" and isinstance(event["args"], str):
            event["args"] = json.loads(event["args"])
    return results, nodes, events


def test_the_same_program_gives_the_same_on_every_wire() -> None:
    """Tool loop, choice, streaming, image input, a busy server and a reset: results, DAG and events do not depend on the wire."""
    found = {kind: run(kind) for kind in WIRES}
    results, nodes, events = found["chat"]
    assert results == ["Hello there.", "Both are fine.", "picture"]
    assert [node[0] for node in nodes].count("llm") == 3
    assert {"type": "restart"} in events
    for kind in WIRES:
        assert found[kind] == (results, nodes, events), kind


@every_wire
def test_a_charge_is_made_once_however_often_the_next_request_fails(kind: str) -> None:
    """Only the request is repeated, with the same result in it (c07)."""
    charged: list[int] = []

    def charge(amount: int) -> str:
        """Charge the card."""
        charged.append(amount)
        return "charged"

    with Server(say(calls=[Call("c1", "charge", '{"amount": 5}')]), busy, busy, say("Done.")) as server, runtime_of(kind, server.url) as runtime:
        assert runtime.exec("charge 5", tools=[charge]) == "Done."
        bodies = [request.json for request in server.requests]
    assert charged == [5]
    assert bodies[1] == bodies[2] == bodies[3]


@pytest.mark.parametrize("kind", ["chat", "responses", "anthropic"])
def test_arguments_cut_by_the_limit_are_not_used(kind: str) -> None:
    """Half a file is not written (c20). With Gemini a call comes whole or not at all."""
    written: list[str] = []

    def write(path: str, content: str) -> str:
        """Write a file."""
        written.append(content)
        return "written"

    half = Call("c1", "write", '{"path": "a.py", "content": "def f():\\n  ret')
    with Server(say(calls=[half], finish="length"), say("I could not.")) as server, runtime_of(kind, server.url) as runtime:
        try:
            assert runtime.exec("write", tools=[write]) == "I could not."
        except LLMError as error:
            assert error.reason is Reason.INCOMPLETE
    assert written == []


@every_wire
def test_loops_one_after_another_share_a_provider(kind: str) -> None:
    """Several event loops and the sync door use one runtime on a server that keeps connections (e04)."""
    with Server(say("fine", ending="keep")) as server, runtime_of(kind, server.url) as runtime:
        assert [asyncio.run(runtime.async_exec("x")) for _ in range(3)] == ["fine"] * 3
        assert runtime.exec("x") == "fine"


GEMINI_ENDS: list[tuple[Any, Reason, str, int]] = [
    ({"candidates": [{"content": {"role": "model"}, "finishReason": "MALFORMED_FUNCTION_CALL"}]}, Reason.PROTOCOL, "MALFORMED_FUNCTION_CALL", 3),
    ({"candidates": [{"content": {"role": "model"}, "finishReason": "UNEXPECTED_TOOL_CALL"}]}, Reason.PROTOCOL, "UNEXPECTED_TOOL_CALL", 3),
    ({"candidates": [{"finishReason": "STOP"}]}, Reason.PROTOCOL, "empty reply", 3),
    ({"candidates": [{"content": {"parts": []}, "finishReason": "RECITATION"}]}, Reason.CONTENT_FILTER, "RECITATION", 3),
    ({"promptFeedback": {"blockReason": "SAFETY"}}, Reason.CONTENT_FILTER, "SAFETY", 1),
    ({"promptFeedback": {"blockReason": ""}, "candidates": []}, Reason.CONTENT_FILTER, "no reason was given", 1),
    (
        {"candidates": [{"finishReason": "SAFETY", "content": {"parts": [{"functionCall": {"name": "look", "args": {"place": "x"}}}]}}]},
        Reason.CONTENT_FILTER,
        "SAFETY",
        1,
    ),
]


@pytest.mark.parametrize(("chunk", "reason", "said", "attempts"), GEMINI_ENDS)
def test_gemini_ends_without_an_answer(chunk: dict[str, Any], reason: Reason, said: str, attempts: int) -> None:
    """Each is a named error, tried again only where that may help; no call of a blocked reply is run (d22, d23)."""
    ran: list[str] = []

    def look(place: str) -> str:
        """Look at a place."""
        ran.append(place)
        return "seen"

    answer = Answer(chunks=[encoded((None, chunk))], headers={"Content-Type": "text/event-stream"})
    with Server(answer) as server, runtime_of("gemini", server.url, max_retries=3) as runtime, pytest.raises(LLMError, match=said) as caught:
        runtime.exec("x", tools=[look])
    assert (caught.value.reason, caught.value.attempts, len(server.requests), ran) == (reason, attempts, attempts, [])


def everything_written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder, and every value of its databases."""
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        yield path.name, path.read_bytes()
        if path.suffix == ".sqlite3":
            with sqlite3.connect(path) as database:
                tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                for table in tables:
                    yield f"{path.name}:{table}", repr(database.execute(f'SELECT * FROM "{table}"').fetchall()).encode()


@every_wire
def test_the_key_is_nowhere_but_in_its_header(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """No log, node, event, error, retry report, recording, file or output holds it: not in success, and not where the server repeats it."""
    caplog.set_level(logging.DEBUG)
    name, model = WIRES[kind][1:]
    tape, told, errors = tmp_path / "tape.json", list[str](), list[str]()
    events: list[dict[str, Any]] = []
    refusal = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "authentication_error"}}
    answers: list[Any] = [whole({"error": {"message": f"busy, {KEY}"}}, 503), *script(), whole(refusal, 401)]
    environ = {f"{prefix}_{what}": value for prefix in ("OPENAI", "ANTHROPIC", "GEMINI") for what, value in (("API_KEY", KEY), ("BASE_URL", "URL"))}
    with Server(*answers) as server, session("s", store=SqliteStore(home() / "sessions.sqlite3")) as recorded:
        environ = {variable: server.url if value == "URL" else value for variable, value in environ.items()}
        provider = RecordedProvider(tape, f"{name}:{model}", mode="record", environ=environ)
        with Runtime(provider=provider, model=model, max_retries=3) as runtime:
            runtime.on_stream = events.append
            program(runtime)
            with pytest.raises(LLMError) as caught:
                runtime.exec("again", on_retry=lambda info: told.append(repr(info)))
            error: BaseException | None = caught.value
            while error is not None:
                errors += [repr(error), str(error), repr(vars(error))]
                error = error.__cause__ or error.__context__
        nodes = repr([msgspec.to_builtins(node) for node in recorded.nodes()])
        assert KEY in "".join(server.requests[0].headers.values())
        assert not any(KEY.encode() in request.body or KEY in request.target for request in server.requests)
    assert "***" in errors[1]
    places = {
        "logs": caplog.text + repr([vars(record) for record in caplog.records]),
        "output": "".join(capfd.readouterr()),
        "nodes": nodes,
        "events": repr(events),
        "errors": repr([errors, told]),
        **{file: content.decode("utf-8", "replace") for folder in (home(), tmp_path) for file, content in everything_written(folder)},
    }
    assert {"tape.json", "sessions.sqlite3"} <= places.keys()
    assert [place for place, text in places.items() if KEY in text] == []
