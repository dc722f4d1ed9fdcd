"""Library types ↔ what crosses the wire: nodes, frames, sessions, model requests and their events. The only place that knows both.

Values travel in their stored form (`openprogram.store.values`), so that what a node holds reads the same whichever process wrote it.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from openprogram_protocol import dag
from openprogram_protocol.model import StreamParams

from openprogram.context.call import Call, Close, Frame, Reads, SessionInfo
from openprogram.context.messages import Message
from openprogram.providers.base import Constraint, ModelEvent, ModelRequest, ModelSettings, Profile, ToolSpec
from openprogram.store import values

_event_type = ModelEvent


def raw(value: Any) -> msgspec.Raw:
    """A value in its stored form, ready to be put into a message."""
    return msgspec.Raw(values.encode(value).encode())


def stored(value: Any) -> Any:
    """The value behind a field of a wire node: raw JSON, or what the decoder made of it."""
    return values.decode(bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value))


def node_of(call: Call) -> dag.Node:
    """A library node as it crosses the wire."""
    return dag.Node(
        id=call.id,
        session=call.session,
        role=call.role,
        name=raw(call.name),
        frame=call.frame,
        seq=call.seq,
        status=call.status,
        input=raw(call.input),
        output=raw(call.output),
        caller=call.caller,
        predecessor=call.predecessor,
        reads=None if call.reads is None else (call.reads.frame, call.reads.upto),
        exchanges=raw(list(call.exchanges)),
        metadata=raw(call.metadata),
        started_at=call.started_at,
        ended_at=call.ended_at,
    )


def call_of(node: dag.Node) -> Call:
    """A wire node as the library knows it."""
    return Call(
        id=node.id,
        session=node.session,
        role=cast("Any", node.role),
        name=stored(node.name),
        frame=node.frame,
        seq=node.seq,
        status=cast("Any", node.status),
        input=stored(node.input),
        output=stored(node.output),
        caller=node.caller,
        predecessor=node.predecessor,
        reads=None if node.reads is None else Reads(*node.reads),
        exchanges=tuple(stored(node.exchanges)),
        metadata=stored(node.metadata),
        started_at=node.started_at,
        ended_at=node.ended_at,
    )


def update_of(close: Close) -> dag.UpdateParams:
    """How a node ends, for the wire."""
    return dag.UpdateParams(
        id=close.id,
        status=close.status,
        output=raw(close.output),
        exchanges=raw(list(close.exchanges)),
        metadata=raw(close.metadata),
        ended_at=close.ended_at,
        enters=close.enters,
    )


def close_of(update: dag.UpdateParams) -> Close:
    """How a node ends, from the wire."""
    return Close(
        id=update.id,
        status=cast("Any", update.status),
        output=stored(update.output),
        exchanges=tuple(stored(update.exchanges)),
        metadata=stored(update.metadata),
        ended_at=update.ended_at,
        enters=update.enters,
    )


def frame_info(frame: Frame) -> dag.FrameInfo:
    """A frame for the wire."""
    return dag.FrameInfo(**msgspec.structs.asdict(frame))


def frame_of(info: dag.FrameInfo) -> Frame:
    """A frame from the wire."""
    return Frame(**msgspec.structs.asdict(info))


def session_info(info: SessionInfo) -> dag.SessionInfo:
    """A session for the wire."""
    return dag.SessionInfo(**msgspec.structs.asdict(info))


def session_of(info: dag.SessionInfo) -> SessionInfo:
    """A session from the wire."""
    return SessionInfo(**msgspec.structs.asdict(info))


def stream_params(request: ModelRequest, *, stream: str, model: str, workspace: str, node: str | None) -> StreamParams:
    """A model request for the wire. With ``node`` its history is named, not sent; without it the history goes along as messages."""
    new = request.new if node is not None else tuple(request.messages())
    return StreamParams(
        stream=stream,
        model=model,
        workspace=workspace,
        node=node,
        new=[msgspec.to_builtins(message) for message in new],
        system=request.system,
        tools=[msgspec.to_builtins(tool) for tool in request.tools],
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        constraint=None if request.constraint is None else msgspec.to_builtins(request.constraint),
        settings=msgspec.to_builtins(request.settings),
        session_id=request.session_id,
    )


def without_surrogates(params: StreamParams) -> StreamParams:
    """The same request as models read it over any wire: a lone surrogate, which UTF-8 has no place for, is a question mark."""
    from openprogram.providers.wire import json_bytes

    return StreamParams(**msgspec.json.decode(json_bytes(msgspec.structs.asdict(params))))


def request_of(params: StreamParams, *, model: str, history: Any) -> ModelRequest:
    """A model request from the wire, for the provider's own ``model`` name. Raises msgspec.ValidationError for fields that do not fit."""
    return ModelRequest(
        model=model,
        new=msgspec.convert(params.new, tuple[Message, ...]),
        history=history,
        system=params.system,
        tools=msgspec.convert(params.tools, tuple[ToolSpec, ...]),
        tool_choice=params.tool_choice,
        parallel_tool_calls=params.parallel_tool_calls,
        constraint=None if params.constraint is None else msgspec.convert(params.constraint, Constraint),
        settings=ModelSettings() if params.settings is None else msgspec.convert(params.settings, ModelSettings),
        session_id=params.session_id,
    )


def event_data(event: ModelEvent) -> Any:
    """An event for the wire."""
    return msgspec.to_builtins(event)


def event_of(data: Any) -> ModelEvent:
    """An event from the wire."""
    return msgspec.convert(data, _event_type)


def profile_of(data: dict[str, Any]) -> Profile:
    """A model's profile from the wire; what a newer daemon adds is ignored."""
    return msgspec.convert(data, Profile)
