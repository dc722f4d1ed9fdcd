"""Local models: the OpenAI-compatible provider plus the launcher of a model host.

One host process per model file, started at the first request for it and shared by all loops and threads. A host that dies fails the requests it was serving,
retryably; the next request starts another. Nothing is loaded or started by making a `LocalProvider`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from openprogram.errors import LLMError, NoModelError, Reason, UnknownModelError
from openprogram.providers import local_schema, weights
from openprogram.providers.base import Constraint, ModelEvent, ModelRequest, ModelSettings, Profile
from openprogram.providers.host_process import ModelHost, check_engine

if TYPE_CHECKING:
    from openprogram.providers.openai_chat import OpenAIChatProvider

CONTEXT_WINDOW = 4096
PROFILE = Profile(tools=False, schema=True, grammar=True, images=False, two_step_pick=True, situational_line=False, context_window=CONTEXT_WINDOW)

_DEATH_NOTICE_S = 1.0  # a broken connection is seen a moment before the end of the process that caused it
_MAX_OUTPUT_TOKENS = 1024  # a small model may never stop by itself
_BROKEN = frozenset({Reason.CONNECTION, Reason.TIMEOUT, Reason.PROTOCOL})


class LocalProvider:
    """Models on this machine: ``smollm2-135m`` or the path of any GGUF file, with or without ``local:`` before it.

    ``on_progress`` is told in a sentence when a model starts to load and when it is ready; without it that goes to the log at INFO.
    """

    name = "local"

    def __init__(self, *, on_progress: Callable[[str], None] | None = None) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._hosts: dict[Path, _Served] = {}

    def profile(self, model: str) -> Profile:
        return PROFILE

    def host(self, model: str) -> ModelHost:
        """The host that serves the model, launched but perhaps still loading. Raises NoModelError or UnknownModelError."""
        return self._served(model).host

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        served = self._served(request.model)
        chat = await served.chat()
        try:
            async with aclosing(chat.stream(with_defaults(request))) as events:
                async for event in events:
                    yield event
        except LLMError as error:
            if error.reason in _BROKEN and await served.died():
                raise _death(served.host, request.model) from error
            raise

    async def aclose(self) -> None:
        """End the hosts. A later request starts another."""
        with self._lock:
            served = list(self._hosts.values())
            self._hosts.clear()
        for one in served:
            await one.aclose()

    def _served(self, model: str) -> _Served:
        path = model_file(model)
        with self._lock:
            served = self._hosts.get(path)
            if served is None or not served.host.usable:
                served = self._hosts[path] = _Served(path, self._on_progress)
            served.host.launch()
            return served


class _Served:
    """A host and the client that speaks to it."""

    def __init__(self, path: Path, on_progress: Callable[[str], None] | None) -> None:
        self.host = ModelHost(path, context=CONTEXT_WINDOW, on_progress=on_progress)
        self._lock = threading.Lock()
        self._chat: OpenAIChatProvider | None = None

    async def chat(self) -> OpenAIChatProvider:
        """The client, once the model is loaded. Raises NoModelError, ConfigurationError or LLMError."""
        from openprogram.providers.openai_chat import OpenAIChatProvider

        endpoint = await asyncio.wrap_future(self.host.launch())
        with self._lock:
            if self._chat is None:
                self._chat = OpenAIChatProvider(endpoint.address, endpoint.key, name="local", profile=PROFILE, environ={})
            return self._chat

    async def died(self) -> bool:
        """Whether the process is gone, or going."""
        try:
            await asyncio.wait_for(asyncio.wrap_future(self.host.exited), _DEATH_NOTICE_S)
        except TimeoutError:
            return False
        return True

    async def aclose(self) -> None:
        self.host.close()
        if self._chat is not None:
            await self._chat.aclose()
        if self.host.ours:
            await asyncio.wrap_future(self.host.exited)


def model_file(model: str) -> Path:
    """The file of a model's name. Raises NoModelError if it is known but not installed, UnknownModelError if it is neither known nor a path."""
    name = model.removeprefix("local:") or weights.DEFAULT
    if name == "default":
        name = weights.DEFAULT
    if name in weights.KNOWN:
        path = weights.path_of(name)
        if path is None:
            check_engine()
            raise NoModelError(f"the model local:{name} is not installed; run: openprogram models install")
        return path
    if name.lower().endswith(".gguf") or "/" in name or os.sep in name:
        return Path(name).expanduser().absolute()
    raise UnknownModelError(f"there is no local model {name!r}; known: {', '.join(sorted(weights.KNOWN))}, or the path of a .gguf file")


def with_defaults(request: ModelRequest) -> ModelRequest:
    """A constrained answer is the likeliest one; free text varies a little, since small models otherwise repeat themselves."""
    settings = request.settings
    temperature = 0.0 if request.constraint is not None else 0.2
    filled = ModelSettings(
        temperature=temperature if settings.temperature is None else settings.temperature,
        max_output_tokens=settings.max_output_tokens or _MAX_OUTPUT_TOKENS,
        seed=settings.seed,
        stop=settings.stop,
    )
    return msgspec.structs.replace(request, settings=filled, constraint=_with_ends(request.constraint))


def _with_ends(constraint: Constraint | None) -> Constraint | None:
    """A schema as a grammar in which everything ends: a small model may otherwise fill a string until the token limit cuts the JSON."""
    if constraint is None or constraint.schema is None:
        return constraint
    grammar = local_schema.grammar_of(constraint.schema)
    return constraint if grammar is None else Constraint(grammar=grammar, name=constraint.name)


def _death(host: ModelHost, model: str) -> LLMError:
    return LLMError(f"{host.obituary()}; the next request starts a new one", reason=Reason.SERVER, retryable=True, provider="local", model=model)
