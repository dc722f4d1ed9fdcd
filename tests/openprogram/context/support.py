"""What the tests of prompts and nodes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from openprogram import Runtime
from openprogram.agentic_programming.session import Session
from openprogram.context.call import Call
from openprogram.context.messages import Message, text_of
from openprogram.context.view import prompt_of
from openprogram.providers.base import Profile
from openprogram.providers.scripted import Reply, ScriptedProvider
from openprogram.store.base import Store
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore

QUIET = Profile(situational_line=False)

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "store.sqlite3"),
}


def scripted(*replies: Reply, profile: Profile = QUIET, repeat: bool = False) -> tuple[Runtime, ScriptedProvider]:
    """A runtime on a script, one attempt per request, and the script's record of what it was shown."""
    provider = ScriptedProvider(replies, profile=profile, repeat=repeat)
    return Runtime(provider=provider, max_retries=1), provider


def echoing(profile: Profile = QUIET) -> tuple[Runtime, ScriptedProvider]:
    """A runtime whose model answers ``reply to …`` with the last text it was shown."""
    return scripted(lambda request: f"reply to {text_of(request.new[-1])}", profile=profile, repeat=True)  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType, reportUnknownArgumentType]


def texts(messages: Iterable[Message]) -> list[str]:
    """Messages as ``role: text``."""
    return [f"{message.role}: {text_of(message)}" for message in messages]


def raw(messages: Iterable[Message]) -> bytes:
    """Messages as the bytes that a provider would send."""
    return msgspec.json.encode(list(messages))


def asked(session: Session) -> list[Call]:
    """The model calls of a session, in order."""
    return [node for node in session.nodes() if node.role == "llm"]


def named(session: Session, name: str) -> Call:
    """The one node of that name."""
    (node,) = [node for node in session.nodes() if node.name == name]
    return node


def reproduced(store: Store, session: Session) -> list[bytes]:
    """The prompt of every model call, made anew from the store."""
    return [raw(prompt_of(store, node)) for node in asked(session)]


def statuses(session: Session) -> dict[str, Any]:
    """Function name → status of its node."""
    return {node.name: node.status for node in session.nodes() if node.role == "code"}
