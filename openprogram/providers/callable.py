"""A user's own function as a provider: ``Runtime(call=fn)`` and subclasses that override ``_call``.

The function receives one flat list of content blocks: the system text if one is set, the history (text blocks with their ``role``), then this turn's blocks
exactly as the author wrote them. Nothing else is added.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from openprogram.context.fragments import flat_blocks
from openprogram.context.messages import Block
from openprogram.errors import NoModelError
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, Profile, TextDelta
from openprogram.threads import in_thread

answering: contextvars.ContextVar[ModelRequest | None] = contextvars.ContextVar("openprogram_answering", default=None)
"""The request that the function which runs here is answering, see `Runtime.history`."""

PROFILE = Profile(tools=False, situational_line=False)


class CallableProvider:
    """Answers with ``fn(content, model, response_format)``, sync (run in a thread) or async; parameters that the function does not take are left out."""

    name = "call"

    def __init__(self, fn: Callable[..., Any], *, with_history: bool = True) -> None:
        self._fn = fn
        self._with_history = with_history
        self._accepted = _accepted_keywords(fn)

    def profile(self, model: str) -> Profile:
        return PROFILE

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        keywords = {"model": request.model, "response_format": request.response_format}
        content = flat_content(request) if self._with_history else [block for message in request.new for block in message.blocks]
        outer = answering.get()
        answering.set(request)
        try:
            reply = await self._answer(content, {key: value for key, value in keywords.items() if self._accepted is None or key in self._accepted})
        finally:
            answering.set(outer)
        if not isinstance(reply, str):
            raise TypeError(f"the call= function returned {type(reply).__name__}, not the reply's text (a str): {reply!r:.200}")
        yield TextDelta(reply)
        yield Finish()

    async def _answer(self, content: list[Block], keywords: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._fn):
            return await self._fn(content, **keywords)
        reply = await in_thread(lambda: self._fn(content, **keywords))
        return await reply if inspect.isawaitable(reply) else reply

    async def aclose(self) -> None:
        return None


class MissingProvider:
    """Stands where no provider was configured, so that a Runtime can be made and says at the first call what it lacks."""

    name = "none"

    def __init__(self, model: str) -> None:
        self._model = model

    def profile(self, model: str) -> Profile:
        return Profile()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        raise NotImplementedError(
            f"Runtime(model={self._model!r}) has nothing to call: pass call=, use a 'provider:model' string such as 'local:smollm2-135m', or override _call()"
        )
        yield Finish()  # unreachable: makes this an async generator, as the seam wants

    async def aclose(self) -> None:
        return None


def flat_content(request: ModelRequest) -> list[Block]:
    """History and turn as the flat list that a ``call=`` function is promised."""
    system: list[Block] = [{"type": "text", "text": request.system, "role": "system"}] if request.system else []
    return [*system, *past_content(request), *(block for message in request.new for block in message.blocks)]


def past_content(request: ModelRequest) -> list[Block]:
    """The history as flat blocks, each text block with its role."""
    history = request.history
    if history is None:
        return []
    return history.blocks() if hasattr(history, "blocks") else flat_blocks(history.messages())


def _accepted_keywords(fn: Callable[..., Any]) -> set[str] | None:
    """The keyword names that ``fn`` takes besides the content, None for any."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    positional = [parameter for parameter in parameters if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    if not positional and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        raise NoModelError("a call= function takes the content blocks as its first parameter: def fn(content, model, response_format): …")
    taken = {parameter.name for parameter in positional[1:]}
    return taken | {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
