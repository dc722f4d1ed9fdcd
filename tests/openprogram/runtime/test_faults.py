"""Faults 4 to 7, 13 and 14 that were measured in a reference implementation, and how often connections and counts go wrong elsewhere."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, session
from openprogram.errors import LLMError, Reason
from openprogram.providers.openai_chat import OpenAIChatProvider
from openprogram.store.memory import MemoryStore
from tests.openprogram.providers.asking import until
from tests.openprogram.providers.wires import provider_of
from tests.support.http_server import Server, delta, stream, whole
from tests.support.speaking import say

IMAGE = {"type": "image", "data": "AQ==", "mime_type": "image/png"}


class Model:
    """A model function that keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[list[dict[str, Any]]] = []

    def __call__(self, content: list[dict[str, Any]]) -> str:
        self.given.append(content)
        return f"answer {len(self.given)}"


def test_4_llm_sees_what_exec_sees() -> None:
    """``llm`` with ``call=`` gets the same context as ``exec`` in its place."""
    from openprogram.agentic_programming.llm import llm

    model = Model()

    @agentic_function
    def work(runtime: Runtime, by: str) -> str:
        """Work."""
        runtime.exec("first")
        return llm("second") if by == "llm" else runtime.exec("second", tools=[])

    for by in ("exec", "llm"):
        with session(f"s-{by}", store=MemoryStore()):
            work(runtime=Runtime(call=model), by=by)
    by_exec, by_llm = (
        [block["text"].replace("'llm'", "'exec'").replace("answer 3", "answer 1") for block in given] for given in (model.given[1], model.given[3])
    )
    assert by_llm == by_exec and any("first" in text for text in by_llm)


def test_5_6_the_prompt_is_what_the_author_wrote() -> None:
    """An image block arrives as it is, and nothing is added but the system text, if one is set."""
    model = Model()
    runtime = Runtime(call=model)
    runtime.exec([IMAGE, {"type": "text", "text": "what is this?"}])
    runtime.system = "be brief"
    runtime.exec("hi")
    assert model.given[0] == [IMAGE, {"type": "text", "text": "what is this?"}]
    assert model.given[0][0] is IMAGE
    assert model.given[1] == [{"type": "text", "text": "be brief", "role": "system"}, {"type": "text", "text": "hi"}]


