"""The seam between a question and the person who answers: put it, and wait for the answer.

Who answers is decided when the question is asked: the runtime's own ``on_ask``, else what `answering` or the host around it set, else a terminal with a person
at it, else nobody. A put that is cancelled withdraws the question at once.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, cast, runtime_checkable

from openprogram.agentic_programming.asking.questions import Answer, Ask
from openprogram.errors import UsageError, UserDeclined
from openprogram.threads import in_thread


@runtime_checkable
class Transport(Protocol):
    """Puts questions to somebody."""

    def attached(self) -> bool:
        """Whether somebody is there to answer now."""
        ...

    async def put(self, ask: Ask) -> Answer:
        """The answer. Several questions may be out at once; cancelling takes this one back."""
        ...


_transport: ContextVar[Transport | None] = ContextVar("openprogram_transport", default=None)


class Callback:
    """Answers by a function of the `Ask`, sync (run in a thread) or async.

    It returns the answer to a single question, a list or dict of answers to several, or an `Answer`; it raises UserDeclined to decline.
    """

    def __init__(self, fn: Callable[[Ask], Any]) -> None:
        self._fn = fn

    def attached(self) -> bool:
        return True

    async def put(self, ask: Ask) -> Answer:
        try:
            if inspect.iscoroutinefunction(self._fn):
                value = await self._fn(ask)
            else:
                value = await in_thread(lambda: self._fn(ask), name="openprogram-ask")
                value = await value if inspect.isawaitable(value) else value
        except UserDeclined:
            return Answer(outcome="decline")
        return _answer(ask, value)


def _answer(ask: Ask, value: Any) -> Answer:
    if isinstance(value, Answer):
        return value
    names = [question.name for question in ask.questions]
    if isinstance(value, Mapping) and (ask.kind == "form" or len(names) > 1 or names[0] in value):
        given = cast("Mapping[str, Any]", value)
        if unknown := [name for name in given if name not in names]:
            raise UsageError(f"the answer to {ask.prompt!r:.80} names {unknown[0]!r}, which was not asked; asked was: {', '.join(names)}")
        return Answer(values=dict(given))
    if len(names) == 1:
        return Answer(values={names[0]: value})
    items = list(cast("list[Any]", value)) if isinstance(value, list | tuple) else []
    if len(items) != len(names):
        raise UsageError(f"the answer to {len(names)} questions is a list of as many answers or a dict by name ({', '.join(names)}), not {value!r:.200}")
    return Answer(values=dict(zip(names, items, strict=True)))


def as_transport(given: Any) -> Transport:
    """A transport, or a function of the `Ask` as one. Raises TypeError for anything else."""
    if isinstance(given, Transport):
        return given
    if callable(given):
        return Callback(given)
    raise TypeError(f"questions are answered by a function of the Ask or a Transport, not {given!r:.200}")


@contextlib.contextmanager
def answering(by: Any) -> Generator[None]:
    """Let ``by``, a function of the `Ask` or a `Transport`, answer what is asked inside; None: nobody."""
    token = _transport.set(_Nobody() if by is None else as_transport(by))
    try:
        yield
    finally:
        _transport.reset(token)


class _Nobody:
    def attached(self) -> bool:
        return False

    async def put(self, ask: Ask) -> Answer:
        return Answer(outcome="absent")


def transport_for(on_ask: Any) -> Transport:
    """Who answers a question that is asked now."""
    if on_ask is not None:
        return as_transport(on_ask)
    if (found := _transport.get()) is not None:
        return found
    from openprogram.agentic_programming.asking.terminal import TERMINAL

    return TERMINAL
