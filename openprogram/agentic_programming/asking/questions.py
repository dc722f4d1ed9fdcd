"""A question as it is put to a person, wherever that person sits: plain data, which can cross a process.

What an answer means in Python stays with the asker (see `forms`); here is only what somebody needs who shows a question and takes the answer.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["ask", "confirm", "form"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One of the options of a question; its ``label`` is the answer that picks it."""

    label: str
    description: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question or field. ``schema`` is the JSON Schema of its answer.

    ``options`` are what may be picked, with ``multi`` several of them, with ``custom`` also anything else in words. Without an answer the ``default`` holds
    where there is one (``has_default``); where there is none and it is not ``required``, nothing. ``secret`` is not shown while it is typed, nor stored.
    """

    name: str
    prompt: str
    schema: dict[str, Any]
    options: tuple[Choice, ...] = ()
    multi: bool = False
    custom: bool = False
    required: bool = True
    has_default: bool = False
    default: Any = None
    placeholder: str = ""
    multiline: bool = False
    secret: bool = False


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is put to a person on one screen.

    ``id`` is unique. ``deadline`` is in seconds since the epoch, None for none. When an answer did not fit, it is put again: ``problems`` says
    by question what was wrong, ``given`` is the whole answer. ``node`` is the node of the session that records it.
    """

    id: str
    kind: Kind
    prompt: str
    questions: tuple[Question, ...]
    deadline: float | None = None
    problems: dict[str, str] = {}
    given: dict[str, Any] = {}
    node: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: ``accept`` with JSON values by question, ``decline`` when the person would not, ``absent`` when nobody is there any more."""

    outcome: Literal["accept", "decline", "absent"] = "accept"
    values: dict[str, Any] = {}
