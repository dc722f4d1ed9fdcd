"""A runtime that answers from a script, and the words of a prompt."""

from __future__ import annotations

from typing import Any

from openprogram import Runtime
from openprogram.context.messages import Message, text_of
from openprogram.providers.scripted import Reply, ScriptedProvider


def scripted(*replies: Reply, **options: Any) -> tuple[Runtime, ScriptedProvider]:
    """A runtime on a script, and the script."""
    provider = ScriptedProvider(replies, **options)
    return Runtime(provider=provider), provider


def shown(messages: list[Message]) -> str:
    """All text of a prompt."""
    return "\n".join(text_of(message) for message in messages)
