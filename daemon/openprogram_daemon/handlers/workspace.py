"""Workspaces: opened, trusted, and what functions are in them."""

from __future__ import annotations

from openprogram_protocol import admin
from openprogram_protocol.runs import ArgumentsParams, ArgumentsResult, TrustParams, WorkspaceParams, WorkspaceResult

from openprogram_daemon.core import Core
from openprogram_daemon.hosting import Hosts
from openprogram_daemon.peer import Peer
from openprogram_daemon.workspaces import Workspace, resolve


async def open_workspace(core: Core, peer: Peer, params: WorkspaceParams) -> WorkspaceResult:
    """``openprogram/workspace/open``."""
    workspace = core.workspaces.keep(await core.read(lambda: resolve(params)))
    peer.workspace = peer.workspace or workspace.id
    await _opened(core, workspace)
    return workspace.result()


async def trust(core: Core, peer: Peer, params: TrustParams) -> WorkspaceResult:
    """``openprogram/workspace/trust``."""
    workspace = core.workspaces.trust(params.workspace, params.trusted)
    await _opened(core, workspace)
    return workspace.result()


async def _opened(core: Core, workspace: Workspace) -> None:
    await hosts(core).open(workspace.id, workspace.root, workspace.python, workspace.cwd, workspace.env, workspace.trusted)


def hosts(core: Core) -> Hosts:
    """The processes that run user code."""
    assert core.runs.hosts is not None
    return core.runs.hosts


async def functions(core: Core, peer: Peer, params: admin.FunctionsParams) -> admin.FunctionsResult:
    """``openprogram/functions``."""
    return await hosts(core).functions(core.workspaces.get(params.workspace).id)


async def arguments(core: Core, peer: Peer, params: ArgumentsParams) -> ArgumentsResult:
    """``openprogram/arguments``."""
    return await hosts(core).arguments(core.workspaces.get(params.workspace).id, params)


async def function(core: Core, peer: Peer, params: admin.FunctionParams) -> admin.FunctionResult:
    """``openprogram/function``: what its source says of it."""
    return admin.FunctionResult(function=await hosts(core).find(core.workspaces.get(params.workspace).id, params.function))
