"""The model connections that all clients share: one provider for each workspace and kind, the local model one for everybody.

A provider is made when it is first asked for, in a thread, since that may import a lot. The local one is a child process with the model in memory: it is
closed once nobody has used it for `IDLE_S` seconds, and started again by the next request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from openprogram.errors import NoModelError
from openprogram.providers.base import Provider
from openprogram.providers.registry import chosen_model, make_provider, split_model
from openprogram.settings import settings_of
from openprogram_daemon.workspaces import Workspace

logger = logging.getLogger("openprogram.daemon")

IDLE_S = 600.0
# Their models are files.
_FILES = frozenset({"scripted", "recorded"})
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
        self.rested = 0.0
        self.timer: asyncio.TimerHandle | None = None


class Lending:
    """A context manager whose value is a `Lent`; a class, since a generator costs every model request several times as much."""

    def __init__(self, models: Models, workspace: Workspace | None, model: str) -> None:
        self._models = models
        self._asked = (workspace, model)
        self._kept: _Kept | None = None

    async def __aenter__(self) -> Lent:
        self._kept, lent = await self._models.borrow(*self._asked)
        return lent

    async def __aexit__(self, *_: object) -> None:
        if self._kept is not None:
            self._models.give_back(self._kept)


class Models:
    """Hand out providers, and close them."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._kept: dict[_Key, _Kept] = {}
        self._making = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    def lend(self, workspace: Workspace | None, model: str) -> Lending:
        """``async with`` it: the provider of a model; empty: the one that the workspace chooses. Raises NoModelError and UnknownModelError."""
        return Lending(self, workspace, model)

    async def borrow(self, workspace: Workspace | None, model: str) -> tuple[_Kept, Lent]:
        """The provider, counted as used until `give_back`."""
        full = ":".join(split_model(model)) if model else await asyncio.to_thread(_chosen, workspace)
        full = _placed(full, workspace)
        provider, _, name = full.partition(":")
        kept = await self._get(_Key("" if provider in _SHARED or workspace is None else workspace.id, provider), _environment(workspace))
        kept.users += 1
        return kept, Lent(kept.provider, full, name)

    def give_back(self, kept: _Kept) -> None:
        """One user less."""
        kept.users -= 1
        self._rest(kept)

    async def _get(self, key: _Key, environment: dict[str, str]) -> _Kept:
        async with self._making:
            if key not in self._kept:
                self._kept[key] = _Kept(await asyncio.to_thread(make_provider, key.provider, environ=environment))
            return self._kept[key]

    def _rest(self, kept: _Kept) -> None:
        kept.since = time.time()
        kept.rested = asyncio.get_running_loop().time()
        if kept.timer is None:
            kept.timer = asyncio.get_running_loop().call_later(self._idle_s, self._expire, kept)

    def _expire(self, kept: _Kept) -> None:
        """Close a provider that was not used for long enough; one timer serves, however often it is used meanwhile."""
        loop = asyncio.get_running_loop()
        kept.timer = None
        if kept.users == 0 and (left := kept.rested + self._idle_s - loop.time()) > 0:
            kept.timer = loop.call_later(left, self._expire, kept)
        elif kept.users == 0:
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


def _environment(workspace: Workspace | None) -> dict[str, str]:
    """Where keys, addresses and proxies are looked for: never the daemon's own environment, which is that of whoever started it."""
    return {} if workspace is None else workspace.env


def _placed(full: str, workspace: Workspace | None) -> str:
    """A model that is a file is looked for from the caller's folder, not from the daemon's."""
    provider, _, name = full.partition(":")
    is_file = provider in _FILES or (provider == "local" and (name.endswith(".gguf") or os.sep in name))
    if workspace is None or not is_file or not name or name.startswith("~"):
        return full
    return f"{provider}:{Path(workspace.cwd, name)}"


def _chosen(workspace: Workspace | None) -> str:
    environment = _environment(workspace)
    named = {what: _first(environment, what) for what in ("PROVIDER", "MODEL")}
    if not any(named.values()) and workspace is not None and workspace.trusted:
        settings = settings_of(Path(workspace.root))
        if settings.problem is not None:
            raise NoModelError(f"{Path(workspace.root) / 'pyproject.toml'}: {settings.problem}")
        named["MODEL"] = settings.model
    return chosen_model(named["PROVIDER"], named["MODEL"], environ=environment)


def _first(environment: dict[str, str], what: str) -> str | None:
    return next((value for prefix in _PREFIXES if (value := environment.get(f"{prefix}_{what}"))), None)
