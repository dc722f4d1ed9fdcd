"""What a client asks, as data: method, params and what of the result is handed back. The sync and the async client send the same ones."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar, cast

from openprogram_protocol import admin, dag, runs

T = TypeVar("T")


class Call(NamedTuple, Generic[T]):
    """A request and how its result is read."""

    method: str
    params: Any
    read: Callable[[Any], T]


def _whole(result: Any) -> Any:
    return result


def new_run_id() -> str:
    """128 random bits: an operation repeated under its id is never carried out twice."""
    return os.urandom(16).hex()


def run(
    workspace: str,
    function: str,
    args: dict[str, Any] | None,
    run_id: str,
    session: str | None = None,
    model: str | None = None,
    workdir: str | None = None,
    deadline_s: float | None = None,
) -> list[tuple[str, Any]]:
    """Start a run and wait for it: two requests, sent together, so that a run costs one round trip. Raises ValueError for NaN and infinity."""
    _check_finite(args or {}, "args")
    params = runs.RunParams(
        run_id=run_id,
        function=function,
        workspace=workspace,
        args=args or {},
        session=session,
        model=model,
        workdir=workdir,
        deadline_s=deadline_s,
    )
    return [("openprogram/run", params), ("openprogram/result", runs.ResultParams(run_id=run_id))]


def arguments(workspace: str, function: str, words: list[runs.Word], command: str, timeout_s: float | None) -> Call[runs.ArgumentsResult]:
    params = runs.ArgumentsParams(workspace=workspace, function=function, words=words, command=command, timeout_s=timeout_s)
    return Call("openprogram/arguments", params, _whole)


def _check_finite(value: Any, path: str) -> None:
    """The encoder would write null."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path} is {value}, which JSON cannot hold; pass None or a string instead")
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            _check_finite(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[Any]", value)):
            _check_finite(item, f"{path}[{index}]")


def result(run_id: str, timeout_s: float | None) -> Call[runs.RunInfo]:
    return Call("openprogram/result", runs.ResultParams(run_id=run_id, timeout_s=timeout_s), _whole)


def cancel(run_id: str, grace_s: float) -> Call[runs.CancelResult]:
    return Call("openprogram/cancel", runs.CancelParams(run_id=run_id, grace_s=grace_s), _whole)


def listed_runs(active: bool, limit: int) -> Call[list[runs.RunInfo]]:
    return Call("openprogram/runs", runs.RunsParams(active=active, limit=limit), attrgetter("runs"))


def functions(workspace: str) -> Call[admin.FunctionsResult]:
    return Call("openprogram/functions", admin.FunctionsParams(workspace=workspace), _whole)


def function(workspace: str, name: str) -> Call[admin.FunctionResult]:
    return Call("openprogram/function", admin.FunctionParams(workspace=workspace, function=name), _whole)


def sessions(limit: int, offset: int) -> Call[list[dag.SessionInfo]]:
    return Call("openprogram/sessions", dag.SessionsParams(limit=limit, offset=offset), attrgetter("sessions"))


def nodes(session: str, after: int, limit: int) -> Call[list[dag.Node]]:
    return Call("openprogram/dag/nodes", dag.NodesParams(session=session, after=after, limit=limit), attrgetter("nodes"))


def node(node_id: str, prompt: bool) -> Call[dag.NodeDetail]:
    return Call("openprogram/dag/node", dag.NodeParams(id=node_id, prompt=prompt), _whole)


def status() -> Call[admin.StatusResult]:
    return Call("openprogram/status", admin.Nothing(), _whole)
