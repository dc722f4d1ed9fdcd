"""Import a module from a file or by name as Python itself would: under its right name, with its package around it, from the source as it is now.

A file belongs to the package that the ``__init__.py`` files around it make; without one it is a script, imported under its stem with its folder on
``sys.path``. A script with relative imports lives in a namespace package and is named from its workspace's root (``src`` left out).

Bytecode files are never used: a ``.pyc`` is matched by size and whole seconds, so that a quick edit of the same length would run the old code.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.machinery
import importlib.util
import linecache
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple


def digest(data: bytes) -> str:
    """The name of a source text: SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class Imports:
    """What the modules below ``root`` were compiled from. ``hashes`` says it by path; ``sources`` are texts that stand in for the files on disk."""

    def __init__(self, root: Path, sources: dict[str, bytes] | None = None) -> None:
        self.root = root
        self.sources = sources or {}
        self.hashes: dict[str, str] = {}

    def read(self, path: str) -> bytes:
        """The source of a file, noted as read. Raises OSError."""
        data = self.sources.get(path)
        if data is None:
            data = Path(path).read_bytes()
        self.hashes[path] = digest(data)
        _remember_lines(path, data)
        return data

    def holds(self, origin: str | None) -> bool:
        """Whether a module found at ``origin`` is the user's own."""
        return origin is not None and "site-packages" not in origin and Path(origin).is_relative_to(self.root)


def _remember_lines(path: str, data: bytes) -> None:
    """Tracebacks show the text that ran, even after the file was changed."""
    try:
        text = importlib.util.decode_source(data)
    except (SyntaxError, UnicodeDecodeError):
        return  # compiling it reports that
    linecache.cache[path] = (len(data), None, text.splitlines(keepends=True), path)


class FreshLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source each time."""

    def __init__(self, name: str, path: str, imports: Imports) -> None:
        super().__init__(name, path)
        self._imports = imports

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self._imports.read(path), path)


class _FreshFinder:
    """Finds what Python finds, and gives modules below a folder a `FreshLoader`."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader or not self._imports.holds(spec.origin):
            return spec
        spec.loader = FreshLoader(spec.loader.name, spec.loader.path, self._imports)
        return spec


class Place(NamedTuple):
    """How a file is imported: its dotted name and the folders that go on ``sys.path``, the first first."""

    name: str
    folders: tuple[Path, ...]


def module_name(root: Path, file: Path) -> tuple[str, bool]:
    """The dotted name of a file below the root (``src`` left out) and whether it is a package's ``__init__``."""
    parts = [*file.relative_to(root).with_suffix("").parts] if file.is_relative_to(root) else [file.stem]
    if parts[0] == "src" and len(parts) > 1:
        parts = parts[1:]
    is_package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if is_package else parts), is_package


def place_of(file: Path, root: Path, source: bytes) -> Place:
    """Where a file of the workspace ``root`` belongs. Raises SyntaxError."""
    folder, parts = file.parent, [] if file.stem == "__init__" else [file.stem]
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    if folder == file.parent and file.is_relative_to(root) and _has_relative_imports(source, file):
        name, _ = module_name(root, file)
        return Place(name, (root / "src" if file.is_relative_to(root / "src") else root,))
    return Place(".".join(parts), tuple(dict.fromkeys([folder, *import_roots(root)])))


def _has_relative_imports(source: bytes, file: Path) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(ast.parse(source, str(file))))


def import_roots(root: Path) -> list[Path]:
    """The folders of a workspace that its modules are named from."""
    return [root / "src", root] if (root / "src").is_dir() else [root]


def make_importable(folders: tuple[Path, ...], imports: Imports) -> None:
    """Put folders first on ``sys.path``; modules below the root of ``imports`` are from now on loaded through it."""
    known = [str(folder) for folder in folders]
    sys.path[:] = [*known, *(entry for entry in sys.path if entry not in known)]
    if not any(isinstance(finder, _FreshFinder) and finder._imports is imports for finder in sys.meta_path):  # pyright: ignore[reportPrivateUsage]
        sys.meta_path.insert(0, _FreshFinder(imports))  # pyright: ignore[reportArgumentType] - find_spec is all that the import system calls
    importlib.invalidate_caches()


def import_file(file: Path, imports: Imports) -> ModuleType:
    """Import a file of the workspace. Raises whatever its code raises, SyntaxError, OSError, and ImportError when its name belongs to another module."""
    place = place_of(file, imports.root, imports.read(str(file)))
    make_importable(place.folders, imports)
    if "." in place.name or file.stem == "__init__":
        return _import_from_package(file, place.name)
    return _import_script(file, place.name, imports)


def _import_from_package(file: Path, name: str) -> ModuleType:
    module = importlib.import_module(name)
    if Path(getattr(module, "__file__", None) or "").resolve() != file:
        owner = getattr(module, "__file__", "another module")
        raise ImportError(f"{str(file)!r} is module {name!r}, but that name already belongs to {owner!r}; rename one of them", name=name, path=str(file))
    return module


def _import_script(file: Path, name: str, imports: Imports) -> ModuleType:
    if name in sys.stdlib_module_names or not _is_free(name, file):
        name = f"{name}__file"  # a script called like a loaded module must not take its place
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file, loader=FreshLoader(name, str(file), imports))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _is_free(name: str, file: Path) -> bool:
    """Whether a module may be called so: nobody is, or this file."""
    held = sys.modules.get(name)
    return held is None or Path(getattr(held, "__file__", None) or "").resolve() == file
