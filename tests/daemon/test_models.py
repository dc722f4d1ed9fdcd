"""The model connections of a daemon: the local model once for everybody, and keys and addresses those of each workspace."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from openprogram_daemon.models import Models

from openprogram.context.messages import text_message
from openprogram.errors import NoModelError, UnknownModelError
from openprogram.providers import weights
from openprogram.providers.base import Constraint, ModelRequest, ModelSettings, TextDelta
from openprogram.providers.local import LocalProvider
from tests.daemon.support import Daemon, Raw, children, lives, until
from tests.support.http_server import Server, delta, stream

Connect = Callable[..., Raw]
Start = Callable[..., Daemon]

LOCAL = "local:smollm2-135m"
ONE_WORD: dict[str, Any] = {"constraint": {"grammar": 'root ::= "refund" | "close"'}, "settings": {"max_output_tokens": 4}}


@pytest.fixture
def model() -> None:
    """The local model, installed if it is not there yet."""
    pytest.importorskip("xllamacpp", reason="the engine of the local model is an extra")
    weights.install()


def hosts(daemon: Daemon) -> list[int]:
    """The model hosts below a daemon."""
    daemon.descendants()
    return [pid for pid in children(daemon.pid) if b"openprogram.providers.model_host" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def asked(client: Raw, workspace: str = "", model: str = LOCAL, **fields: Any) -> int:
    """A model request on its way."""
    message = {"role": "user", "blocks": [{"type": "text", "text": "I was charged twice. refund or close?"}]}
    params = {"stream": os.urandom(4).hex(), "model": model, "workspace": workspace, "new": [message], **fields}
    return client.request("openprogram/model/stream", params)


def test_one_local_model_for_everybody(model: None, daemon: Daemon, client: Raw, raw: Connect, workspace: Path, tmp_path: Path) -> None:
    """Clients of two workspaces that ask at once share one host, which loaded the model once; one that dies is replaced by the next request."""
    other = raw().connect()
    (tmp_path / "elsewhere").mkdir()
    both = [(client, client.open(workspace)), (other, other.open(tmp_path / "elsewhere", env={"X": "1"}))]
    waiting = [(one, asked(one, opened, **ONE_WORD)) for one, opened in both]
    assert ["result" in one.reply(request) for one, request in waiting] == [True, True]
    (host,) = hosts(daemon)
    (shown,) = client.call("openprogram/status")["models"]
    assert (shown["provider"], shown["workspace"], shown["users"]) == ("local", "", 0)
    os.kill(host, signal.SIGKILL)
    until(lambda: not lives(host))
    # One that begins before the death is noticed is refused as one that may be tried again.
    until(lambda: "result" in client.reply(asked(client, **ONE_WORD)))
    (again,) = hosts(daemon)
    assert again != host


def test_a_host_that_dies_fails_its_request_only(model: None, daemon: Daemon, client: Raw, raw: Connect) -> None:
    """The request that it served ends with an error that may be tried again, and the daemon and its next request are as before."""
    request = asked(client, settings={"max_output_tokens": 1000})
    until(lambda: client.get().get("method") == "openprogram/model/events")
    os.kill(hosts(daemon)[0], signal.SIGKILL)
    error = client.reply(request)["error"]
    assert (error["code"], error["data"]["retryable"]) == (-32030, True)
    until(lambda: "result" in client.reply(asked(client, **ONE_WORD)))
    assert raw().connect().call("openprogram/status")["pid"] == daemon.pid


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_host_ends_with_the_daemon(model: None, start_daemon: Start, raw: Connect, end: str) -> None:
    """However the daemon ends, the memory of the model is given back."""
    daemon = start_daemon().ready()
    client = raw().connect()
    assert "result" in client.reply(asked(client, **ONE_WORD))
    (host,) = hosts(daemon)
    daemon.kill() if end == "kill" else daemon.stop()
    until(lambda: not lives(host))


def test_a_client_that_leaves_stops_its_model(model: None, daemon: Daemon, client: Raw, raw: Connect) -> None:
    """The model does not go on writing for somebody who is gone."""
    gone = raw().connect()
    asked(gone, settings={"max_output_tokens": 1000})
    until(lambda: gone.get().get("method") == "openprogram/model/events")
    assert [one["users"] for one in client.call("openprogram/status")["models"]] == [1]
    gone.close()
    until(lambda: [one["users"] for one in client.call("openprogram/status")["models"]] == [0])


def test_an_idle_host_ends_and_comes_back(model: None) -> None:
    """After the idle time the process is gone; while it is used it stays; the next request starts another."""

    async def ask(models: Models) -> tuple[LocalProvider, str]:
        async with models.lend(None, LOCAL) as lent:
            request = ModelRequest(
                model=lent.name,
                new=(text_message("user", "refund or close?"),),
                settings=ModelSettings(max_output_tokens=4),
                constraint=Constraint(grammar='root ::= "refund" | "close"'),
            )
            async with aclosing(lent.provider.stream(request)) as events:
                return lent.provider, "".join([event.text async for event in events if isinstance(event, TextDelta)])

    async def gone(pid: int) -> None:
        async with asyncio.timeout(20):
            while lives(pid):
                await asyncio.sleep(0.01)

    async def body() -> None:
        models = Models(idle_s=0.3)
        try:
            provider, said = await ask(models)
            assert said in ("refund", "close")
            first = provider.host(LOCAL).start().pid
            async with models.lend(None, LOCAL):
                await asyncio.sleep(1.0)  # more than the idle time, in use
                assert lives(first)
                assert [one["users"] for one in models.status()] == [1]
            await gone(first)
            assert models.status() == []
            again, said = await ask(models)
            assert said in ("refund", "close")
            assert again is not provider
            second = again.host(LOCAL).start().pid
        finally:
            await models.aclose()
        await gone(second)

    asyncio.run(body())


def test_keys_and_addresses_are_the_workspaces(start_daemon: Start, raw: Connect, workspace: Path) -> None:
    """Two terminals with keys of their own never use each other's, nor the ones of whoever started the daemon, nor does anybody without one get one."""
    with Server(stream(delta("hello"), delta(finish="stop"))) as server:
        start_daemon(GROQ_API_KEY="SECRET-of-the-starter", GROQ_BASE_URL=server.url).ready()
        client = raw().connect()
        for key in ("SECRET-a", "SECRET-b"):
            opened = client.open(workspace, env={"GROQ_API_KEY": key, "GROQ_BASE_URL": server.url})
            for _ in range(2):
                assert "result" in client.reply(asked(client, opened, "groq:m"))
        bare = client.open(workspace)
        refused = client.reply(asked(client, bare, "groq:m"))["error"]
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer SECRET-a"] * 2 + ["Bearer SECRET-b"] * 2
    assert refused["code"] == -32021
    assert "GROQ_API_KEY" in refused["message"]
    assert "SECRET" not in refused["message"] + str(client.call("openprogram/status"))


