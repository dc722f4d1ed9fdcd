"""Import what a target names; whatever is wrong with it becomes a `Stop` with the exit code and the user's own traceback."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from openprogram_daemon.discovery.source import parse
from openprogram_daemon.discovery.workspace import root_of
from openprogram_protocol.functions import SourceError

from openprogram.loading import Imports, import_file, import_roots, make_importable
from openprogram.tracebacks import users_traceback
from openprogram_cli.exits import FAILED, Stop, usage


def load_file(path: Path, shown: str) -> ModuleType:
    """Import a file; ``shown`` is how errors call it.

    Raises Stop: 2 for one that is missing, unreadable or no Python, 1 with the user's traceback for one that raises.
    """
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise usage(f"cannot read {shown!r}: {getattr(error, 'strerror', None) or error}") from error
    source = parse(data, shown)
    if isinstance(source, SourceError):
        raise usage(f"{source.file}:{source.line}: {source.message}")
    file = path.resolve()
    return _run_import(lambda: _import_file(file))


def _import_file(file: Path) -> ModuleType:
    try:
        return import_file(file, Imports(root_of(file)))
    except ImportError as error:
        if error.path == str(file):  # its own name is taken; any other import error is the module's
            raise usage(str(error)) from error
        raise


def load_module(name: str, folder: Path) -> ModuleType:
    """Import a module by its dotted name, as seen from a folder. Raises Stop as `load_file` does."""
    root = root_of(folder)
    make_importable(tuple(dict.fromkeys([folder, *import_roots(root)])), Imports(root))
    return _run_import(lambda: _import_named(name))


def _import_named(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise usage(f"{name!r} is no module name; a file is written path/to/file.py:function")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise usage(f"there is no module {missing!r}; a file is written path/to/file.py:function, `openprogram functions` lists what is here") from error
        raise
    except PermissionError as error:
        path = Path(str(error.filename))
        if name.rpartition(".")[2] in (path.stem, path.parent.name) and path.suffix == ".py":  # not one that the module's own code met
            raise usage(f"cannot read {path.name!r}: {error.strerror}") from error
        raise


def _run_import(load: Any) -> ModuleType:
    try:
        return load()
    except (Stop, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}: " if error.filename else ""
        raise usage(f"{where}{error.msg}") from error
    except SystemExit as error:
        raise Stop(FAILED, f"the module called sys.exit({error.code!r}) when it was imported; guard that with `if __name__ == '__main__':`") from error
    except BaseException as error:
        raise Stop(FAILED, f"the module raised when it was imported\n{users_traceback(error).rstrip()}") from error
