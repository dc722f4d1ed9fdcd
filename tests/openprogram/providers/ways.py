"""Ways to a provider that answers "hello". The contract tests run over each.

Inside a worker (see tests/daemon/test_contracts_in_a_worker.py) there is one way more: the daemon's model connections over the worker's own channel.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

from openprogram.context.messages import Block
from openprogram.context.scope import current
from openprogram.providers.base import Profile, Provider
from openprogram.providers.callable import CallableProvider
from openprogram.providers.local import LocalProvider
from openprogram.providers.openai_chat import OpenAIChatProvider
from openprogram.providers.recorded import RecordedProvider
from openprogram.providers.scripted import ScriptedProvider, ScriptFiles
from openprogram.remote import RemoteProvider
from tests.openprogram.providers.wires import WIRES, provider_of
from tests.support.daemons import IN_WORKER, daemon_client
from tests.support.http_server import Server, delta, stream
from tests.support.speaking import say

Way = AbstractContextManager[tuple[Provider, str]]


def script(folder: Path) -> str:
    """A file of replies."""
    file = folder / "replies.json"
    file.write_text(json.dumps(["hello"]), "utf-8")
    return str(file)


def _hello(content: list[Block]) -> str:
    return "hello"


@contextlib.contextmanager
def _given(provider: Provider, model: str = "m") -> Generator[tuple[Provider, str]]:
    yield provider, model


@contextlib.contextmanager
def _served(folder: Path) -> Generator[tuple[Provider, str]]:
    with Server(stream(delta("hel"), delta("lo", "stop"))) as server:
        yield OpenAIChatProvider(server.url, environ={}), "m"


@contextlib.contextmanager
def _on_wire(kind: str) -> Generator[tuple[Provider, str]]:
    with Server(say("hel", "lo")) as server:
        yield provider_of(kind, server.url, profile=Profile()), WIRES[kind][2]


@contextlib.contextmanager
def _replayed(folder: Path) -> Generator[tuple[Provider, str]]:
    file = folder / "tape.json"
    with Server(say("hel", "lo")) as server:
        environ = {"GROQ_API_KEY": "key", "GROQ_BASE_URL": server.url}
        yield RecordedProvider(file, "groq:m", mode="auto", environ=environ), "m"


@contextlib.contextmanager
def _daemons(folder: Path, model: str) -> Generator[tuple[Provider, str]]:
    with daemon_client(folder) as client:
        provider = RemoteProvider(client.connection, model=model, workspace=client.workspace)
        yield provider, model.partition(":")[2]


@contextlib.contextmanager
def _workers(folder: Path) -> Generator[tuple[Provider, str]]:
    scope = current.get()
    assert scope is not None
    yield RemoteProvider(scope.store.connection, model=f"scripted:{script(folder)}"), script(folder)


EVERYWHERE: dict[str, Callable[[Path], Way]] = {
    "call": lambda _: _given(CallableProvider(_hello)),
    "scripted": lambda _: _given(ScriptedProvider(["hello"], repeat=True)),
    "scripted file": lambda folder: _given(ScriptFiles(), script(folder)),
    "openai-compatible": _served,
    **{kind: lambda _, kind=kind: _on_wire(kind) for kind in WIRES},
    "recorded": _replayed,
    "local": lambda _: _given(LocalProvider(), "smollm2-135m"),
    "daemon, scripted": lambda folder: _daemons(folder, f"scripted:{script(folder)}"),
    "daemon, local": lambda folder: _daemons(folder, "local:smollm2-135m"),
}
WAYS = {"worker": _workers} if IN_WORKER in os.environ else EVERYWHERE
