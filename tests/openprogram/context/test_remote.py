"""Context over the daemon's store: what was sent can be made anew from there, room is made there, and one branch is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from openprogram import Runtime, agentic_function, session
from openprogram.context.messages import text_of
from openprogram.context.view import prompt_of
from openprogram.errors import StoreError
from openprogram.providers.base import ModelRequest, Profile
from openprogram.providers.openai_messages import chat_messages, encoded_messages
from openprogram.providers.scripted import ScriptedProvider
from openprogram.providers.wire import json_bytes
from tests.openprogram.context.support import asked, raw
from tests.support.daemons import daemon_store

PROFILE = Profile(context_window=2000)


def answer(request: ModelRequest) -> str:
    """A reply, when the request was seen to be written alike in both ways."""
    assert b"".join(encoded_messages(request, PROFILE).pieces) == json_bytes(chat_messages(request, PROFILE))
    return "notes" if text_of(request.new[-1]).startswith("Summarize") else "reply"


@agentic_function
def inside(number: int, runtime: Runtime) -> str:
    """Ask inside."""
    return runtime.exec(f"inside {number}")


@agentic_function
def around(runtime: Runtime) -> str:
    """Ask and call, until the window is full and beyond."""
    for number in range(14):
        runtime.exec(f"turn {number} {'x' * 400}")
        inside(number, runtime)
    return runtime.exec("last")


def test_prompts_follow_from_the_daemons_store(tmp_path: Path) -> None:
    """Frames nested and compacted, over a connection: every prompt is made anew byte for byte, and a session that goes on sees what was."""
    provider = ScriptedProvider([answer], repeat=True, profile=PROFILE)
    runtime = Runtime(provider=provider, max_retries=1)
    with daemon_store(tmp_path) as store:
        with session("s", store=store) as recorded:
            around(runtime)
        with session("s", store=store):
            runtime.exec("and now")
        nodes = recorded.nodes()
        assert sorted(raw(prompt_of(store, node)) for node in asked(recorded)) == sorted(map(raw, provider.prompts))
        assert {node.status for node in nodes} == {"completed"}
        assert [node.name for node in nodes].count("compaction") > 1
        assert text_of(provider.prompts[-1][0]) == "around() returned reply"
        with pytest.raises(StoreError, match="main branch of a session only"):
            recorded.fork()
