"""The model connections that all clients share: one provider for each workspace and kind, the local model one for everybody.

A provider is made when it is first asked for, in a thread, since that may import a lot. The local one is a child process with the model in memory: it is
closed once nobody has used it for `IDLE_S` seconds, and started again by the next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from openprogram.providers.base import Provider
from openprogram.providers.registry import chosen_model, make_provider, split_model
from openprogram_daemon.discovery.workspace import settings_of
from openprogram_daemon.workspaces import Workspace

logger = logging.getLogger("openprogram.daemon")

IDLE_S = 600.0
_SHARED = frozenset({"local"})
_PREFIXES = ("OPENPROGRAM", "AGENTIC")


class _Key(NamedTuple):
    workspace: str
    provider: str


class Lent(msgspec.Struct):
    """A provider that is in use. ``name`` is the model's own name, ``model`` is ``"provider:model"``."""

    provider: Any
    model: str
    name: str


class _Kept:
    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.users = 0
        self.since = time.time()
        self.timer: asyncio.TimerHandle | None = None


class Models:
    """Hand out providers, and close them."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._kept: dict[_Key, _Kept] = {}
        self._making = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def lend(self, workspace: Workspace | None, model: str) -> AsyncGenerator[Lent]:
        """The provider of a model; empty: the one that the workspace chooses. Raises NoModelError and UnknownModelError."""
        full = await asyncio.to_thread(_chosen, workspace, model)
        provider, _, name = full.partition(":")
        kept = await self._get(_Key("" if provider in _SHARED or workspace is None else workspace.id, provider))
        kept.users += 1
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        try:
            yield Lent(kept.provider, full, name)
        finally:
            kept.users -= 1
            self._rest(kept)

    async def _get(self, key: _Key) -> _Kept:
        async with self._making:
            if key not in self._kept:
                self._kept[key] = _Kept(await asyncio.to_thread(make_provider, key.provider))
            return self._kept[key]

    def _rest(self, kept: _Kept) -> None:
        kept.since = time.time()
        if kept.users == 0 and kept.timer is None:
            kept.timer = asyncio.get_running_loop().call_later(self._idle_s, self._expire, kept)

    def _expire(self, kept: _Kept) -> None:
        if kept.users == 0:
            self._kept = {key: other for key, other in self._kept.items() if other is not kept}
            task = asyncio.ensure_future(_close(kept.provider))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def status(self) -> list[dict[str, Any]]:
        """What is open: provider, workspace, how many requests use it, and since when it is as it is."""
        return [{"provider": key.provider, "workspace": key.workspace, "users": kept.users, "since": kept.since} for key, kept in self._kept.items()]

    async def aclose(self) -> None:
        """Close everything."""
        kept, self._kept = list(self._kept.values()), {}
        for one in kept:
            if one.timer is not None:
                one.timer.cancel()
        await asyncio.gather(*(_close(one.provider) for one in kept), *self._closing)


async def _close(provider: Provider) -> None:
    try:
        await provider.aclose()
    except Exception as error:
        logger.warning("closing the provider %s failed: %s", provider.name, type(error).__name__)


def _chosen(workspace: Workspace | None, model: str) -> str:
    if model:
        return ":".join(split_model(model))
    environment = {} if workspace is None else workspace.env
    named = {what: _first(environment, what) for what in ("PROVIDER", "MODEL")}
    if not any(named.values()) and workspace is not None and workspace.trusted:
        named["MODEL"] = settings_of(Path(workspace.root)).model
    return chosen_model(named["PROVIDER"], named["MODEL"])


def _first(environment: dict[str, str], what: str) -> str | None:
    return next((value for prefix in _PREFIXES if (value := environment.get(f"{prefix}_{what}"))), None)
