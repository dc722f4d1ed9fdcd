"""From a reply to the result of its pick: what every door to a decision shares.

A reply that holds no valid pick is followed by a question that shows what was wrong, as often as re-asks are left; each is a turn and a node of its own. The
picked function runs where the caller is, with the runtime that was asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any

from openprogram.agentic_programming.decision.check import ParseProblem, Pick
from openprogram.agentic_programming.decision.options import Menu, checked_menu
from openprogram.agentic_programming.decision.resolve import aresult_of, result_of
from openprogram.agentic_programming.runtime.content import question_of
from openprogram.agentic_programming.runtime.turn import Reply, read
from openprogram.errors import DecisionError
from openprogram.providers.base import Usage

HEAD = 300
TAIL = 500


def menu_and_question(choices: Any, content: Any, context: Mapping[str, Any] | None) -> tuple[Menu, str]:
    """The menu of a call, and the question that a re-ask repeats. Raises ValueError or TypeError for a bad menu."""
    return checked_menu(choices, context), question_of(content)


def reply_of(text: str, menu: Menu) -> Reply:
    """A reply that was not asked for here, read like any other."""
    return read(Reply(text=text, finish_reason="stop", usage=Usage()), menu, text)


def next_question(replies: list[Reply], question: str, retries: int) -> str:
    """The text of the next re-ask; raises DecisionError when none is left."""
    last, problem = replies[-1], replies[-1].problem
    assert problem is not None
    if len(replies) <= retries:
        return retry_text(question, last.text, problem)
    head = last.text[:HEAD]
    message = f"the model made no valid pick in {len(replies)} attempt(s), {problem.kind}: {problem}. The last reply began: {head!r}"
    nodes = tuple(reply.node for reply in replies if reply.node)
    raise DecisionError(message, kind=problem.kind, path=problem.path, reply=head, attempts=len(replies), node_ids=nodes)


def retry_text(question: str, reply: str, problem: ParseProblem) -> str:
    """What a model is shown when its reply was no valid pick: the question, the tail of its reply, what was wrong; the menu follows."""
    tail = reply if len(reply) <= TAIL else f"…{reply[-TAIL:]}"
    parts = [question, f"Your last reply was:\n{tail or '(empty)'}", f"It is no valid pick: {problem}\nPick again."]
    return "\n\n".join(part for part in parts if part)


def result(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Any:
    """The result of a pick; that of an async function is awaited on the background loop."""
    outcome = result_of(pick, runtime=runtime, context=context)
    if pick.option.kind != "function" or not inspect.isawaitable(outcome):
        return outcome
    return waited(outcome)


async def aresult(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Any:
    """`result` on the caller's loop."""
    return await aresult_of(pick, runtime=runtime, context=context)


def waited(outcome: Awaitable[Any]) -> Any:
    """What an awaitable gives, awaited on the background loop."""
    from openprogram.agentic_programming.runtime.loop import run

    return run(lambda: _awaited(outcome))


async def _awaited(outcome: Awaitable[Any]) -> Any:
    return await outcome
