"""Opening a connection, events, health, the end."""

from __future__ import annotations

import os

from openprogram_protocol import admin, paths
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.rpc import PROTOCOL
from openprogram_protocol.runs import ConnectParams, ConnectResult

from openprogram_daemon.core import Core
from openprogram_daemon.errors import RefusedError
from openprogram_daemon.events import TOPICS, Subscription
from openprogram_daemon.session import Session
from openprogram_daemon.versions import other_protocol, version


async def connect(core: Core, session: Session, params: ConnectParams) -> ConnectResult:
    """``openprogram/connect``."""
    if params.protocol != PROTOCOL:
        raise other_protocol(params.protocol, core)
    session.about |= {"role": params.role, "client": params.client, "pid": params.pid}
    session.passed_gate()
    return ConnectResult(protocol=PROTOCOL, version=version(), pid=os.getpid(), epoch=core.epoch, fingerprint=core.fingerprint)


async def subscribe(core: Core, session: Session, params: admin.SubscribeParams) -> admin.SubscribeResult:
    """``openprogram/subscribe``."""
    unknown = [topic for topic in params.topics if topic not in TOPICS]
    if unknown:
        raise RefusedError(ErrorCode.INVALID_PARAMS, f"there is no topic {unknown[0]!r}, only {', '.join(TOPICS)} - at `$.topics`")
    about = {topic: value for topic, value in (("run", params.run_id), ("dag", params.session)) if value is not None}
    return core.events.subscribe(session, Subscription(frozenset(params.topics), about), params.since)


async def unsubscribe(core: Core, session: Session, params: admin.UnsubscribeParams) -> admin.Nothing:
    """``openprogram/unsubscribe``."""
    core.events.unsubscribe([params.subscription], session)
    return admin.Nothing()


async def status(core: Core, session: Session, params: admin.Nothing) -> admin.StatusResult:
    """``openprogram/status``: from memory, so that it answers at once whatever runs."""
    running = {run.params.run_id: run.info.function for run in core.runs.active()}
    return admin.StatusResult(
        pid=os.getpid(),
        version=version(),
        protocol=PROTOCOL,
        epoch=core.epoch,
        started_at=core.started_at,
        home=str(paths.home()),
        socket=core.socket,
        clients=[other.about for other in core.sessions if other.is_open],
        runs=len(core.runs.active()),
        workers=[] if core.runs.hosts is None else [{**one, "function": running.get(one["run"])} for one in core.runs.hosts.describe()],
        models=core.models.status(),
        workspaces=[{"workspace": one.id, "root": one.root, "trusted": one.trusted} for one in core.workspaces.all()],
        stopping=core.stopping.is_set(),
    )


async def stop(core: Core, session: Session, params: admin.StopParams) -> admin.Nothing:
    """``openprogram/stop``: the reply is sent before the end."""
    core.stop(params)
    return admin.Nothing()
