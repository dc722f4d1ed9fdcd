"""Branches and loops whose condition a model judges, on top of decisions.

An answer is read as a pick and never searched for words, and where there is no valid answer an error is raised: nothing here falls back to a default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from openprogram.agentic_programming import decision
from openprogram.agentic_programming.ambient import runtime_for
from openprogram.errors import CheckFailedError

if TYPE_CHECKING:
    from openprogram.agentic_programming.runtime import Runtime

__all__ = ["CheckFailedError", "conditional", "route", "validate_and_retry"]


def route(question: str, options: Any, context: str = "", *, runtime: Runtime | None = None, max_retries: int = 1) -> Any:
    """Put ``question`` to the model and return the result of the option that it picks.

    ``options`` are those of `decision.make`: a picked function is run, a value returned, a plain name stands for itself. ``context`` is a text that is shown
    with the question. Raises DecisionError when there is no valid pick, and what `decision.make` raises for bad options or without a runtime.
    """
    return _decide("route", f"{_text('question', question)}\nPick the one option that fits.", options, context, runtime, max_retries)


def conditional(condition: str, context: str = "", if_true: Any = None, if_false: Any = None, *, runtime: Runtime | None = None, max_retries: int = 1) -> Any:
    """Ask the model whether ``condition`` holds and return the result of the branch that it takes.

    A branch is whatever `decision.make` takes as a handler: a function is run, any other value returned. A branch of None gives the answer itself, True or
    False. ``context`` is a text to judge the condition by. Raises DecisionError when the model answers neither yes nor no.
    """
    options = {"yes": _branch(if_true, True, "The statement is true."), "no": _branch(if_false, False, "The statement is false.")}
    question = f"Is this statement true? {_text('condition', condition)}\nPick yes or no."
    return _decide("conditional", question, options, context, runtime, max_retries)


def validate_and_retry(
    action: Callable[[], Any], check: Callable[[Any], Any] | str, retry: Callable[..., Any], max_retries: int = 2, *, runtime: Runtime | None = None
) -> Any:
    """The first result that passes ``check``: that of ``action()``, else of ``retry``, which is called up to ``max_retries`` times.

    ``check(result)`` returns a true value when the result is good; a false value, or a text that says what is wrong, when it is not. As a text, ``check`` is a
    statement about the result that the model judges. ``retry`` is given the result and what was wrong with it, as far as it takes arguments: ``(result,
    problem)``, ``(result)`` or none. All three may be async. Raises CheckFailedError, with the last result, when none passes; what they raise is passed on.
    """
    if not isinstance(max_retries, int) or isinstance(max_retries, bool) or max_retries < 0:
        raise ValueError(f"max_retries counts calls of retry: a whole number of at least 0, not {max_retries!r}")
    taken = _taken_by(retry)
    if not callable(action) or not (callable(check) or isinstance(check, str)):
        raise TypeError(
            f"action is a function without arguments and check a function of its result, or a statement about it; not {action!r:.80}, {check!r:.80}"
        )
    result = _done(action())
    problem = _problem(check, result, runtime)
    for _ in range(max_retries):
        if not problem:
            break
        result = _done(retry(*(result, problem)[:taken]))
        problem = _problem(check, result, runtime)
    if problem:
        message = f"no result passed the check in {max_retries + 1} attempt(s): {problem}. The last one: {result!r:.300}"
        raise CheckFailedError(message, result=result, problem=problem)
    return result


def _decide(name: str, question: str, options: Any, context: str, runtime: Runtime | None, max_retries: int) -> Any:
    if not isinstance(context, str):
        raise TypeError(f"context of {name} is a text that is shown to the model, not {context!r:.80}")
    prompt = f"{context}\n\n{question}" if context.strip() else question
    return decision.make(prompt, options, runtime=runtime_for(name, runtime), max_retries=max_retries)


def _text(name: str, text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise TypeError(f"{name} is a non-empty text, not {text!r:.80}")
    return text


def _branch(handler: Any, answer: bool, description: str) -> Any:
    if isinstance(handler, tuple):
        return cast("Any", handler)  # it brings a description of its own
    return (answer if handler is None else handler, description)


def _taken_by(retry: Any) -> int:
    """How many of (result, problem) are to be passed."""
    if not callable(retry):
        raise TypeError(f"retry is a function of the result and what was wrong with it, not {retry!r:.80}")
    try:
        signature = inspect.signature(retry)
    except ValueError:  # a builtin that does not tell
        return 2
    for count in (2, 1, 0):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise TypeError(f"retry takes the result and what was wrong with it, the result alone, or nothing; {retry!r:.80} wants something else")


def _problem(check: Callable[[Any], Any] | str, result: Any, runtime: Runtime | None) -> str:
    """What is wrong with a result; empty when nothing is."""
    if isinstance(check, str):
        shown = result if isinstance(result, str) else repr(result)
        return "" if conditional(check, shown, runtime=runtime) else f"this is not true of it: {check}"
    verdict = _done(check(result))
    if isinstance(verdict, str):
        return verdict
    return "" if verdict else "it did not pass the check"


def _done(outcome: Any) -> Any:
    """An outcome, awaited if it must be."""
    if not inspect.isawaitable(outcome):
        return outcome
    from openprogram.agentic_programming.runtime.picking import waited

    return waited(outcome)
