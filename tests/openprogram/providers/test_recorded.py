"""Traffic recorded once and replayed offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openprogram import Runtime
from openprogram.errors import ConfigurationError, LLMError, NoModelError, UsageError
from openprogram.providers.catalog import ROWS
from openprogram.providers.recorded import RecordedProvider
from tests.openprogram.providers.wires import KEY
from tests.support.http_server import Answer, Server, whole
from tests.support.speaking import say

PROVIDERS = {"chat": "openai_chat", "responses": "openai", "anthropic": "anthropic", "gemini": "google"}
every_provider = pytest.mark.parametrize("name", PROVIDERS.values())


def surroundings(name: str, url: str) -> dict[str, str]:
    return {ROWS[name].keys[0]: KEY, ROWS[name].urls[0]: url}


def exchange(provider: RecordedProvider, *questions: str) -> list[str]:
    """The answers to these questions by a runtime of its own."""
    with Runtime(provider=provider, model=provider.model.partition(":")[2], max_retries=1) as runtime:
        return [runtime.exec(question) for question in questions]


@every_provider
def test_what_was_recorded_is_replayed_without_server_and_key(name: str, tmp_path: Path) -> None:
    """The same answers, in the order in which they were given, in another process's surroundings and another session."""
    file = tmp_path / "deep" / "answers.json"
    with Server(say("first", "!"), say("second"), say("other")) as server:
        provider = RecordedProvider(file, f"{name}:{ROWS[name].model}", mode="record", environ=surroundings(name, server.url))
        assert exchange(provider, "same", "same", "different") == ["first!", "second", "other"]
    replayed = RecordedProvider(file)
    assert replayed.model == f"{name}:{ROWS[name].model}"
    assert exchange(replayed, "different", "same", "same", "same") == ["other", "first!", "second", "second"]
    assert exchange(RecordedProvider(file), "same") == ["first!"]


@every_provider
def test_no_recording_holds_the_key(name: str, tmp_path: Path) -> None:
    """Not even where the server repeats it, or the user wrote it into the prompt."""
    file = tmp_path / "answers.json"
    with Server(say("your key is ", KEY, "!")) as server:
        provider = RecordedProvider(file, f"{name}:m", mode="record", environ=surroundings(name, server.url), api_key=KEY)
        assert exchange(provider, f"is it {KEY}?") == [f"your key is {KEY}!"]
    text = file.read_text("utf-8")
    assert KEY not in text and "your key is" in text and "***" in text
    assert list(tmp_path.iterdir()) == [file]


def test_a_request_that_was_not_recorded_says_so(tmp_path: Path) -> None:
    """It is the user's mistake, so that nothing is tried again; the error shows the request and how to record it."""
    file = tmp_path / "answers.json"
    with Server(say("fine")) as server:
        exchange(RecordedProvider(file, "openai:m", mode="record", environ=surroundings("openai", server.url)), "a")
    with pytest.raises(UsageError, match=r"answers\.json.*mode='record'.*another question"):
        exchange(RecordedProvider(file), "another question")


def test_auto_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    """A recording grows by what is new, and keeps the rest."""
    file = tmp_path / "answers.json"
    with Server(say("one"), say("two")) as server:
        for questions in (["a"], ["a", "b"], ["a", "b"]):
            exchange(RecordedProvider(file, "openai:m", mode="auto", environ=surroundings("openai", server.url)), *questions)
        assert len(server.requests) == 2
    assert exchange(RecordedProvider(file), "b", "a") == ["two", "one"]


def test_recording_again_replaces_the_file(tmp_path: Path) -> None:
    """Old answers do not stay behind."""
    file = tmp_path / "answers.json"
    with Server(say("old"), say("new")) as server:
        for _ in range(2):
            exchange(RecordedProvider(file, "openai:m", mode="record", environ=surroundings("openai", server.url)), "a")
    assert exchange(RecordedProvider(file), "a") == ["new"]
    assert len(json.loads(file.read_text())["exchanges"]) == 1


def test_failures_are_recorded_too(tmp_path: Path) -> None:
    """A test can replay how a program behaves when its provider is busy; a reply that broke off is not kept."""
    file = tmp_path / "answers.json"
    with Server(whole({"error": {"message": "slow down"}}, 429, Retry_After="1"), say("half", "way", cut=2, ending="cut")) as server:
        for _ in range(2):
            with pytest.raises(LLMError):
                exchange(RecordedProvider(file, "openai:m", mode="auto", environ=surroundings("openai", server.url)), "a" if not file.exists() else "b")
    with pytest.raises(LLMError, match="slow down") as caught:
        exchange(RecordedProvider(file), "a")
    assert (caught.value.http_status, caught.value.retry_after_s) == (429, 1.0)
    with pytest.raises(UsageError):
        exchange(RecordedProvider(file), "b")


def test_by_name(tmp_path: Path) -> None:
    """``recorded:FILE`` is a model like any other."""
    file = tmp_path / "answers.json"
    with Server(say("fine")) as server:
        exchange(RecordedProvider(file, "anthropic:m", mode="record", environ=surroundings("anthropic", server.url)), "a")
    with Runtime(model=f"recorded:{file}") as runtime:
        assert runtime.exec("a") == "fine"


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"exchanges": 3}', b"\xff"])
def test_a_file_that_is_no_recording_is_told(content: bytes, tmp_path: Path) -> None:
    """Before anything is asked."""
    file = tmp_path / "answers.json"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is no recording"):
        RecordedProvider(file)


def test_a_recording_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the way to make one."""
    with pytest.raises(NoModelError, match="mode='record'"):
        RecordedProvider(tmp_path / "none.json")


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    """The error names the modes."""
    mode: Any = "rec"
    with pytest.raises(UsageError, match="replay, record, auto"):
        RecordedProvider(tmp_path / "none.json", mode=mode)


def test_a_compressed_answer_is_recorded_as_text(tmp_path: Path) -> None:
    """A server that compresses although it was asked not to is understood, and what is kept can be read."""
    import gzip

    file = tmp_path / "answers.json"
    body = gzip.compress(json.dumps({"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": KEY}]}]}).encode())
    with Server(Answer(chunks=[body], headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})) as server:
        exchange(RecordedProvider(file, "openai:m", mode="record", environ=surroundings("openai", server.url)), "a")
    assert KEY not in file.read_text()
    assert exchange(RecordedProvider(file), "a") == ["***"]
