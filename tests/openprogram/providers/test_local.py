"""The local model itself: a real engine in a real child process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from openprogram.context.messages import text_message
from openprogram.errors import ConfigurationError, LLMError, NoModelError, OpenProgramError, Reason, UnknownModelError
from openprogram.providers import weights
from openprogram.providers.base import Constraint, Finish, ModelEvent, ModelRequest, ModelSettings, Provider, TextDelta
from openprogram.providers.host_process import ModelHost
from openprogram.providers.local import LocalProvider, model_file
from tests.openprogram.providers.asking import text_of, until

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The default model's file, installed in the user's cache if it is not there yet."""
    return weights.install()


@pytest.fixture
def provider(gguf: Path) -> Iterator[LocalProvider]:
    provider = LocalProvider()
    yield provider
    asyncio.run(provider.aclose())


@pytest.fixture(scope="module")
def shared(gguf: Path) -> Iterator[LocalProvider]:
    """A provider for the tests that leave its host as it is."""
    provider = LocalProvider()
    yield provider
    asyncio.run(provider.aclose())


def request(text: str, limit: int | None = 12, **fields: Any) -> ModelRequest:
    fields = {"model": "smollm2-135m", **fields}
    return ModelRequest(new=(text_message("user", text),), settings=ModelSettings(max_output_tokens=limit), **fields)


async def collect(provider: LocalProvider, asked: ModelRequest) -> list[ModelEvent]:
    async with aclosing(provider.stream(asked)) as events:
        return [event async for event in events]


def ask(provider: LocalProvider, asked: ModelRequest) -> list[ModelEvent]:
    return asyncio.run(collect(provider, asked))


WORDS = {"refund", "close"}
ONE_WORD = Constraint(grammar='root ::= "refund" | "close"')


def works(provider: LocalProvider, model: str = "smollm2-135m") -> bool:
    """Whether the model answers; the answer is constrained, since free text may differ each time and even be empty."""
    return text_of(ask(provider, request("I was charged twice. refund or close?", model=model, constraint=ONE_WORD))) in WORDS


def gone(pid: int) -> bool:
    """Whether a process has ended, be it waited for or not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # it ended in between, or there is no /proc
        return Path("/proc/self").exists()


# Answers


@pytest.mark.parametrize("model", ["smollm2-135m", "local:smollm2-135m", "local:", "default"])
def test_text_streams_under_each_name(model: str, shared: LocalProvider) -> None:
    """The default model answers piece by piece, with one Finish that counts tokens."""
    *pieces, finish = ask(shared, request("Tell a long story about a dog.", 24, model=model))
    assert len(pieces) > 1 and all(isinstance(piece, TextDelta) for piece in pieces)
    assert isinstance(finish, Finish) and finish.usage is not None
    assert finish.usage.input_tokens > 5 and 0 < finish.usage.output_tokens <= 24


def test_any_gguf_file_can_be_named(gguf: Path, tmp_path: Path, provider: LocalProvider) -> None:
    """A path is a model, whatever blanks and letters are in it."""
    (tmp_path / "ein Modell é.gguf").symlink_to(gguf)
    assert works(provider, f"local:{tmp_path}/ein Modell é.gguf")


def test_a_schema_binds_the_answer(shared: LocalProvider) -> None:
    """The reply parses and has exactly the declared fields."""
    value = json.loads(text_of(ask(shared, request("Describe a cat.", 100, constraint=Constraint(schema=SCHEMA)))))
    assert set(value) == {"name", "age"} and isinstance(value["name"], str) and isinstance(value["age"], int)


def test_a_grammar_binds_the_answer(shared: LocalProvider) -> None:
    """A grammar of two words yields one of them and a natural end."""
    events = ask(shared, request("I was charged twice. refund or close?", constraint=ONE_WORD))
    assert text_of(events) in WORDS and isinstance(events[-1], Finish) and events[-1].reason == "stop"


def test_a_limit_that_cuts_the_answer_is_reported(shared: LocalProvider) -> None:
    """The finish reason is ``length``, so that half a JSON text is not taken for an answer."""
    finish = ask(shared, request("Describe a cat.", 2, constraint=Constraint(schema=SCHEMA)))[-1]
    assert isinstance(finish, Finish) and finish.reason == "length"


def test_a_prompt_that_is_too_long_is_named_so(shared: LocalProvider) -> None:
    """It is no failure that a repetition mends."""
    with pytest.raises(LLMError) as caught:
        ask(shared, request("word " * 6000))
    assert (caught.value.reason, caught.value.retryable) == (Reason.CONTEXT_LENGTH, False)


def test_a_bad_grammar_is_a_bad_request(shared: LocalProvider) -> None:
    """The engine's refusal reaches the caller and the host lives on."""
    with pytest.raises(LLMError) as caught:
        ask(shared, request("x", constraint=Constraint(grammar="root ::= (((")))
    assert (caught.value.reason, caught.value.retryable) == (Reason.BAD_REQUEST, False)
    assert works(shared)


