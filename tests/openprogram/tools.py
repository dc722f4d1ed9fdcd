"""Models that call tools, for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from openprogram import Runtime
from openprogram.context.messages import Block
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, TextDelta, ToolCall
from openprogram.providers.scripted import Reply, ScriptedProvider


def calling(*calls: tuple[str, Any], text: str = "", reason: str = "tool_calls") -> list[ModelEvent]:
    """A reply that calls tools: ``(name, arguments)``, the arguments as JSON text or as what becomes it."""
    made = [ToolCall(f"call_{number}", name, given if isinstance(given, str) else json.dumps(given)) for number, (name, given) in enumerate(calls)]
    return [*([TextDelta(text)] if text else []), *made, Finish(reason=reason)]


def scripted(*replies: Reply, **options: Any) -> tuple[Runtime, ScriptedProvider]:
    """A runtime on a script, and the script."""
    provider = ScriptedProvider(replies, **options)
    return Runtime(provider=provider), provider


def results(request: ModelRequest) -> list[Block]:
    """The tool results that a request ends with."""
    last = request.new[-1]
    assert last.role == "tool"
    return list(last.blocks)


def result_of(tool: Any, arguments: Any, name: str | None = None, **options: Any) -> Block:
    """What a model is told that called the tool once."""
    from openprogram.functions.tool import tool_of

    runtime, provider = scripted(calling((name or tool_of(tool).wire_name, arguments)), "done")
    assert runtime.exec("?", tools=[tool], **options) == "done"
    (block,) = results(provider.requests[-1])
    return block


def names(request: ModelRequest) -> Sequence[str]:
    """The tools that a request offers."""
    return [tool.name for tool in request.tools]
