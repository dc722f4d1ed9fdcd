"""One model request through the daemon's provider connections."""

from __future__ import annotations

from typing import Any

from openprogram_protocol.runs import Wire


class StreamParams(Wire, frozen=True, kw_only=True):
    """A model request. ``node`` names the llm node whose ``reads`` is the history, so that no history crosses; ``model`` is ``"provider:model"``.

    ``stream`` is an id made by the caller; the events come as `ModelEvents` notifications with that id, the last of them with
    the reply, which says that the stream is over. ``new``,
    ``tools``, ``constraint`` and ``settings`` are the library's own structs as JSON.
    """

    stream: str
    model: str
    workspace: str = ""
    node: str | None = None
    new: list[Any] = []
    system: str | None = None
    tools: list[Any] = []
    tool_choice: Any = "auto"
    parallel_tool_calls: bool = True
    constraint: Any = None
    settings: Any = None
    session_id: str | None = None


class StreamResult(Wire, frozen=True, kw_only=True):
    """The stream is over. ``events`` is their number; those that were not sent before are here, in ``last``."""

    events: int = 0
    last: list[Any] = []


class ModelEvents(Wire, frozen=True, kw_only=True):
    """Events of a stream in order, each tagged as in `openprogram.providers.base`."""

    stream: str
    events: list[Any]


class CancelStream(Wire, frozen=True, kw_only=True):
    """End a stream; its request is answered with REQUEST_CANCELLED."""

    stream: str


class ProfileParams(Wire, frozen=True, kw_only=True):
    model: str
    workspace: str = ""


class ProfileResult(Wire, frozen=True, kw_only=True):
    """What the model can do, as `openprogram.providers.base.Profile`; ``model`` with its defaults filled in."""

    model: str
    profile: dict[str, Any] = {}
