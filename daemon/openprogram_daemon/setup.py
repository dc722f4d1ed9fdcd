"""Which handler answers which method; the only place that says so."""

from __future__ import annotations

from typing import Any

from openprogram_protocol.errors import ErrorCode

from openprogram_daemon.core import Core
from openprogram_daemon.errors import RefusedError
from openprogram_daemon.handlers import admin, dag, model, runs, workspace
from openprogram_daemon.peer import Worker, WorkerPeer
from openprogram_daemon.session import Handler

# A worker reaches the two seams of the library, and nothing that would start or stop anything.
SEAMS: dict[str, Handler] = {
    "openprogram/model/stream": model.stream,
    "openprogram/model/cancel": model.cancel,
    "openprogram/model/profile": model.profile,
    "openprogram/dag/append": dag.append,
    "openprogram/dag/update": dag.update,
    "openprogram/dag/opened": dag.opened,
    "openprogram/dag/closed": dag.closed,
    "openprogram/dag/messages": dag.messages,
    "openprogram/dag/node": dag.node,
    "openprogram/dag/nodes": dag.nodes,
    "openprogram/dag/frame": dag.frame,
    "openprogram/sessions": dag.sessions,
    "openprogram/session/create": dag.create_session,
}

HANDLERS: dict[str, Any] = {
    **SEAMS,
    "openprogram/connect": admin.connect,
    "openprogram/workspace/open": workspace.open_workspace,
    "openprogram/workspace/trust": workspace.trust,
    "openprogram/subscribe": admin.subscribe,
    "openprogram/unsubscribe": admin.unsubscribe,
    "openprogram/arguments": workspace.arguments,
    "openprogram/run": runs.run,
    "openprogram/result": runs.result,
    "openprogram/cancel": runs.cancel,
    "openprogram/runs": runs.runs,
    "openprogram/functions": workspace.functions,
    "openprogram/function": workspace.function,
    "openprogram/status": admin.status,
    "openprogram/stop": admin.stop,
}


class Workers:
    """Answers workers; a worker is known here from its first request to its death."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._peers: dict[int, WorkerPeer] = {}

    async def dispatch(self, worker: Worker, method: str, params: Any) -> Any:
        """The reply to a request of a worker, sent behind what it wrote. Raises what the handler raises, RefusedError for a method that workers do not have."""
        handler = SEAMS.get(method)
        if handler is None:
            raise RefusedError(ErrorCode.METHOD_NOT_FOUND, f"workers cannot ask for {method}")
        peer = self._peer(worker)
        result = await handler(self._core, peer, params)
        await peer.committed()
        return result

    def _peer(self, worker: Worker) -> WorkerPeer:
        peer = self._peers.get(id(worker))
        if peer is None:
            peer = self._peers[id(worker)] = WorkerPeer(worker)
            worker.ended.add_done_callback(lambda _: self._gone(id(worker)))
        return peer

    def _gone(self, key: int) -> None:
        peer = self._peers.pop(key)
        peer.stop_streams()
        self._core.later(self._core.abandoned(peer))
