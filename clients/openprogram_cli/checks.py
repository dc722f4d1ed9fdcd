"""What `openprogram doctor` looks at. A check never raises, changes nothing and never shows the value of a key."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from openprogram_protocol import paths

from openprogram.errors import OpenProgramError


class Check(NamedTuple):
    """``state``: ``ok``, ``note`` (nothing is broken, but know this) or ``problem``; ``fix`` says how to mend it."""

    name: str
    state: Literal["ok", "note", "problem"]
    detail: str
    fix: str = ""


def run_all() -> list[Check]:
    """Every check in order."""
    return [_guarded(name, check) for name, check in _CHECKS.items()]


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except OpenProgramError as error:
        return Check(name, "problem", str(error))
    except Exception as error:  # a check that fails is a finding, and the others still count
        return Check(name, "problem", f"the check failed: {type(error).__name__}: {error}", "please report this")


def _python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Check("python", "ok", f"{version} at {sys.executable}")


def _package() -> Check:
    from openprogram_cli.app import version

    place = importlib.util.find_spec("openprogram")
    return Check("package", "ok", f"openprogram {version()} at {Path(place.origin or '').parent if place else 'unknown'}")


def _home() -> Check:
    home = paths.home()
    nearest = next((folder for folder in (home, *home.parents) if _is_seen(folder)), home)
    fix = "make it a folder you may write, or set OPENPROGRAM_HOME to one"
    if not nearest.is_dir():
        return Check("home", "problem", f"{nearest} is no folder", fix)
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Check("home", "problem", f"{home} may not be written or entered", fix)
    try:  # some places, such as /proc, say that they may be written and cannot be
        Path(tempfile.mkdtemp(prefix=".openprogram-", dir=nearest)).rmdir()
    except OSError as error:
        return Check("home", "problem", f"{home} cannot be written: {error.strerror or error}", fix)
    return Check("home", "ok", f"{home}{'' if home.exists() else ' (made when something is recorded)'}")


def _is_seen(folder: Path) -> bool:
    try:
        return folder.exists()
    except OSError:
        return False


def _store() -> Check:
    from openprogram.store import files
    from openprogram.store.sqlite import SqliteStore

    file = paths.store_file()
    if (problem := files.unreachable(file)) is not None:
        return Check("store", "problem", str(problem), "as said for home")
    if not files.exists(file):
        return Check("store", "ok", f"{file} does not exist yet; the first recorded run makes it")
    try:
        store = SqliteStore(file, read_only=True)
        try:
            sessions = store.sessions(limit=1)
            count = store.session(sessions[0].id).nodes if sessions else 0
        finally:
            store.close()
    except OpenProgramError as error:
        return Check("store", "problem", str(error), f"move {file} away and restore a copy of it, or start with a new one")
    newest = f"newest session {sessions[0].id} has {count} node{'' if count == 1 else 's'}" if sessions else "no sessions yet"
    return Check("store", "ok", f"{file}, {newest}")


def _engine() -> Check:
    if importlib.util.find_spec("xllamacpp") is None:
        return Check("engine", "note", "the engine of the local model is not installed", "pip install 'openprogram[local]'")
    from importlib.metadata import version

    return Check("engine", "ok", f"xllamacpp {version('xllamacpp')}")


def _weights() -> Check:
    from openprogram.providers import weights

    path = weights.path_of(weights.DEFAULT)
    if path is None:
        return Check("weights", "note", "the local model is not installed", "openprogram models install")
    return Check("weights", "ok", str(path))


def _keys() -> Check:
    from openprogram.providers.catalog import ROWS

    names = dict.fromkeys(name for row in ROWS.values() for name in row.keys)
    found = [name for name in names if os.environ.get(name)]
    return Check("keys", "ok" if found else "note", f"set: {', '.join(found)}" if found else "no provider's key is set in the environment")


def _model() -> Check:
    """Whether a run would find a model; this is the one that makes a machine without any a broken one."""
    from openprogram.providers.registry import chosen_model

    try:
        name = chosen_model()
    except OpenProgramError as error:
        return Check("model", "problem", str(error), "as said, or set OPENPROGRAM_MODEL=provider:model")
    if name.startswith("local:") and (missing := _missing_for_local(name.removeprefix("local:"))):
        return Check("model", "problem", f"{name} is chosen, but {missing[0]}", missing[1])
    return Check("model", "ok", name)


def _missing_for_local(model: str) -> tuple[str, str] | None:
    from openprogram.providers import weights

    if importlib.util.find_spec("xllamacpp") is None:
        return "its engine is missing", "pip install 'openprogram[local]'"
    if model in weights.KNOWN:
        return None if weights.path_of(model) else ("it is not installed", "openprogram models install")
    return None if Path(model).expanduser().is_file() else (f"there is no file {model}", "name a .gguf file that exists")


def _workspace() -> Check:
    from openprogram.settings import settings_of

    root = paths.workspace_of(Path.cwd())
    settings = settings_of(root)
    if settings.problem is not None:
        return Check("workspace", "problem", f"{root / 'pyproject.toml'}: {settings.problem}", "mend that file")
    if (warning := settings.warning(root / "pyproject.toml")) is not None:
        return Check("workspace", "note", warning, "mend that file")
    return Check("workspace", "ok", str(root))


def _daemon() -> Check:
    from openprogram_clients import ClientError
    from openprogram_clients.errors import NotRunningError
    from openprogram_clients.launch import open_daemon

    try:
        daemon = open_daemon(start=False, client="openprogram doctor")
    except NotRunningError:
        return Check("daemon", "ok", "none is running; it is started when it is needed")
    except ClientError as error:
        return Check("daemon", "problem", str(error), "openprogram daemon restart")
    daemon.connection.close()
    if daemon.warning:
        return Check("daemon", "note", daemon.warning)
    return Check("daemon", "ok", f"pid {daemon.about.pid}, version {daemon.about.version}")


_CHECKS: dict[str, Callable[[], Check]] = {
    "python": _python,
    "package": _package,
    "home": _home,
    "store": _store,
    "daemon": _daemon,
    "workspace": _workspace,
    "engine": _engine,
    "weights": _weights,
    "keys": _keys,
    "model": _model,
}


def document(checks: list[Check]) -> dict[str, Any]:
    """The checks as ``--json`` prints them."""
    return {"ok": all(check.state != "problem" for check in checks), "checks": [check._asdict() for check in checks]}
