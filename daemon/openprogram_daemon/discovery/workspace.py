"""The files of a workspace and the functions in them, read from source only: nothing of an untrusted folder is imported or executed.

The root of a path is the nearest folder upward that holds ``pyproject.toml`` or ``.git``, else the path's own folder. Scanned are the files that ``functions``
in ``[tool.openprogram]`` names, by default every ``.py`` file below the root, without virtual environments, ``node_modules``, hidden folders and what git
ignores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from openprogram_protocol.functions import FunctionList, SourceError

from openprogram.loading import module_name
from openprogram.settings import Settings, settings_of
from openprogram_daemon.discovery.metadata import Module, functions_of, top_level_names
from openprogram_daemon.discovery.names import Binding, Scope

_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "__pypackages__"})
_GIT_TIMEOUT_S = 20
MOST_FOLDERS = 5000


def root_of(path: Path) -> Path:
    """The workspace that a file or folder belongs to."""
    start = path if path.is_dir() else path.parent
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
            return folder
    return start


def python_files(folder: Path) -> list[Path]:
    """Every ``.py`` file below a folder that is the user's own work, sorted."""
    listed = _listed_by_git(folder)
    found = _walked(folder) if listed is None else (file for path in listed for file in _kept(folder, path))
    return sorted(set(found))


def _kept(folder: Path, path: Path) -> Iterable[Path]:
    between = path.relative_to(folder).parts[:-1]
    if any(_is_skipped(name) for name in between) or _in_environment(folder, between):
        return ()
    if path.is_dir():  # a repository inside this one: git lists its folder only
        return python_files(path) if not _is_skipped(path.name) else ()
    return (path,) if path.suffix == ".py" and path.is_file() else ()


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


def _in_environment(folder: Path, between: tuple[str, ...]) -> bool:
    return any((folder.joinpath(*between[: depth + 1]) / "pyvenv.cfg").exists() for depth in range(len(between)))


def _run_git_here(folder: Path, *arguments: str) -> bytes | None:
    """What git says; None outside a repository or without git."""
    git = shutil.which("git")
    if git is None or not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None
    return _run_git(git, folder, *arguments)


def _listed_by_git(folder: Path) -> list[Path] | None:
    """What git tracks or would track below a folder; None outside a repository, without git, or when git ignores the folder itself."""
    if folder != root_of(folder) and _run_git_here(folder, "check-ignore", "-q", ".") is not None:
        return None
    output = _run_git_here(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return None if output is None else [folder / os.fsdecode(name.rstrip(b"/")) for name in output.split(b"\0") if name]


def _run_git(git: str, folder: Path, *arguments: str) -> bytes | None:
    # The repository may be anybody's: its configured programs (fsmonitor, hooks) must not run because somebody looked at it.
    command = [git, "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False)  # noqa: S603 - fixed arguments
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _walked(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _is_skipped(name) and not (Path(base) / name / "pyvenv.cfg").exists()]
        yield from (Path(base) / name for name in files if name.endswith(".py"))


def folders_of(root: Path) -> list[Path]:
    """The root and every folder below it where files of the user's own may appear; not more than `MOST_FOLDERS`."""
    ignored = _run_git_here(root, "ls-files", "-z", "--others", "--ignored", "--directory", "--exclude-standard")
    left_out = {root / os.fsdecode(name.rstrip(b"/")) for name in (ignored or b"").split(b"\0") if name.endswith(b"/")}
    found: list[Path] = []
    for base, folders, _ in os.walk(root):
        here = Path(base)
        found.append(here)
        if len(found) == MOST_FOLDERS:
            break
        folders[:] = [name for name in folders if not _is_skipped(name) and here / name not in left_out and not (here / name / "pyvenv.cfg").exists()]
    return found


def scanned_files(root: Path, settings: Settings) -> list[Path]:
    """The files that a scan of the workspace reads."""
    if settings.functions is None:
        return python_files(root)
    found: set[Path] = set()
    for pattern in settings.functions:
        found.update(_matching(root, pattern))
    return sorted(found)


def _matching(root: Path, pattern: str) -> Iterable[Path]:
    path = root / pattern
    if path.is_dir():
        return python_files(path.resolve())
    if path.is_file():
        return [path]
    try:
        return [file for file in root.glob(pattern) if file.suffix == ".py" and file.is_file()]
    except (ValueError, NotImplementedError):  # an absolute or empty pattern names nothing below the root
        return []


class Workspace:
    """A root and its files. Names that one file imports from another are followed on demand, each file parsed once for that."""

    def __init__(self, root: Path, *, settings: Settings | None = None) -> None:
        self.root = root.resolve()
        self.settings = settings_of(self.root) if settings is None else settings
        self._scopes: dict[Path, Scope | None] = {}
        self._visiting: set[str] = set()

    def scan(self, files: Iterable[Path] | None = None) -> FunctionList:
        """The functions of the given files, by default of all that the settings name, and the errors of those that cannot be read."""
        chosen = scanned_files(self.root, self.settings) if files is None else files
        modules = [self.read(file) for file in chosen]
        errors = [error for module in modules for error in module.errors]
        if self.settings.problem is not None:
            errors.insert(0, SourceError(file="pyproject.toml", line=1, message=self.settings.problem))
        return FunctionList(root=str(self.root), functions=[info for module in modules for info in module.functions], errors=errors)

    def read(self, file: Path) -> Module:
        """One file: its functions, or its error."""
        shown = self._shown(file)
        data = _content(file)
        if isinstance(data, str):
            return Module([], [SourceError(file=shown, line=1, message=data)])
        name, is_package = module_name(self.root, _absolute(file))
        return functions_of(data, shown, module=name, is_package=is_package, resolver=self._resolve)

    def _shown(self, file: Path) -> str:
        path = _absolute(file)
        name = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()
        return name.encode("utf-8", "backslashreplace").decode()

    def _resolve(self, path: str) -> Binding | None:
        """Follow a dotted path into the file that defines its last name; a circle of imports leads nowhere."""
        module, _, name = path.rpartition(".")
        file = self._file_of(module) if module else None
        if file is None or path in self._visiting:
            return None
        self._visiting.add(path)
        try:
            scope = self._scope(file)
            return None if scope is None else scope.mentioned(name)
        finally:
            self._visiting.discard(path)

    def _file_of(self, module: str) -> Path | None:
        relative = Path(*module.split("."))
        for base in (self.root, self.root / "src"):
            for candidate in ((base / relative).with_suffix(".py"), base / relative / "__init__.py"):
                if candidate.is_file():
                    return candidate
        return None

    def _scope(self, file: Path) -> Scope | None:
        if file not in self._scopes:
            self._scopes[file] = None  # what a circle of imports meets
            data = _content(file)
            name, is_package = module_name(self.root, file)
            if not isinstance(data, str):
                self._scopes[file] = top_level_names(data, str(file), module=name, is_package=is_package, resolver=self._resolve)
        return self._scopes[file]


def _absolute(file: Path) -> Path:
    """Where a file stands; a link to a file is named by its own place, not by what it points to."""
    return file.parent.resolve() / file.name


def _content(file: Path) -> bytes | str:
    """The bytes of a file, or why they cannot be had. Anything but a regular file (a pipe would block for ever) is refused."""
    try:
        return file.read_bytes() if file.is_file() else "this is no regular file"
    except OSError as error:
        return f"the file cannot be read: {error.strerror or error}"
