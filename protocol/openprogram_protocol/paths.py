"""Where the files of one user live: the same answer in every process that shares a daemon or a store.

``OPENPROGRAM_HOME`` names the state directory (store, log, status file); without it the platform's user state directory is used. Downloaded models are kept in
the user's cache directory, or in ``OPENPROGRAM_CACHE``, since they are the same for every home.
"""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The state directory; it need not exist yet."""
    if named := os.environ.get("OPENPROGRAM_HOME"):
        return Path(named).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_state_dir("openprogram", appauthor=False))


def cache() -> Path:
    """The directory for downloaded models; it need not exist yet."""
    if named := os.environ.get("OPENPROGRAM_CACHE"):
        return Path(named).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("openprogram", appauthor=False))


def store_file() -> Path:
    """The one store file of this home."""
    return home() / "sessions.sqlite3"


def workspace_of(path: Path) -> Path:
    """The workspace that a file or folder belongs to: the nearest folder with a pyproject.toml or .git, else its own."""
    start = (path if path.is_dir() else path.parent).resolve()
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
            return folder
    return start
