"""The workspaces that clients opened: a root, and the interpreter, folder and environment that runs in it get.

The environment lives in memory only and is part of a workspace's identity, so that two terminals with different keys never use each other's.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from openprogram_protocol.runs import WorkspaceParams, WorkspaceResult

from openprogram.errors import UsageError
from openprogram_daemon.discovery.workspace import root_of

# What differs between two shells of one user and means nothing to a program.
_PASSING = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """One of them. ``trusted``: its code may be imported and run."""

    id: str
    root: str
    python: str | None
    cwd: str
    env: dict[str, str]
    trusted: bool

    def result(self) -> WorkspaceResult:
        """As a client is told."""
        return WorkspaceResult(workspace=self.id, root=self.root, trusted=self.trusted)

    def __repr__(self) -> str:
        return f"Workspace({self.root!r}, trusted={self.trusted})"


def resolve(params: WorkspaceParams) -> Workspace:
    """The workspace that a client means; reads the disk. Raises UsageError for a folder that does not exist."""
    path = Path(params.root)
    if not path.is_absolute() or not path.exists():
        raise UsageError(f"the workspace {params.root!r} is no existing folder, named in full")
    root = str(path.resolve() if path.is_dir() else root_of(path))
    cwd = params.cwd or root
    env = {name: value for name, value in params.env.items() if name not in _PASSING}
    identity = msgspec.json.encode([root, params.python, cwd, sorted(env.items())])
    return Workspace(
        id=hashlib.blake2b(identity, digest_size=8).hexdigest(),
        root=root,
        python=params.python,
        cwd=cwd,
        env=params.env,
        trusted=params.trusted,
    )


class Workspaces:
    """By id."""

    def __init__(self) -> None:
        self._by_id: dict[str, Workspace] = {}

    def all(self) -> list[Workspace]:
        """Every one."""
        return list(self._by_id.values())

    def find(self, workspace_id: str) -> Workspace | None:
        """The workspace of that id."""
        return self._by_id.get(workspace_id)

    def get(self, workspace_id: str) -> Workspace:
        """The workspace of that id. Raises UsageError."""
        if (found := self._by_id.get(workspace_id)) is None:
            raise UsageError(f"there is no workspace {workspace_id!r} in this life of the daemon; open it first (openprogram/workspace/open)")
        return found

    def keep(self, workspace: Workspace) -> Workspace:
        """Remember it. Opening a workspace does not take away the trust that it has."""
        before = self._by_id.get(workspace.id)
        if before is not None and before.trusted:
            workspace = msgspec.structs.replace(workspace, trusted=True)
        self._by_id[workspace.id] = workspace
        return workspace

    def trust(self, workspace_id: str, trusted: bool) -> Workspace:
        """Say whether its code may run. Raises UsageError for an unknown one."""
        self._by_id[workspace_id] = changed = msgspec.structs.replace(self.get(workspace_id), trusted=trusted)
        return changed
