"""A client's way to the daemon: one connection and one open workspace, made when they are first needed and again after they were lost."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from openprogram_protocol.paths import workspace_of
from openprogram_protocol.runs import WorkspaceParams, WorkspaceResult

from openprogram_clients.connection import Connection
from openprogram_clients.errors import ConnectionLost
from openprogram_clients.launch import open_daemon


class Settings(NamedTuple):
    """What `connect` was told."""

    root: Path
    start: bool
    trust: bool
    python: str
    env: dict[str, str]
    on_wait: Callable[[str], None] | None


def settings(
    root: str | os.PathLike[str] | None,
    *,
    start: bool,
    trust: bool,
    python: str | None,
    env: Mapping[str, str] | None,
    on_wait: Callable[[str], None] | None,
) -> Settings:
    """Defaults filled in: the workspace around the current folder, this Python, this environment. Raises NotADirectoryError."""
    folder = workspace_of(Path.cwd()) if root is None else Path(root).expanduser().resolve()
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder; a workspace is the folder that holds the functions")
    inherited = os.environ if env is None else env
    return Settings(folder, start, trust, python or sys.executable, {name: value for name, value in inherited.items() if _is_text(name + value)}, on_wait)


def _is_text(value: str) -> bool:
    # Bytes that are no UTF-8 reach os.environ as lone surrogates, which JSON cannot hold.
    return not any("\ud800" <= character <= "\udfff" for character in value)


class Link:
    """Thread-safe. `connection` and `workspace` block while they connect."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.warning: str | None = None
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._workspace: tuple[Connection, str] | None = None
        self._closed = False
        self._pid = os.getpid()

    def _after_fork(self) -> None:
        """In a forked process the lock may be held by a thread that is not there, and the connection is the parent's."""
        if self._pid != os.getpid():
            self._lock, self._connection, self._workspace, self._pid = threading.Lock(), None, None, os.getpid()

    def is_ready(self, *, workspace: bool = False) -> bool:
        """Whether `connection` (and `workspace`) answer without blocking."""
        current, opened = self._connection, self._workspace
        return current is not None and current.is_open and (not workspace or (opened is not None and opened[0] is current))

    def connection(self, *, start: bool | None = None) -> Connection:
        """The open connection, a new one if it was lost. Raises DaemonError, and ConnectionLost after `close`."""
        self._after_fork()
        with self._lock:
            if self._closed:
                raise ConnectionLost("this client was closed; connect again")
            if self._connection is None or not self._connection.is_open:
                wanted = self.settings.start if start is None else start
                self._connection, _, self.warning = open_daemon(start=wanted, client=Path(sys.argv[0]).name, on_wait=self.settings.on_wait)
            return self._connection

    def workspace(self) -> tuple[Connection, str]:
        """The connection and the id of the workspace in it. Raises DaemonError, RemoteError."""
        connection = self.connection()
        opened = self._workspace
        if opened is not None and opened[0] is connection:
            return opened
        given = self.settings
        params = WorkspaceParams(root=str(given.root), python=given.python, cwd=str(Path.cwd()), env=given.env, trusted=given.trust)
        found: WorkspaceResult = connection.call("openprogram/workspace/open", params)
        self._workspace = (connection, found.workspace)
        return self._workspace

    def close(self) -> None:
        """End the connection; nothing is opened again."""
        self._after_fork()
        with self._lock:
            self._closed = True
            connection = self._connection
        if connection is not None:
            connection.close()