def test_the_model_is_the_one_that_the_workspace_chooses(start_daemon: Start, raw: Connect, workspace: Path) -> None:
    """Its environment, then its table if it is trusted; the daemon's own environment decides nothing."""
    start_daemon(OPENPROGRAM_MODEL="groq:of-the-starter").ready()
    client = raw().connect()
    (workspace / "pyproject.toml").write_text('[tool.openprogram]\nmodel = "groq:of-the-table"\n')
    key = {"GROQ_API_KEY": "k"}
    by_environment = client.open(workspace, env={**key, "OPENPROGRAM_MODEL": "groq:of-the-shell"})
    by_table = client.open(workspace, env=key)
    untrusted = client.open(workspace, env={**key, "Y": "1"}, trusted=False)
    chosen = [client.call("openprogram/model/profile", {"workspace": opened, "model": ""})["model"] for opened in (by_environment, by_table, untrusted)]
    assert chosen[:2] == ["groq:of-the-shell", "groq:of-the-table"]
    assert chosen[2].startswith("local:")


@pytest.mark.parametrize(("model", "code"), [("nosuch:m", -32020), ("", -32021)])
def test_no_model_to_ask(client: Raw, workspace: Path, model: str, code: int) -> None:
    """A provider that does not exist is named; where nothing is configured, what to do is."""
    opened = client.open(workspace, env={"OPENPROGRAM_MODEL": "anthropic:x"})
    error = client.reply(asked(client, opened, model))["error"]
    assert error["code"] == code
    assert ("nosuch" if model else "ANTHROPIC_API_KEY") in error["message"]


def test_a_provider_that_could_not_be_made_is_not_kept() -> None:
    """A failure leaves nothing that a later request would meet."""

    async def body() -> None:
        models = Models()
        with pytest.raises(UnknownModelError):
            async with models.lend(None, "nosuch:m"):
                pass
        with pytest.raises(NoModelError):
            async with models.lend(None, "groq:m"):
                pass
        assert models.status() == []
        await models.aclose()

    asyncio.run(body())


def test_what_a_model_writes_is_told_as_it_comes(client: Raw, raw: Connect, workspace: Path) -> None:
    """Whoever follows a run sees its model's text while it runs, in order; what it reads in the end is the result, and deltas are kept nowhere else."""
    follower = raw().connect()
    follower.call("openprogram/subscribe", {"topics": ["run"]})
    with Server(stream(delta("one "), delta("two "), delta("三 😀"), delta(finish="stop"))) as server:
        opened = client.open(workspace, env={"GROQ_API_KEY": "k", "GROQ_BASE_URL": server.url, "OPENPROGRAM_MODEL": "groq:m"})
        ended = client.result(client.run(opened, "ask", question="count"))
    assert (ended["state"], ended["result"]) == ("completed", "one two 三 😀")
    told = [follower.event("run")]
    while told[-1]["kind"] != "finished":
        told.append(follower.event("run"))
    assert "".join(event["data"] for event in told if event["kind"] == "delta") == "one two 三 😀"
    entry, asked_of_it = client.call("openprogram/dag/nodes", {"session": ended["session"]})["nodes"]
    assert (entry["role"], asked_of_it["role"], asked_of_it["output"]) == ("code", "llm", "one two 三 😀")
