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
    """A tool as a model sees it; ``parameters`` is a JSON Schema of an object. ``strict`` asks that arguments are held to it, where the provider can."""

    name: str
    description: str
    parameters: JSONSchema
    strict: bool = False


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings that travel with a request; None leaves the provider's default.

    ``thinking`` is ``off``, ``low``, ``medium``, ``high`` or ``xhigh``; ``web_search`` lets the provider search the web by itself; ``extra`` is merged into the
    request's body as it is, for what has no name here.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    thinking: str | None = None
    web_search: bool = False
    extra: dict[str, Any] = {}


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
    """Tokens of one or more requests, counted alike for every provider.

    ``input_tokens`` is the whole prompt: ``cache_read`` and ``cache_create`` are parts of it. ``output_tokens`` is all that was generated: ``reasoning_tokens``
    is a part of it. ``cost`` is in US dollars, None where no price is known.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_create: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read=self.cache_read + other.cache_read,
            cache_create=self.cache_create + other.cache_create,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=sum(costs) if costs else None,
        )

    def as_dict(self) -> dict[str, Any]:
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


class Opaque(msgspec.Struct, frozen=True, tag="opaque"):
    """What a provider wants back unchanged in the next request, such as a signed thought: a block of the assistant's message, see `block`.

    ``calls`` is how many tool calls came before it in the reply, so that it can be put back in its place among them.
    """

    provider: str
    model: str
    data: Any
    calls: int = 0

    def block(self) -> dict[str, Any]:
        """The content block that keeps it; other providers and models leave it out."""
        return {"type": "opaque", "provider": self.provider, "model": self.model, "data": self.data, "calls": self.calls}


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag="finish"):
    """The end of a reply, exactly one, last. ``reason`` is ``stop``, ``length``, ``tool_calls``, ``content_filter`` or ``refusal``."""

    reason: str = "stop"
    usage: Usage | None = None


ModelEvent = TextDelta | ThinkingDelta | ToolCall | Opaque | Finish


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars per million tokens. Cached input costs ``cache_read`` and ``cache_create``; None: as much as other input."""

    input: float
    output: float
    cache_read: float | None = None
    cache_create: float | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a model can do, as far as the loop and the wires care.

    ``schema``: its output can be held to a JSON Schema, of the kind that ``schema_dialect`` says (see `openprogram.providers.schemas`). ``thinking`` says how
    it is asked to think (``effort``, ``budget``, ``adaptive``, ``level``; None: it cannot be asked) and ``thinking_off`` what asks it not to. ``sampling``: it
    takes a temperature.
    ``two_step_pick``: a decision is asked in two requests (the name, then that option's arguments), which small models do far better. ``situational_line``: a
    model inside a function is told which function that is.
    """

    tools: bool = True
    parallel_tools: bool = True
    schema: bool = False
    schema_dialect: str = ""
    grammar: bool = False
    images: bool = False
    audio: bool = False
    video: bool = False
    web_search: bool = False
    sampling: bool = True
    thinking: str | None = None
    thinking_off: str | None = None
    two_step_pick: bool = False
    situational_line: bool = True
    context_window: int | None = None
    max_output_tokens: int | None = None
    price: Price | None = None


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
