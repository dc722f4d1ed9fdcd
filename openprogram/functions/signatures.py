"""The signature that a call of a callable must satisfy.

`inspect.signature` follows ``functools.wraps`` to the innermost function, whose parameters a wrapper may supply itself. So a wrapper that declares its
parameters counts by them (annotations that it leaves out are those of what it wraps), and one that takes ``*args`` or ``**kwargs`` counts by what it passes
them to.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature to call by. Raises TypeError or ValueError for what has none."""
    if inspect.ismethod(function):
        whole = signature_of(function.__func__)
        first = next(iter(whole.parameters.values()), None)
        return whole if first is None or first.kind in _OPEN else whole.replace(parameters=list(whole.parameters.values())[1:])
    inner = getattr(function, "__wrapped__", None)
    if inner is None or hasattr(function, "__signature__"):
        return inspect.signature(function)
    own = inspect.signature(function, follow_wrapped=False)
    if any(item.kind in _OPEN for item in own.parameters.values()):
        return signature_of(inner)
    declared = signature_of(inner).parameters
    return own.replace(parameters=[_annotated(item, declared.get(item.name)) for item in own.parameters.values()])


def _annotated(item: inspect.Parameter, declared: inspect.Parameter | None) -> inspect.Parameter:
    return item if declared is None or item.annotation is not inspect.Parameter.empty else item.replace(annotation=declared.annotation)
