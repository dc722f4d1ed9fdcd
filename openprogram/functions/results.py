"""A tool's result or failure as the text that a model is sent: never empty, never longer than its cap, cut where the cut can be seen."""

from __future__ import annotations

from typing import Any, cast

from openprogram.functions.options import DEFAULT_HEAD_RATIO, DEFAULT_MAX_RESULT_CHARS, ToolOptions

NOTHING = "(no output)"
LONGEST_ERROR = 2000


class NotJSON(TypeError):
    """A result that JSON cannot hold."""


def text_of(value: Any) -> str:
    """A result in words: a text as it is, anything else as JSON, nothing as words that say so. Raises NotJSON."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value if value.strip() else NOTHING
    import pydantic_core

    try:
        return pydantic_core.to_json(value, inf_nan_mode="constants", by_alias=True, bytes_mode="base64").decode()
    except (pydantic_core.PydanticSerializationError, ValueError, TypeError, RecursionError):
        pass
    try:  # a lone surrogate, which no UTF-8 holds, is no reason to lose the rest
        return _in_ascii(value)
    except (TypeError, ValueError, RecursionError) as error:
        why = "it holds itself or is nested too deeply" if isinstance(error, RecursionError) or "ircular" in str(error) else f"{error}"
        raise NotJSON(f"the result is a {type(value).__name__}, which JSON cannot hold ({why:.200})") from None


def _in_ascii(value: Any) -> str:
    import json

    return json.dumps(value)


def capped(text: str, options: ToolOptions, *, kept_as: str | None = None) -> str:
    """The text, or its head and tail when it is over the cap. ``kept_as`` is the id under which the whole can be read back."""
    cap = options.max_result_chars or DEFAULT_MAX_RESULT_CHARS
    if len(text) <= cap:
        return text
    ratio = DEFAULT_HEAD_RATIO if options.head_ratio is None else options.head_ratio
    head = int(cap * ratio)
    tail = cap - head
    hint = f"; read_result(id={kept_as!r}, start={head}) shows more" if kept_as else ""
    mark = f"\n… [{len(text) - cap} characters left out{hint}] …\n"
    return f"{text[:head]}{mark}{text[len(text) - tail :] if tail else ''}"


def error_text(error: BaseException) -> str:
    """An exception for a model: its type and message, the members of a group too; at most 2,000 characters."""
    try:
        message = str(error).strip()
    except Exception:  # an exception whose own text fails
        message = ""
    name = type(error).__name__
    text = f"{name}: {message}" if message else name
    if isinstance(error, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", error).exceptions
        text += "".join(f"\n- {error_text(member)}" for member in members[:10])
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}… [{len(text) - LONGEST_ERROR} characters left out]"
