"""Pick → the result of the next step: a function is run, a value returned as it is, a schema's fields come back under the option's name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from openprogram.agentic_programming.decision.check import Pick
from openprogram.agentic_programming.decision.options import check_context


def arguments_of(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of a pick by name: the model's, and for a function those filled from ``context`` and with the runtime.

    Raises ValueError when ``context`` does not hold what it must.
    """
    check_context(pick.option, context)
    arguments = dict(pick.values)
    for parameter in pick.option.parameters:
        name = parameter.name
        if parameter.source == "runtime":
            arguments[name] = runtime
        elif parameter.source == "context" and context is not None and name in context:
            arguments[name] = context[name]
    return arguments


def result_of(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Any:
    """The result of the next step; an awaitable when the picked function is async."""
    if pick.option.kind == "function":
        keywords = arguments_of(pick, runtime=runtime, context=context)
        # A positional-only one that is left out holds its place, so that those after it keep theirs.
        positional = [keywords.pop(item.name, item.default) for item in pick.option.parameters if not item.keyword]
        return pick.option.handler(*positional, **keywords)
    if pick.option.kind == "schema":
        return {"decision": pick.option.name, **pick.values}
    return pick.option.handler


async def aresult_of(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Any:
    """Like `result_of`, with an async function awaited."""
    result = result_of(pick, runtime=runtime, context=context)
    return await result if pick.option.kind == "function" and inspect.isawaitable(result) else result
