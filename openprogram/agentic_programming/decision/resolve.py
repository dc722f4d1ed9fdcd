"""Pick → the result of the next step: a function is run, a value returned as it is, a schema's fields come back under the option's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from openprogram.agentic_programming.decision.check import Pick
from openprogram.agentic_programming.decision.options import check_context


def bind(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Callable[[], Any]:
    """A picked function with everything it needs: the model's arguments, context-filled and runtime parameters; positional-only ones by position.

    Raises ValueError when ``context`` does not hold what it must.
    """
    check_context(pick.option, context)
    positional: list[Any] = []
    keywords = dict(pick.values)
    for parameter in pick.option.parameters:
        name = parameter.name
        if parameter.source == "runtime":
            keywords[name] = runtime
        elif parameter.source == "context" and context is not None and name in context:
            keywords[name] = context[name]
        if not parameter.keyword:
            # One that is left out holds its place, so that those after it keep theirs.
            positional.append(keywords.pop(name, parameter.default))
    return lambda: pick.option.handler(*positional, **keywords)


def result_of(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Any:
    """The result of the next step; an awaitable when the picked function is async."""
    if pick.option.kind == "function":
        return bind(pick, runtime=runtime, context=context)()
    if pick.option.kind == "schema":
        return {"decision": pick.option.name, **pick.values}
    return pick.option.handler


async def aresult_of(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Any:
    """Like `result_of`, with an async function awaited."""
    result = result_of(pick, runtime=runtime, context=context)
    return await result if pick.option.kind == "function" and inspect.isawaitable(result) else result
