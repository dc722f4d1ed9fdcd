"""Pick → the result of the next step: a function is run, a value returned as it is, a schema's fields come back under the option's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from openprogram.agentic_programming.decision.check import Pick
from openprogram.functions.schema import RUNTIME_PARAMETERS


def bind(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Callable[[], Any]:
    """A picked function with everything it needs: the model's arguments, context-filled and runtime parameters; positional-only ones by position."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for parameter in pick.option.parameters:
        if parameter.name in RUNTIME_PARAMETERS:
            value = runtime
        elif parameter.source == "context":
            if context is None or parameter.name not in context:
                if parameter.required:
                    raise ValueError(f"option {pick.option.name!r} needs {parameter.name!r} from context=, which does not hold it")
                continue
            value = context[parameter.name]
        elif parameter.name in pick.values:
            value = pick.values[parameter.name]
        else:
            continue
        if parameter.keyword:
            keywords[parameter.name] = value
        else:
            positional.append(value)
    return lambda: pick.option.handler(*positional, **keywords)


def result_of(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Any:
    """The result of the next step; an awaitable when the picked function is async."""
    if pick.option.kind == "function":
        return bind(pick, runtime=runtime, context=context)()
    if pick.option.kind == "schema":
        return {"decision": pick.option.name, **pick.arguments}
    return pick.option.handler


async def aresult_of(pick: Pick, *, runtime: Any, context: Mapping[str, Any] | None) -> Any:
    """Like `result_of`, with an async function awaited."""
    result = result_of(pick, runtime=runtime, context=context)
    return await result if pick.option.kind == "function" and inspect.isawaitable(result) else result
