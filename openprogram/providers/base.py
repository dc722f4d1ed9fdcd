"""The provider seam: stream one model request.

A provider turns a `ModelRequest` into events; it knows nothing of tools, decisions, retries or the DAG. The history of a request is a `History`, not a list: an
in-process provider renders it with `ModelRequest.messages`, a remote one sends only its name and lets the daemon render it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from openprogram.context.messages import Message

JSONSchema = dict[str, Any]


class History(Protocol):
    """What a model call sees of the past; ``node`` is the llm node whose ``reads`` names it (None when nothing is recorded)."""

    @property
    def node(self) -> str | None: ...

    def messages(self) -> Sequence[Message]:
        """The history, rendered."""
        ...


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a model sees it; ``parameters`` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: JSONSchema


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings that travel with a request; None leaves the provider's default."""

    temperature: float | None = None
    max_output_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """An output format that a capable provider enforces while decoding: a JSON Schema, or a GBNF ``grammar`` where the profile allows one."""

    schema: JSONSchema | None = None
    grammar: str | None = None
    name: str = "output"


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model. ``new`` are the messages that this call adds to ``history``."""

    model: str
    new: tuple[Message, ...]
    history: Any = None
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    constraint: Constraint | None = None
    response_format: dict[str, Any] | None = None
    settings: ModelSettings = ModelSettings()
    session_id: str | None = None

    def messages(self) -> list[Message]:
        """History and new messages in order, without the system part."""
        past = [] if self.history is None else list(self.history.messages())
        return [*past, *self.new]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one or more requests."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_create: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read=self.cache_read + other.cache_read,
            cache_create=self.cache_create + other.cache_create,
        )

    def as_dict(self) -> dict[str, int]:
        """The documented shape of ``Runtime.last_usage``."""
        return {**msgspec.structs.asdict(self), "total_tokens": self.input_tokens + self.output_tokens}


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """A piece of the reply."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking"):
    """A piece of the model's reasoning."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """A complete tool call; ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag="finish"):
    """The end of a reply, exactly one, last. ``reason`` is ``stop``, ``length``, ``tool_calls``, ``content_filter`` or ``refusal``."""

    reason: str = "stop"
    usage: Usage | None = None


ModelEvent = TextDelta | ThinkingDelta | ToolCall | Finish


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a model can do, as far as the loop cares.

    ``two_step_pick``: a decision is asked in two requests (the name, then that option's arguments), which small models do far better. ``situational_line``:
    a model inside a function is told which function that is.
    """

    tools: bool = True
    schema: bool = False
    grammar: bool = False
    images: bool = False
    two_step_pick: bool = False
    situational_line: bool = True
    context_window: int | None = None


@runtime_checkable
class Provider(Protocol):
    """Streams one model request."""

    @property
    def name(self) -> str: ...

    def profile(self, model: str) -> Profile:
        """What that model can do."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Events of one reply, ending in one `Finish`. Closing the iterator stops the request.

        Raises LLMError (``retryable`` says whether the same request may succeed later); TypeError and NotImplementedError for a programming mistake.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and processes; may be called twice."""
        ...
