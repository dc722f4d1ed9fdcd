"""Ask a person and wait for the answer: one question or several, a yes or no, or a form with typed fields.

Authors use ``runtime.ask``, ``confirm`` and ``form``. Whoever embeds OpenProgram answers with `answering`, a function of the `Ask` or a `Transport`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openprogram.agentic_programming.asking.asker import check_timeout, put
from openprogram.agentic_programming.asking.forms import Field, fields_of, questions_of
from openprogram.agentic_programming.asking.questions import Answer, Ask, Choice, Question
from openprogram.agentic_programming.asking.transports import Transport, answering, transport_for
from openprogram.errors import AskTimeout, UserDeclined
from openprogram.functions.gates import Approve
from openprogram.functions.tool import Arguments, Tool

__all__ = ["Answer", "Ask", "Choice", "Question", "Transport", "answering", "approver", "ask", "confirm", "form", "transport_for"]

APPROVAL_TIMEOUT_S = 300.0
LONGEST_SHOWN = 2000


async def ask(transport: Transport, prompt: str | None, options: Any, *, multi: bool, custom: bool, questions: Any, timeout: float | None, default: Any) -> Any:
    """See ``Runtime.ask``."""
    check_timeout(timeout)
    if questions is not None:
        if options is not None or multi or custom:
            raise TypeError("options, multi and custom belong to a single question; give each of questions= its own")
        fields, names = questions_of(questions)
        values, is_default = await put(transport, "ask", _text(prompt or ""), fields, timeout=timeout, default=default)
        return values if is_default or names is not None else list(values.values())
    if prompt is None:
        raise TypeError("there is nothing to ask: give a prompt or questions=")
    given = {"options": options, "multi": multi, "custom": custom, "default": default}
    spec = {key: value for key, value in given.items() if value is not None and value is not False and value is not ...}
    if default is None:
        spec["default"] = None
    field = Field("answer", {"prompt": _text(prompt), **spec}, "the question")
    values, is_default = await put(transport, "ask", prompt, [field], timeout=timeout, default=default)
    return values if is_default else values["answer"]


def _text(prompt: Any) -> str:
    if not isinstance(prompt, str):
        raise TypeError(f"a prompt is a text, not {prompt!r:.200}")
    return prompt


async def confirm(transport: Transport, prompt: str, *, default: bool, timeout: float | None) -> bool:
    """See ``Runtime.confirm``."""
    check_timeout(timeout)
    if not isinstance(default, bool):
        raise TypeError(f"the default of confirm is True or False, not {default!r}")
    field = Field("answer", {"type": bool, "prompt": _text(prompt), "default": default}, "the question")
    values, is_default = await put(transport, "confirm", prompt, [field], timeout=timeout, default=default)
    return values if is_default else values["answer"]


async def form(transport: Transport, prompt: str, fields: Any, *, timeout: float | None, default: Any) -> Any:
    """See ``Runtime.form``."""
    check_timeout(timeout)
    return (await put(transport, "form", _text(prompt), fields_of(fields), timeout=timeout, default=default))[0]


def approver(transport: Transport) -> Approve:
    """Asks the person about a tool call that needs approval; with nobody to answer it is refused."""

    async def approve(tool: Tool, arguments: Arguments, reason: str) -> str | None:
        if not transport.attached():
            return f"{tool.name} was not run: it needs the approval of a person, and nobody is there to give it"
        prompt = f"Run {tool.options.label or tool.name}({_shown(arguments.as_json)})?" + (f"\n{reason}" if reason else "")
        try:
            is_allowed = await confirm(transport, prompt, default=False, timeout=APPROVAL_TIMEOUT_S)
        except (UserDeclined, AskTimeout):
            is_allowed = False
        return None if is_allowed else f"{tool.name} was not run: a person was asked and did not allow it"

    return approve


def _shown(arguments: Mapping[str, Any]) -> str:
    from openprogram.store.values import redact

    text = ", ".join(f"{name}={value!r}" for name, value in redact(arguments).items())
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
