"""Let a model choose what happens next.

`make(prompt, options)` asks for one pick and resolves it into the result of the next step: a function is run, a value returned. The choice is the branch;
there is no ``if`` to write. ``runtime.exec(..., choices=options)`` does the same at the end of a whole turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openprogram.context.scope import _current_runtime  # pyright: ignore[reportPrivateUsage] - the name is documented
from openprogram.errors import DecisionError

if TYPE_CHECKING:
    from openprogram.agentic_programming.decision.menu import DECISION_FINISH_INSTRUCTION
    from openprogram.agentic_programming.decision.options import Value

__all__ = ["DECISION_FINISH_INSTRUCTION", "DecisionError", "amake", "extract_action", "make", "render_options", "value"]


def __getattr__(name: str) -> Any:
    if name == "DECISION_FINISH_INSTRUCTION":
        from openprogram.agentic_programming.decision.menu import DECISION_FINISH_INSTRUCTION

        return DECISION_FINISH_INSTRUCTION
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def value(x: Any, description: str | None = None) -> Value:
    """Mark ``x`` as a value option, whatever it is: a tuple, a class and any callable can then be one."""
    from openprogram.agentic_programming.decision.options import Value

    return Value(x, description)


def render_options(options: Any) -> str:
    """The menu as text, as `make` appends it to a prompt. Raises ValueError or TypeError for a bad menu."""
    from openprogram.agentic_programming.decision.menu import render
    from openprogram.agentic_programming.decision.options import build_menu

    return render(build_menu(options))


def extract_action(text: str) -> dict[str, Any] | None:
    """The last pick in a reply as ``{"call": name, "args": {...}}``, unchecked; None when there is none."""
    from openprogram.agentic_programming.decision.reply import extract_action

    return extract_action(text)


def make(prompt: Any, options: Any, *, runtime: Any = None, context: Mapping[str, Any] | None = None, max_retries: int = 1) -> Any:
    """Ask the model to pick one of ``options`` and return the result of the pick: a function's return value (an async one is awaited), or the value.

    ``prompt`` is a text or a list of content blocks, where blocks of ``role: assistant`` are worked examples. ``options`` is ``{name: handler}`` or a list;
    ``context`` fills the parameters that the model does not see. ``max_retries`` is how often a reply that is no valid pick is asked again. Raises
    DecisionError when the model never picks validly; ValueError or TypeError for a bad menu or a context that lacks what an option needs, before any model
    call; RuntimeError without a runtime.
    """
    from openprogram.agentic_programming.decision.options import checked_menu

    return _runtime(runtime).decide(prompt, checked_menu(options, context), context=context, max_retries=_checked(max_retries))


async def amake(prompt: Any, options: Any, *, runtime: Any = None, context: Mapping[str, Any] | None = None, max_retries: int = 1) -> Any:
    """`make` for async code."""
    from openprogram.agentic_programming.decision.options import checked_menu

    return await _runtime(runtime).adecide(prompt, checked_menu(options, context), context=context, max_retries=_checked(max_retries))


def _runtime(runtime: Any) -> Any:
    runtime = runtime if runtime is not None else _current_runtime.get()
    if runtime is None:
        raise RuntimeError(
            "decision.make found no runtime: declare a parameter runtime=None on the @agentic_function around it (it fills itself), or pass runtime= explicitly"
        )
    return runtime


def _checked(max_retries: Any) -> int:
    if not isinstance(max_retries, int) or isinstance(max_retries, bool) or max_retries < 0:
        raise ValueError(f"max_retries counts re-asks: a whole number of at least 0, not {max_retries!r}")
    return max_retries
