"""What a Runtime can ask a person. The work is done in `openprogram.agentic_programming.asking`, loaded at the first question."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from openprogram.agentic_programming.asking.transports import Transport

T = TypeVar("T")

TIMEOUT_S = 300.0


class Asks:
    """``ask``, ``confirm`` and ``form``, each with an awaitable twin.

    All of them raise UserDeclined when the person would not answer, RuntimeError after ``close``, and TypeError or ValueError for a question that cannot be
    asked. ``timeout`` is in seconds, None for ever.
    """

    on_ask: Callable[..., Any] | Transport | None = None
    """Who answers: a function of the `Ask`, or a `Transport`. None: what `answering` or the host set, else the terminal if a person is there."""
    _closed = False

    def can_ask(self) -> bool:
        """Whether somebody is there to answer now."""
        return not self._closed and self._transport().attached()

    def ask(
        self,
        prompt: str | None = None,
        options: Any = None,
        *,
        multi: bool = False,
        custom: bool = False,
        questions: Any = None,
        timeout: float | None = TIMEOUT_S,
        default: Any = ...,
    ) -> Any:
        """The answer to one question: a text, or with ``options`` the one that was picked (``multi``: a list of them; ``custom``: also any other text).

        An option is a value, ``(label, description)`` or ``{"label", "value", "description"}``. ``questions`` puts several on one screen: a list of texts or
        dicts (``prompt``, ``options``, ``multi``, ``type``, …) gives a list of answers, a dict by name a dict. When nobody is there or answers in time,
        ``default`` comes back, also None; without one (``...``) AskTimeout is raised.
        """
        return self._asked(lambda: self.async_ask(prompt, options, multi=multi, custom=custom, questions=questions, timeout=timeout, default=default))

    async def async_ask(
        self,
        prompt: str | None = None,
        options: Any = None,
        *,
        multi: bool = False,
        custom: bool = False,
        questions: Any = None,
        timeout: float | None = TIMEOUT_S,
        default: Any = ...,
    ) -> Any:
        """`ask` on the caller's event loop; cancelling the task takes the question back."""
        from openprogram.agentic_programming import asking

        return await asking.ask(self._transport(), prompt, options, multi=multi, custom=custom, questions=questions, timeout=timeout, default=default)

    def confirm(self, prompt: str, default: bool = False, *, timeout: float | None = TIMEOUT_S) -> bool:
        """A yes or no; ``default`` when nobody is there or answers in time."""
        return self._asked(lambda: self.async_confirm(prompt, default, timeout=timeout))

    async def async_confirm(self, prompt: str, default: bool = False, *, timeout: float | None = TIMEOUT_S) -> bool:
        """`confirm` on the caller's event loop."""
        from openprogram.agentic_programming import asking

        return await asking.confirm(self._transport(), prompt, default=default, timeout=timeout)

    def form(self, prompt: str, fields: Any, *, timeout: float | None = TIMEOUT_S, default: Any = ...) -> Any:
        """The fields by name, of their declared types. A field is a type, a description (a text), a list of options or a dict with ``type``, ``prompt``,
        ``options``, ``multi``, ``custom``, ``default``, ``required``, ``placeholder``, ``multiline``, ``secret`` and ``check``, a function that says what is
        wrong with a value. An answer that does not fit is asked for again. ``default`` as in `ask`.
        """
        return self._asked(lambda: self.async_form(prompt, fields, timeout=timeout, default=default))

    async def async_form(self, prompt: str, fields: Any, *, timeout: float | None = TIMEOUT_S, default: Any = ...) -> Any:
        """`form` on the caller's event loop."""
        from openprogram.agentic_programming import asking

        return await asking.form(self._transport(), prompt, fields, timeout=timeout, default=default)

    def _transport(self) -> Transport:
        if self._closed:
            raise RuntimeError("this Runtime is closed; make a new one")
        from openprogram.agentic_programming.asking import transport_for

        return transport_for(self.on_ask)

    def _asked(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        from openprogram.agentic_programming.runtime.loop import run

        return run(make)
