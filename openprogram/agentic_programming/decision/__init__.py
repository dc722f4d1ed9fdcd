"""Let a model choose what happens next.

`make(prompt, options)` asks for one pick and resolves it into the result of the next step: a function is run, a value returned. The choice is the branch;
there is no ``if`` to write. ``runtime.exec(..., choices=options)`` does the same at the end of a whole turn, and `resolve_decision` with a reply that is
there already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openprogram.errors import DecisionError

if TYPE_CHECKING:
    from openprogram.agentic_programming.decision.check import Pick
    from openprogram.agentic_programming.decision.menu import DECISION_FINISH_INSTRUCTION
    from openprogram.agentic_programming.decision.options import Menu, Value

__all__ = [
    "DECISION_FINISH_INSTRUCTION",
    "DecisionError",
    "amake",
    "extract_action",
    "make",
    "parse_args",
    "render_options",
    "resolve_decision",
    "value",
]


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
    """The last pick in a reply as ``{"call": name, "args": {...}}``, unchecked; None when there is none. Raises TypeError for what is no text."""
    from openprogram.agentic_programming.decision.reply import extract_action

    return extract_action(_text(text))


def make(prompt: Any, options: Any, *, runtime: Any = None, context: Mapping[str, Any] | None = None, max_retries: int = 1) -> Any:
    """Ask the model to pick one of ``options`` and return the result of the pick: a function's return value (an async one is awaited), or the value.

    ``prompt`` is a text or a list of content blocks, where blocks of ``role: assistant`` are worked examples. ``options`` is ``{name: handler}`` or a list;
    ``context`` fills the parameters that the model does not see. ``max_retries`` is how often a reply that is no valid pick is asked again. Raises
    DecisionError when the model never picks validly; ValueError or TypeError for a bad menu or a context that lacks what an option needs, before any model
    call; RuntimeError without a runtime.
    """
    menu = _checked(options, context, max_retries)
    return _runtime("decision.make", runtime).decide(prompt, menu, context=context, max_retries=max_retries)


async def amake(prompt: Any, options: Any, *, runtime: Any = None, context: Mapping[str, Any] | None = None, max_retries: int = 1) -> Any:
    """`make` for async code."""
    menu = _checked(options, context, max_retries)
    return await _runtime("decision.amake", runtime).adecide(prompt, menu, context=context, max_retries=max_retries)


def parse_args(reply: str, options: Any, runtime: Any = None, *, context: Mapping[str, Any] | None = None, max_retries: int = 1) -> tuple[Any, dict[str, Any]]:
    """What a reply picks of ``options``: ``(function, arguments)``, or ``(name, fields)`` for a value and a schema. Nothing is run.

    The arguments of a function are of the annotated types, with those filled that the model does not see. A reply that is no valid pick is asked again on
    ``runtime`` (None: the ambient one). Raises as `make` does; RuntimeError only when there is something to ask and no runtime.
    """
    from openprogram.agentic_programming.decision.resolve import arguments_of

    pick, runtime = _pick("decision.parse_args", reply, _checked(options, context, max_retries), runtime, max_retries)
    chosen = pick.option.handler if pick.option.kind == "function" else pick.option.name
    return chosen, arguments_of(pick, runtime=runtime, context=context)


def resolve_decision(
    reply: str,
    menu: Any,
    value_table: Mapping[str, Any] | None = None,
    runtime: Any = None,
    *,
    context: Mapping[str, Any] | None = None,
    max_retries: int = 1,
) -> Any:
    """The result of what a reply picks: the function's return value, the value, or ``{"decision": name, **fields}`` for a schema.

    ``menu`` is a dict or list of options; a value that it names is looked up in ``value_table``, and is the option's own where that has none. The rest is as
    in `parse_args`.
    """
    from openprogram.agentic_programming.runtime import picking

    checked = _checked(menu, context, max_retries)
    pick, runtime = _pick("decision.resolve_decision", reply, checked, runtime, max_retries)
    if pick.option.kind == "value" and value_table is not None and pick.option.name in value_table:
        return value_table[pick.option.name]
    return picking.result(pick, runtime=runtime, context=context)


def _pick(caller: str, reply: str, menu: Menu, runtime: Any, max_retries: int) -> tuple[Pick, Any]:
    """The pick of a reply, and the runtime for what it fills: the ambient one, or None, when none was given."""
    from openprogram.agentic_programming.decision.check import ParseProblem, pick_from
    from openprogram.context.scope import _current_runtime  # pyright: ignore[reportPrivateUsage] - the name is documented

    try:
        return pick_from(_text(reply), menu), runtime if runtime is not None else _current_runtime.get()
    except ParseProblem:
        asked = _runtime(caller, runtime)
    return asked.settle(reply, menu, max_retries=max_retries), asked


def _text(reply: Any) -> str:
    if not isinstance(reply, str):
        raise TypeError(f"a reply is a text (a str), not {reply!r:.80}")
    return reply


def _runtime(caller: str, given: Any) -> Any:
    from openprogram.agentic_programming.ambient import runtime_for

    return runtime_for(caller, given)


def _checked(options: Any, context: Mapping[str, Any] | None, max_retries: Any) -> Menu:
    if not isinstance(max_retries, int) or isinstance(max_retries, bool) or max_retries < 0:
        raise ValueError(f"max_retries counts re-asks: a whole number of at least 0, not {max_retries!r}")
    from openprogram.agentic_programming.decision.options import checked_menu

    return checked_menu(options, context)
