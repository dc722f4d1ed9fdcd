"""Runs."""

from __future__ import annotations

from openprogram_protocol.runs import CancelParams, CancelResult, ResultParams, RunInfo, RunParams, RunsParams, RunsResult, RunStarted

from openprogram_daemon.core import Core
from openprogram_daemon.peer import Peer


async def run(core: Core, peer: Peer, params: RunParams) -> RunStarted:
    """``openprogram/run``."""
    return await core.runs.start(params)


async def result(core: Core, peer: Peer, params: ResultParams) -> RunInfo:
    """``openprogram/result``."""
    return await core.runs.result(params.run_id, params.timeout_s)


async def cancel(core: Core, peer: Peer, params: CancelParams) -> CancelResult:
    """``openprogram/cancel``."""
    return await core.runs.cancel(params.run_id, params.grace_s)


async def runs(core: Core, peer: Peer, params: RunsParams) -> RunsResult:
    """``openprogram/runs``."""
    return RunsResult(runs=await core.runs.list(params))
