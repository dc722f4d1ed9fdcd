"""The tools of one exec: what was named, or what the program registered, through the gates into a toolbox."""

from __future__ import annotations

from typing import Any

from openprogram.agentic_programming.agent_loop import Tooling, checked_choice
from openprogram.agentic_programming.asking import approver, transport_for
from openprogram.agentic_programming.runtime.offer import Offer
from openprogram.context import scope as scopes
from openprogram.errors import UsageError
from openprogram.functions.gates import offered, tools_of
from openprogram.functions.tool import Tool
from openprogram.functions.toolbox import Toolbox


def tooling_for(runtime: Any, offer: Offer, *, has_tools: bool) -> Tooling | None:
    """None where the model is offered no tools. ``has_tools`` says whether the model takes any.

    Raises ValueError or TypeError for tools, sets, names or a choice that cannot be; UsageError for named tools on a model that takes none.
    """
    _check_counts(offer.parallel, offer.max_iterations)
    found = tools_of(offer.tools, offer.toolset)
    tools = found.tools
    if not found.is_named:
        tools = [tool for tool in tools if not _is_running(tool)] if has_tools else []
    passed = offered(tools, explicit=found.explicit, source=offer.source, allow=offer.allow, deny=offer.deny)
    toolbox = Toolbox(passed, recall=_recalled)
    choice = checked_choice(offer.choice, toolbox)
    if not toolbox:
        return None
    if not has_tools:
        names = ", ".join(tool.name for tool in passed)
        raise UsageError(f"this model takes no tools, and the call names some ({names}); pass tools=[], or choose a model that takes them")
    return Tooling(
        toolbox=toolbox,
        choice=choice,
        parallel=offer.parallel,
        max_iterations=offer.max_iterations,
        runtime=runtime,
        approve=approver(transport_for(runtime.on_ask)),
    )


def _check_counts(parallel_tool_calls: Any, max_iterations: Any) -> None:
    if not isinstance(parallel_tool_calls, bool):
        raise TypeError(f"parallel_tool_calls is True or False, not {parallel_tool_calls!r}")
    if not isinstance(max_iterations, int) or isinstance(max_iterations, bool):
        raise TypeError(f"max_iterations is a whole number of model requests, not {max_iterations!r}")


def _is_running(tool: Tool) -> bool:
    """Whether the tool is a function around this call: it is offered to the model inside it only when the author names it."""
    return id(getattr(tool.function, "__wrapped__", None)) in scopes.depth.get()


def _recalled(node_id: str) -> Any:
    """A result that an earlier call of this session kept."""
    scope = scopes.current.get()
    node = None if scope is None else scope.store.node(node_id)
    return node.output if node is not None and scope is not None and node.session == scope.session and "tool_call" in node.metadata else None
