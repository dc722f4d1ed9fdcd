"""Put questions and wait: for an answer that fits, a refusal, the end of the time, or for nobody.

A question is a node (role ``code``, the name of its kind) and so is each answer (role ``user``, called by the question). The question's node enters its frame
when it is answered, so that later model calls know what was asked and said; a secret answer is not stored.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, cast

import msgspec

from openprogram.agentic_programming.asking.forms import Field, read_all
from openprogram.agentic_programming.asking.questions import Answer, Ask, Kind, Question
from openprogram.agentic_programming.asking.transports import Transport
from openprogram.context import scope as scopes
from openprogram.context.scope import OpenCall
from openprogram.errors import AskTimeout, UsageError, UserDeclined
from openprogram.store.redaction import REDACTED
from openprogram.store.values import redact, snapshot

MOST_ATTEMPTS = 20


def check_timeout(timeout: Any) -> float | None:
    """Seconds to wait, None for as long as it takes. Raises ValueError."""
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0):
        raise ValueError(f"timeout is a number of seconds above 0, or None to wait for ever, not {timeout!r}")
    return timeout


async def put(transport: Transport, kind: Kind, prompt: str, fields: list[Field], *, timeout: float | None, default: Any) -> tuple[Any, bool]:
    """The values by name; ``default`` (``...``: there is none) and True when nobody answers in time or nobody is there. Raises UserDeclined, AskTimeout."""
    questions = tuple(field.question for field in fields)
    node = _open(kind, prompt, questions)
    deadline = None if timeout is None else time.time() + timeout
    ask = Ask(id=f"ask-{os.urandom(8).hex()}", kind=kind, prompt=prompt, questions=questions, deadline=deadline, node=node.id)
    try:
        values = await _waited(transport, ask, fields, node, timeout)
    except AskTimeout as error:
        if default is ...:
            node.fail(error)
            raise
        node.finish("completed", _stored(default, questions), enters=True, metadata={"outcome": "default", "why": str(error)})
        return default, True
    except BaseException as error:
        node.fail(error)
        raise
    shown = values[questions[0].name] if len(questions) == 1 and kind != "form" else values
    node.finish("completed", _stored(shown, questions), enters=True, metadata={"outcome": "accept"})
    return values, False


async def _waited(transport: Transport, ask: Ask, fields: list[Field], node: OpenCall, timeout: float | None) -> dict[str, Any]:
    if not transport.attached():
        raise _nobody(ask)
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            for _ in range(MOST_ATTEMPTS):
                answer = await transport.put(ask)
                if answer.outcome == "absent":
                    raise _nobody(ask)
                values, problems = read_all(fields, answer) if answer.outcome == "accept" else ({}, {})
                _record(node, ask, answer, problems)
                if answer.outcome == "decline":
                    raise UserDeclined(f"the question was declined: {ask.prompt}")
                if not problems:
                    return values
                ask = msgspec.structs.replace(ask, problems=problems, given=answer.values)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AskTimeout(f"nobody answered within {timeout:g} seconds: {ask.prompt}") from None
    wrong = "; ".join(f"{name}: {problem}" for name, problem in ask.problems.items())
    raise UsageError(f"{MOST_ATTEMPTS} answers in a row did not fit the question {ask.prompt!r:.80}: {wrong}")


def _nobody(ask: Ask) -> AskTimeout:
    ways = "run it in a terminal, with `openprogram run --local` for instance, set runtime.on_ask, or pass default="
    return AskTimeout(f"nobody is attached who could answer: {ask.prompt} ({ways})")


def _open(kind: str, prompt: str, questions: tuple[Question, ...]) -> OpenCall:
    shown: dict[str, Any] = {"prompt": prompt}
    for question in questions:
        asked: Any = [option.label for option in question.options] or None
        if len(questions) == 1 and kind != "form":
            shown |= {"options": asked} if asked and kind == "ask" else {}
        else:
            shown[question.name] = {"prompt": question.prompt, "options": asked} if asked else question.prompt
    return scopes.open_call("code", kind, snapshot(shown), metadata={"expose": "io", "asks": True})


def _record(node: OpenCall, ask: Ask, answer: Answer, problems: dict[str, str]) -> None:
    """What the person said is a node of its own, beneath the question, and not in the log: the question's own entry says it."""
    scope = scopes.current.get()
    if scope is None or node.id is None:
        return
    given: dict[str, Any] = {name: REDACTED if _is_secret(ask.questions, name) else value for name, value in answer.values.items()}
    said = given[ask.questions[0].name] if len(given) == 1 and ask.kind != "form" and ask.questions[0].name in given else redact(given)
    token = scopes.current.set(msgspec.structs.replace(scope, caller=node.id, transcript=True))
    try:
        metadata: dict[str, Any] = {"ask": ask.id, "outcome": answer.outcome}
        opened = scopes.open_call("user", "answer", snapshot(said), metadata=metadata)
        opened.finish("completed", None, enters=False, metadata={"problems": problems} if problems else {})
    finally:
        scopes.current.reset(token)


def _is_secret(questions: tuple[Question, ...], name: str) -> bool:
    return any(question.name == name and question.secret for question in questions)


def _stored(values: Any, questions: tuple[Question, ...]) -> Any:
    if len(questions) == 1 and questions[0].secret:
        return REDACTED
    if not isinstance(values, dict):
        return values
    given = cast("dict[str, Any]", values)
    return redact({name: REDACTED if _is_secret(questions, name) else value for name, value in given.items()})
