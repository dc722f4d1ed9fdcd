"""``llm(prompt)``: one plain request to the model of the surroundings, for the places where a program wants words and no decision.

It is an `exec` of the ambient runtime like any other: it sees the history of its frame and is a node of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from openprogram.agentic_programming.ambient import runtime_for

if TYPE_CHECKING:
    from openprogram.agentic_programming.runtime import Runtime
    from openprogram.agentic_programming.runtime.retry import RetryInfo
    from openprogram.providers.base import ModelSettings


def llm(
    prompt: Any,
    *,
    system: str | None = None,
    model: str | None = None,
    runtime: Runtime | None = None,
    timeout_s: float | None = None,
    on_retry: Callable[[RetryInfo], object] | None = None,
    model_settings: ModelSettings | Mapping[str, Any] | None = None,
) -> str:
    """The model's reply to ``prompt``, a text or a list of content blocks. No tools, no choices.

    ``system`` is added to the system text of the surroundings; the rest is as in ``Runtime.exec``. Raises RuntimeError where there is no ambient runtime and
    none is given, LLMError when the request fails for good, TypeError or ValueError for bad content.
    """
    content = _content(prompt, system)
    return runtime_for("llm", runtime).exec(content, model=model, tools=[], timeout_s=timeout_s, on_retry=on_retry, model_settings=model_settings)


async def allm(
    prompt: Any,
    *,
    system: str | None = None,
    model: str | None = None,
    runtime: Runtime | None = None,
    timeout_s: float | None = None,
    on_retry: Callable[[RetryInfo], object] | None = None,
    model_settings: ModelSettings | Mapping[str, Any] | None = None,
) -> str:
    """`llm` for async code."""
    content = _content(prompt, system)
    return await runtime_for("allm", runtime).async_exec(content, model=model, tools=[], timeout_s=timeout_s, on_retry=on_retry, model_settings=model_settings)


def _content(prompt: Any, system: str | None) -> Any:
    if system is None:
        return prompt
    if not isinstance(system, str):
        raise TypeError(f"system= of llm is a text, not {system!r:.80}")
    blocks: list[Any] = [*cast("list[Any]", prompt)] if isinstance(prompt, list | tuple) else [prompt]
    return [{"type": "text", "role": "system", "text": system}, *blocks]
