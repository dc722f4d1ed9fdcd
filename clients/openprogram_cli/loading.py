"""Import a module from a file or by name as Python itself would: under its right name, with its package around it, from the source as it is now.

A file belongs to the package that the ``__init__.py`` files around it make; without one it is a script, imported under its stem with its folder on
``sys.path``. A script with relative imports lives in a namespace package and is named from its workspace's root (``src`` left out).
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from openprogram_daemon.discovery.source import parse
from openprogram_daemon.discovery.workspace import module_name, root_of
from openprogram_protocol.functions import SourceError

from openprogram_cli.exits import FAILED, Stop, usage
from openprogram_cli.tracebacks import users_traceback


class FreshLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source each time: a ``.pyc`` is matched by size and whole seconds, so that a quick edit of the same length would run the old code."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _FreshFinder:
    """Finds what Python finds, and gives modules below a folder a `FreshLoader`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader or not self._is_users(spec.origin):
            return spec
        spec.loader = FreshLoader(spec.loader.name, spec.loader.path)
        return spec

    def _is_users(self, origin: str | None) -> bool:
        return origin is not None and "site-packages" not in origin and Path(origin).is_relative_to(self._root)


class Place(NamedTuple):
    """How a file is imported: its dotted name and the folders that go on ``sys.path``, the first first."""

    name: str
    folders: tuple[Path, ...]


def place_of(file: Path, tree: ast.Module) -> Place:
    """Where a file belongs."""
    folder, parts = file.parent, [] if file.stem == "__init__" else [file.stem]
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    root = root_of(file)
    if folder == file.parent and any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)) and file.is_relative_to(root):
        name, _ = module_name(root, file)
        source_root = root / "src" if file.is_relative_to(root / "src") else root
        return Place(name, (source_root,))
    return Place(".".join(parts), tuple(dict.fromkeys([folder, *_import_roots(root)])))


def _import_roots(root: Path) -> list[Path]:
    return [root / "src", root] if (root / "src").is_dir() else [root]


def _make_importable(folders: tuple[Path, ...], root: Path) -> None:
    known = [str(folder) for folder in folders]
    sys.path[:] = [*known, *(entry for entry in sys.path if entry not in known)]
    sys.meta_path.insert(0, _FreshFinder(root))  # pyright: ignore[reportArgumentType] - find_spec is all that the import system calls


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
    place = place_of(file, source.tree)
    _make_importable(place.folders, root_of(file))
    return _run_import(lambda: _import_file(file, place.name))


def _import_file(file: Path, name: str) -> ModuleType:
    parent, _, _ = name.rpartition(".")
    if parent or file.stem == "__init__":
        module = importlib.import_module(name)
        if Path(getattr(module, "__file__", None) or "").resolve() != file:
            raise usage(
                f"{str(file)!r} is module {name!r}, but that name already belongs to {getattr(module, '__file__', 'another module')!r}; rename one of them"
            )
        return module
    held = sys.modules.get(name)
    if held is not None or name in sys.stdlib_module_names:
        name = f"{name}__file"  # a script called like a loaded module must not take its place
    spec = importlib.util.spec_from_file_location(name, file, loader=FreshLoader(name, str(file)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def load_module(name: str, folder: Path) -> ModuleType:
    """Import a module by its dotted name, as seen from a folder. Raises Stop as `load_file` does."""
    root = root_of(folder)
    _make_importable(tuple(dict.fromkeys([folder, *_import_roots(root)])), root)
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