def test_7_without_a_store_nothing_is_written(tmp_path: Path) -> None:
    """A script that asks once leaves no file anywhere in its home, its cache or its folder."""
    script = "from openprogram import Runtime\nassert Runtime(call=lambda content: 'ok').exec('hi') == 'ok'\n"
    folders = {name: tmp_path / name for name in ("HOME", "OPENPROGRAM_HOME", "OPENPROGRAM_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    for folder in folders.values():
        folder.mkdir()
    environ = {**os.environ, **{name: str(folder) for name, folder in folders.items()}, "PYTHONDONTWRITEBYTECODE": "1"}
    (tmp_path / "work").mkdir()
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path / "work", env=environ, check=True, timeout=60)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_13_three_attempts_are_three_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """``max_retries=3`` asks the server three times and no more, over a real connection."""
    monkeypatch.setenv("OPENPROGRAM_RETRY_BACKOFF_BASE", "0")
    with Server(whole({"error": {"message": "busy"}}, 503)) as server:
        with Runtime(provider=provider_of("chat", server.url), max_retries=3) as runtime, pytest.raises(LLMError) as caught:
            runtime.exec("hi")
        assert (len(server.requests), caught.value.attempts, caught.value.http_status) == (3, 3, 503)


@pytest.mark.parametrize("error", [TypeError("wrong"), NotImplementedError("not yet")])
def test_13_mistakes_are_raised_at_once(error: Exception) -> None:
    """TypeError and NotImplementedError of a ``call=`` function are the author's."""
    calls: list[int] = []

    def failing(content: Any) -> str:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        Runtime(call=failing).exec("hi")
    assert calls == [1]


def test_13_a_late_answer_is_a_time_out() -> None:
    """``timeout_s=0.2`` with a call of 1.2 s ends in TIMEOUT before that answer, not in a late success."""
    started = time.monotonic()

    def slow(content: Any) -> str:
        time.sleep(1.2)
        return "late"

    with pytest.raises(LLMError) as caught:
        Runtime(call=slow).exec("hi", timeout_s=0.2)
    assert (caught.value.reason, caught.value.retryable) == (Reason.TIMEOUT, False)
    assert time.monotonic() - started < 1.2


def test_14_a_missing_image_fails_at_once() -> None:
    """Before anything is asked, with the file's name."""
    model = Model()
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        Runtime(call=model).exec([{"type": "image", "path": "gone.png"}])
    assert model.given == []


def test_14_failed_attempts_are_logged_only(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """Nothing goes to standard error by itself; each attempt is one line at INFO."""
    monkeypatch.setenv("OPENPROGRAM_RETRY_BACKOFF_BASE", "0")
    caplog.set_level(logging.INFO, "openprogram")

    def failing(content: Any) -> str:
        raise ConnectionError("reset")

    with pytest.raises(LLMError):
        Runtime(call=failing, max_retries=3).exec("hi")
    assert capfd.readouterr() == ("", "")
    assert [record.message for record in caplog.records if "attempt" in record.message] == [
        f"attempt {number} of 3 failed (ConnectionError); next in 0.0 s" for number in (1, 2)
    ]


CHOICES: list[dict[str, Any]] = [
    {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
    {"choices": [{"delta": {"role": "assistant"}}]},
    delta("Hi", "stop"),
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
]
CUMULATIVE = [
    {**delta(text, finish), "usage": {"prompt_tokens": 3, "completion_tokens": n}} for n, (text, finish) in enumerate([("H", None), ("i", "stop")], 0)
]
UNKNOWN_FIELD = whole({"error": {"message": "unknown field stream_options"}}, 400)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([stream(*CHOICES)], id="d17 and d33 A: empty choices, usage at the end"),
        pytest.param([UNKNOWN_FIELD, stream(*CHOICES)], id="d33 B: the option is refused"),
        pytest.param([stream(*CUMULATIVE)], id="d33 C: cumulative counts in every chunk"),
    ],
)
def test_streamed_usage_is_counted_once(answers: list[Any]) -> None:
    """However a server tells it, ``last_usage`` is what the request took."""
    with Server(*answers) as server, Runtime(provider=OpenAIChatProvider(server.url, environ={}), model="m") as runtime:
        assert runtime.exec("hi") == "Hi"
        assert runtime.last_usage is not None
        assert (runtime.last_usage["input_tokens"], runtime.last_usage["output_tokens"]) == (3, 1)


def test_d33_d_anthropic_counts_in_two_events() -> None:
    """The prompt's tokens come first, those of the answer last."""
    with Server(say("Hi", usage=(12, 4, 5, 0))) as server, Runtime(provider=provider_of("anthropic", server.url), model="claude-sonnet-4-6") as runtime:
        runtime.exec("hi")
        assert runtime.last_usage is not None
        assert (runtime.last_usage["input_tokens"], runtime.last_usage["output_tokens"]) == (12, 5)


def test_d31_a_consumer_that_raises_leaves_no_connection() -> None:
    """Two hundred times in a row: its error reaches the caller, nothing is asked again, and no socket stays open."""

    def broken(event: dict[str, Any]) -> None:
        raise KeyError("view")

    with Server(say("Hello", "again", ending="hang")) as server, Runtime(provider=provider_of("chat", server.url), model="m") as runtime:
        runtime.on_stream = broken
        for _ in range(200):
            with pytest.raises(KeyError, match="view"):
                runtime.exec("hi")
        assert len(server.requests) == 200
        until(lambda: server.connections == 0)


def test_c04_calls_that_are_all_numbered_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new id on the same index starts a new call: both run, each with its own arguments."""
    seen: list[str] = []

    def search(q: str) -> str:
        """Search."""
        seen.append(q)
        return f"found {q}"

    parts = [
        delta(tool_calls=[{"index": 0, "id": name, "function": {"name": "search", "arguments": f'{{"q":"{q}"}}'}}]) for name, q in (("A", "x"), ("B", "y"))
    ]
    with Server(stream(*parts, delta(finish="tool_calls")), stream(delta("done", "stop"))) as server:
        with Runtime(provider=OpenAIChatProvider(server.url, environ={}), model="m") as runtime:
            assert runtime.exec("find", tools=[search]) == "done"
        results = [one["content"] for one in server.requests[1].json["messages"] if one["role"] == "tool"]
    assert sorted(seen) == ["x", "y"] and results == ["found x", "found y"]
