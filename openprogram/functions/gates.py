"""Which tools a model is offered, and which of its calls run.

The gates stand in this order: ``available_if`` (when a function is decorated), exposure (``as_tool``, ``register_globally``), the tool set, the source
(``unsafe_in``), availability (``requires_env``, ``can_use``), the lists of allowed and denied names, ``defer``; and at each call ``check_fn``, then
``requires_approval``. Each is asked only about what those before it let through.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

from openprogram.functions import registry
from openprogram.functions.tool import Arguments, Tool, tool_of

logger = logging.getLogger("openprogram.tools")

FULL, NONE, DEFAULT = "full", "none", "default"
Approve = Callable[[Tool, Arguments, str], Awaitable[str | None]]
"""Asks a person about a call, with a reason to show; returns None for yes, else why not."""


class Refused(Exception):
    """A call that a gate did not let through; the text is for the model."""


def toolset_names() -> list[str]:
    """Every name that ``toolset=`` knows."""
    own = {name for function in registry.registered() for name in function.options.toolset}
    return [FULL, NONE, *sorted(own | {DEFAULT})]


class Found(NamedTuple):
    """The tools that a call stands for: first the ``explicit`` ones, as many as that, then those of its sets. ``is_named``: it said which it wants."""

    tools: list[Tool]
    explicit: int
    is_named: bool


def tools_of(tools: Iterable[Any] | None, toolset: str | Iterable[str] | None) -> Found:
    """The tools that a call names; without a name, what is registered.

    Raises ValueError or TypeError for what is no tool or no set.
    """
    explicit = [_named(item) if isinstance(item, str) else tool_of(item) for item in _listed(tools)]
    if toolset is None:
        return Found(explicit, len(explicit), True) if tools is not None else Found(_of_sets([FULL]), 0, False)
    names = [toolset] if isinstance(toolset, str) else list(toolset)
    known = toolset_names()
    for name in names:
        if name not in known:
            raise ValueError(f"toolset {name!r} is unknown; known: {', '.join(known)}")
    held = {id(tool) for tool in explicit}
    return Found([*explicit, *(tool for tool in _of_sets(names) if id(tool) not in held)], len(explicit), True)


def _listed(tools: Any) -> list[Any]:
    if tools is None:
        return []
    if isinstance(tools, str | dict) or not isinstance(tools, Iterable):
        raise TypeError(f"tools is a list of tools, not {tools!r:.200}; put the tool into a list")
    return list(cast("Iterable[Any]", tools))


def _of_sets(names: Sequence[str]) -> list[Tool]:
    found = [function for function in registry.registered() if FULL in names or any(name in function.options.toolset for name in names)]
    return [function.tool for function in found]


def _named(name: str) -> Tool:
    found = [function for function in registry.registered() if function.tool_name == name]
    if not found:
        raise ValueError(f"no tool called {name!r} is registered{_guess(name, {function.tool_name for function in registry.registered()})}")
    if len(found) > 1:
        raise ValueError(f"{len(found)} tools are called {name!r}: {' and '.join(map(place_of, found))}; pass the function itself")
    return found[0].tool


def _guess(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def place_of(function: Any) -> str:
    """Where a function was defined, for messages."""
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"


def offered(
    tools: Sequence[Tool], *, explicit: int = 0, source: str | None = None, allow: Iterable[str] | None = None, deny: Iterable[str] | None = None
) -> list[Tool]:
    """The tools that pass the gates, in their order. The first ``explicit`` ones were passed by the author: one that no model can call is an error there.

    Raises ValueError for a name in ``allow`` or ``deny`` that no tool has, TypeError for a tool that no model can call.
    """
    allowed, denied = _names(tools, "tools_allow", allow), _names(tools, "tools_deny", deny)
    passed: list[Tool] = []
    for number, tool in enumerate(tools):
        is_explicit = number < explicit
        if source is not None and source in tool.options.unsafe_in:
            continue
        if reason := unavailable(tool):
            (logger.warning if is_explicit else logger.debug)("the tool %s is not offered: %s", tool.name, reason)
            continue
        if (allowed is not None and tool.name not in allowed) or (denied is not None and tool.name in denied):
            continue
        if tool.unfillable:
            if is_explicit:
                raise TypeError(f"tool {tool.name}: {tool.unfillable}")
            logger.debug("the tool %s is not offered: %s", tool.name, tool.unfillable)
            continue
        passed.append(tool)
    return passed


def _names(tools: Sequence[Tool], parameter: str, given: Any) -> set[str] | None:
    if given is None:
        return None
    names: list[Any] = [given] if isinstance(given, str) else list(given)
    held = {tool.name for tool in tools}
    known = held | {function.tool_name for function in registry.registered()}
    for name in names:
        if name not in known:
            raise ValueError(f"{parameter}: there is no tool {name!r}{_guess(str(name), known)}; known: {', '.join(sorted(known)) or 'none'}")
    return set(names)


def unavailable(tool: Tool) -> str:
    """Why a tool cannot be used here and now; empty when it can."""
    if missing := [name for name in tool.options.requires_env if not os.environ.get(name)]:
        return f"the environment variable {missing[0]} is not set"
    if tool.options.can_use is None:
        return ""
    try:
        return "" if tool.options.can_use() else "can_use says no"
    except Exception as error:  # the author's predicate
        return f"can_use raised {type(error).__name__}: {error}"


async def admit(tool: Tool, arguments: Arguments, approve: Approve) -> None:
    """The gates of one call. Raises Refused; what ``check_fn`` raises is a refusal too."""
    if tool.options.check_fn is not None:
        try:
            verdict = await _asked(tool.options.check_fn, tool, arguments)
        except Exception as error:
            raise Refused(f"{tool.name} was not run: its check failed with {type(error).__name__}: {error}") from error
        if not verdict:
            raise Refused(f"{tool.name} was not run: its check does not allow this call")
    wanted = tool.options.requires_approval
    if callable(wanted):
        wanted = await _asked(wanted, tool, arguments)
    if wanted:
        refusal = await approve(tool, arguments, wanted if isinstance(wanted, str) else "")
        if refusal is not None:
            raise Refused(refusal)


async def _asked(predicate: Callable[..., Any], tool: Tool, arguments: Arguments) -> Any:
    """The answer of a predicate about a call. It gets the arguments that it declares by name; a single parameter that no argument has gets all in a dict."""
    from openprogram.functions.signatures import signature_of

    values = arguments.values
    try:
        parameters = list(signature_of(predicate).parameters.values())
    except (TypeError, ValueError):  # a builtin that shows no signature
        parameters = []
    known = {item.name for item in tool.parameters or ()} | set(tool.parameters_schema.get("properties", {}))
    required = [item for item in parameters if item.default is item.empty and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
    if len(required) == 1 and required[0].name not in known:
        answer = predicate(dict(values))
    elif any(item.kind is item.VAR_KEYWORD for item in parameters):
        answer = predicate(**values)
    else:
        defaults = {item.name: item.default for item in tool.parameters or () if not item.required}
        given = {**defaults, **values}
        answer = predicate(**{item.name: given[item.name] for item in parameters if item.name in given and item.kind is not item.VAR_POSITIONAL})
    return await answer if inspect.isawaitable(answer) else answer