def test_the_profile_says_what_the_engine_can() -> None:
    """Schemas and grammars are enforced, tools are not; a pick is made in two steps. Asking starts nothing."""
    provider = LocalProvider()
    assert isinstance(provider, Provider)
    profile = provider.profile("smollm2-135m")
    assert (profile.schema, profile.grammar, profile.tools, profile.two_step_pick, profile.context_window) == (True, True, False, True, 4096)


# The process


def test_leaving_a_stream_frees_the_model(shared: LocalProvider) -> None:
    """After a long answer is left early the next one starts at once, long before the first would have ended."""

    async def run() -> float:
        events = shared.stream(request("Tell a very long story.", 1000))
        await anext(events)
        await events.aclose()
        began = time.monotonic()
        await collect(shared, request("Say hello.", 1))
        return time.monotonic() - began

    assert asyncio.run(run()) < 2


def test_loops_and_threads_share_one_host(gguf: Path) -> None:
    """Requests from several threads at once, each in a loop of its own, load the model once."""
    told: list[str] = []
    provider = LocalProvider(on_progress=told.append)
    replies: list[bool] = []
    threads = [threading.Thread(target=lambda: replies.append(works(provider))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert replies == [True] * 4
    assert len([text for text in told if text.startswith("loaded")]) == 1
    # The threads that started it are gone; the host is not.
    assert works(provider) and len(told) == 2
    asyncio.run(provider.aclose())


def test_a_killed_host_fails_one_request(provider: LocalProvider) -> None:
    """The request that runs fails retryably and says why; the next one is served by a new host."""

    async def run() -> LLMError:
        events = provider.stream(request("Tell a very long story.", 1000))
        await anext(events)
        os.kill(provider.host("smollm2-135m").start().pid, signal.SIGKILL)
        with pytest.raises(LLMError) as caught:
            async for _ in events:
                pass
        return caught.value

    error = asyncio.run(run())
    assert (error.reason, error.retryable) == (Reason.SERVER, True) and "SIGKILL" in str(error)
    assert works(provider)


def test_a_host_that_died_in_between_is_replaced(provider: LocalProvider) -> None:
    """A death while nobody asks is not noticed by anyone."""
    ask(provider, request("Say hello.", 1))
    host = provider.host("smollm2-135m")
    os.kill(host.start().pid, signal.SIGKILL)
    assert host.exited.result(10) == -signal.SIGKILL
    assert works(provider)


def test_closing_ends_the_host_and_a_later_request_starts_another(provider: LocalProvider) -> None:
    """aclose returns when the process is gone, may be called twice, and is not final."""
    ask(provider, request("Say hello.", 1))
    pid = provider.host("smollm2-135m").start().pid
    asyncio.run(provider.aclose())
    asyncio.run(provider.aclose())
    assert gone(pid)
    assert works(provider)


def test_closing_while_loading(gguf: Path) -> None:
    """A host that is closed before it is ready fails its waiters retryably and leaves no process."""
    host = ModelHost(gguf)
    ready = host.launch()
    host.close()
    with pytest.raises(LLMError, match="closed") as caught:
        ready.result(10)
    assert caught.value.retryable
    host.exited.result(10)
    assert not host.usable


def test_a_forgotten_provider_ends_its_host(gguf: Path) -> None:
    """Nobody holds the provider any more: neither does a process."""
    provider = LocalProvider()
    pid = provider.host("smollm2-135m").start().pid
    del provider
    gc.collect()
    until(lambda: gone(pid))


PARENT = """
import sys
from openprogram.providers.local import LocalProvider
provider = LocalProvider()
print(provider.host("smollm2-135m").start().pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["kill -9", "exit"])
def test_the_host_ends_with_its_parent(end: str, gguf: Path) -> None:
    """Whether the parent is killed or simply ends, no host outlives it."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        host = int(parent.stdout.readline())
        assert not gone(host)
        if end == "exit":
            parent.stdin.write("\n")
            parent.stdin.flush()
        else:
            parent.kill()
        until(lambda: gone(host))


def start_host(gguf: Path, parent: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "openprogram.providers.model_host", str(gguf), "--parent", str(parent)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_host_ends_at_the_end_of_its_input(gguf: Path) -> None:
    """Where the kernel does not end it with its parent, the closed pipe does."""
    with start_host(gguf, os.getpid()) as host:
        assert host.stdin is not None and host.stdout is not None
        assert json.loads(host.stdout.readline())["address"].startswith("http://127.0.0.1:")
        host.stdin.close()
        assert host.wait(10) == 0


def test_a_host_whose_parent_is_already_gone_ends_at_once(gguf: Path) -> None:
    """It says nothing and loads nothing."""
    with start_host(gguf, 1 << 30) as host:
        assert host.stdout is not None
        assert host.stdout.read() == "" and host.wait(10) == 0


def test_the_endpoint_is_shut_to_others(shared: LocalProvider) -> None:
    """The key is needed, stands in neither the command line nor the environment, and no web page is let in."""
    endpoint = shared.host("smollm2-135m").start()
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    with httpx.Client(base_url=endpoint.address, trust_env=False, headers={"Origin": "http://evil.example"}) as client:
        for headers in ({}, {"Authorization": "Bearer guess"}):
            assert client.post("/v1/chat/completions", json=body, headers=headers).status_code == 401
        answer = client.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {endpoint.key}"})
        assert answer.status_code == 200 and not answer.headers.get("access-control-allow-origin")
        assert client.get("/").status_code != 200
    for file in ("cmdline", "environ") if sys.platform == "linux" else ():
        assert endpoint.key.encode() not in Path(f"/proc/{endpoint.pid}/{file}").read_bytes()
    assert endpoint.key not in repr(endpoint) and endpoint.address.startswith("http://127.0.0.1:")


def test_proxies_in_the_environment_are_passed_by(shared: LocalProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to this machine goes to no proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert works(shared)


# What cannot be run


def refused(model: str) -> OpenProgramError:
    with pytest.raises(OpenProgramError) as caught:
        ask(LocalProvider(), request("x", model=model))
    return caught.value


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    """The error names the file and what it begins with."""
    file = tmp_path / "a.gguf"
    file.write_bytes(b"PK\x03\x04 zipped")
    error = refused(str(file))
    assert type(error) is ConfigurationError and "is no GGUF" in str(error) and str(file) in str(error)


def test_a_model_file_that_was_cut(gguf: Path, tmp_path: Path) -> None:
    """What only the engine can tell is reported with the file, its size and a guess at the cause."""
    file = tmp_path / "cut.gguf"
    with gguf.open("rb") as source:
        file.write_bytes(source.read(5_000_000))
    error = refused(str(file))
    assert type(error) is ConfigurationError and "5,000,000 bytes" in str(error) and "incomplete" in str(error)


@pytest.mark.parametrize("make", ["nothing", "folder"])
def test_a_file_that_cannot_be_read(make: str, tmp_path: Path) -> None:
    """A missing file is a missing model; a folder is named as what it is."""
    path = tmp_path / "x.gguf"
    if make == "folder":
        path.mkdir()
    error = refused(f"local:{path}")
    assert isinstance(error, NoModelError if make == "nothing" else ConfigurationError) and str(path) in str(error)


def test_a_file_that_appears_later_is_used(gguf: Path, tmp_path: Path, provider: LocalProvider) -> None:
    """A failed start is not remembered."""
    path = tmp_path / "later.gguf"
    with pytest.raises(NoModelError):
        ask(provider, request("x", model=str(path)))
    path.symlink_to(gguf)
    assert works(provider, str(path))


def test_weights_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the command that mends it."""
    monkeypatch.setenv("OPENPROGRAM_CACHE", str(tmp_path))
    error = refused("smollm2-135m")
    assert isinstance(error, NoModelError) and "run: openprogram models install" in str(error)


def test_an_engine_that_is_not_installed(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the pip command that installs it."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    error = refused("smollm2-135m")
    assert isinstance(error, NoModelError) and "pip install 'openprogram[local]'" in str(error)


def test_an_unknown_name() -> None:
    """The error names the known models and the other way."""
    with pytest.raises(UnknownModelError, match=r"smollm2-135m.*\.gguf"):
        model_file("local:gpt-9")
