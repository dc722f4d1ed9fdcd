"""``METHODS``: the one list of what may be asked of whom. The TypeScript types and docs/protocol.md are generated from it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from openprogram_protocol import admin, dag, model, runs, worker

Direction = Literal["C→D", "D→C", "D→W", "W→D"]


class Method(NamedTuple):
    """A row. ``result`` None marks a notification."""

    params: type[Any]
    result: type[Any] | None
    direction: Direction = "C→D"


METHODS: dict[str, Method] = {
    "openprogram/connect": Method(runs.ConnectParams, runs.ConnectResult),
    "openprogram/workspace/open": Method(runs.WorkspaceParams, runs.WorkspaceResult),
    "openprogram/workspace/trust": Method(runs.TrustParams, runs.WorkspaceResult),
    "openprogram/subscribe": Method(admin.SubscribeParams, admin.SubscribeResult),
    "openprogram/unsubscribe": Method(admin.UnsubscribeParams, admin.Nothing),
    "openprogram/arguments": Method(runs.ArgumentsParams, runs.ArgumentsResult),
    "openprogram/run": Method(runs.RunParams, runs.RunStarted),
    "openprogram/result": Method(runs.ResultParams, runs.RunInfo),
    "openprogram/cancel": Method(runs.CancelParams, runs.CancelResult),
    "openprogram/runs": Method(runs.RunsParams, runs.RunsResult),
    "openprogram/model/stream": Method(model.StreamParams, model.StreamResult),
    "openprogram/model/cancel": Method(model.CancelStream, None),
    "openprogram/model/profile": Method(model.ProfileParams, model.ProfileResult),
    "openprogram/model/events": Method(model.ModelEvents, None, "D→C"),
    "openprogram/dag/append": Method(dag.AppendParams, dag.NodeResult),
    "openprogram/dag/update": Method(dag.UpdateParams, dag.NodeResult),
    "openprogram/dag/opened": Method(dag.AppendParams, None),
    "openprogram/dag/closed": Method(dag.UpdateParams, None),
    "openprogram/dag/messages": Method(dag.MessagesParams, dag.MessagesResult),
    "openprogram/dag/node": Method(dag.NodeParams, dag.NodeDetail),
    "openprogram/dag/nodes": Method(dag.NodesParams, dag.NodesResult),
    "openprogram/dag/frame": Method(dag.FrameParams, dag.FrameResult),
    "openprogram/sessions": Method(dag.SessionsParams, dag.SessionsResult),
    "openprogram/session/create": Method(dag.SessionCreateParams, dag.SessionInfo),
    "openprogram/functions": Method(admin.FunctionsParams, admin.FunctionsResult),
    "openprogram/function": Method(admin.FunctionParams, admin.FunctionResult),
    "openprogram/status": Method(admin.Nothing, admin.StatusResult),
    "openprogram/stop": Method(admin.StopParams, admin.Nothing),
    "openprogram/event/run": Method(admin.RunEvent, None, "D→C"),
    "openprogram/event/dag": Method(admin.DagEvent, None, "D→C"),
    "openprogram/event/functions": Method(admin.FunctionsEvent, None, "D→C"),
    "openprogram/event/status": Method(admin.StatusEvent, None, "D→C"),
    "openprogram/worker/load": Method(worker.LoadParams, worker.LoadResult, "D→W"),
    "openprogram/worker/arguments": Method(worker.WorkerArguments, worker.WorkerArgumentsRead, "D→W"),
    "openprogram/worker/run": Method(worker.WorkerRunParams, None, "D→W"),
    "openprogram/worker/cancel": Method(worker.WorkerCancel, None, "D→W"),
    "openprogram/worker/done": Method(worker.WorkerDone, None, "W→D"),
}
