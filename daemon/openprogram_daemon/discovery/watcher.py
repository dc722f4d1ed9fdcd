"""What functions a workspace has now, kept so while its files change.

Folders are watched, never single files, and content judges: a touch changes nothing, a rename over a file does. A change is taken when the file has been still
for `SETTLE_S`; one that makes functions vanish, or that does not parse, only after `DOUBT_S`, since a save in two steps looks the same. A sweep of the file
times finds what no event told; where that happens, or folders cannot be watched, sweeps come often instead.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from openprogram_protocol.functions import FunctionInfo, FunctionList, SourceError

from openprogram.loading import digest
from openprogram_daemon.discovery.workspace import Workspace, folders_of, scanned_files, settings_of

logger = logging.getLogger("openprogram.daemon.watcher")

SETTLE_S = 0.05
DOUBT_S = 0.5
SWEEP_S = 2.0
POLL_S = 0.25
TURN_S = 0.1
_RELISTING = frozenset({"pyproject.toml", ".gitignore"})


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """A file: the functions it has, or had before it was broken, and its error. ``file`` is relative to the root, ``digest`` that of its content."""

    file: str
    digest: str
    functions: list[FunctionInfo] = []
    error: SourceError | None = None


Stamp = tuple[int, int, int, int]


def stamp(path: Path) -> Stamp | None:
    """What changes whenever a file is written; None for one that is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


class Watcher:
    """Watches in a thread of its own from `start` to `stop`; ``on_file`` is called there for every file whose functions or error changed."""

    def __init__(self, root: Path, on_file: Callable[[FileState], None], *, events: bool = True) -> None:
        self.root = root.resolve()
        self.polling = not events
        self._on_file = on_file
        self._lock = threading.RLock()
        self._files: dict[Path, FileState] = {}
        self._stamps: dict[Path, Stamp | None] = {}
        self._folders: dict[Path, Stamp] = {}
        self._doubted: dict[Path, tuple[str | None, float]] = {}
        self._errors: list[SourceError] = []
        self._stop = threading.Event()
        self._swept = 0.0  # the first turn is a sweep: it finds what was saved before events came
        self._thread = threading.Thread(target=self._run, name="openprogram-watcher", daemon=True)

    def start(self) -> None:
        """Read every file, then watch."""
        self._other_folders()
        self._relist(doubting=False)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which takes up to a tenth of a second."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def functions(self) -> FunctionList:
        """All functions by file and line, and the errors."""
        with self._lock:
            files = sorted(self._files.values(), key=lambda state: state.file)
        errors = [*self._errors, *(state.error for state in files if state.error is not None)]
        return FunctionList(root=str(self.root), functions=[info for state in files for info in state.functions], errors=errors)

    def state(self, file: str) -> FileState | None:
        """One file by its name relative to the root."""
        return self._files.get(self.root / file)

    def refresh(self) -> None:
        """Take what is on disk now without waiting for it to be still. Any thread may call."""
        self._relist(doubting=False)

    def is_current(self, path: Path) -> bool:
        """Whether a file is as it was when it was read."""
        known = self._stamps.get(path)
        return known is not None and stamp(path) == known

    def refresh_changed(self) -> None:
        """`refresh` without looking for new files."""
        with self._lock:
            stamps = list(self._stamps.items())
        self._consider([path for path, known in stamps if stamp(path) != known], doubting=False)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for changes in self._changes():
                    if self._stop.is_set() or self._turn(changes):
                        break
            except Exception:
                # Whatever is wrong with watching, sweeps go on.
                logger.exception("watching %s failed; its files are looked at every %g s instead", self.root, POLL_S)
                self.polling = True

    def _changes(self) -> Iterator[set[Path]]:
        """Paths that events tell of, empty sets between them."""
        from watchfiles import watch

        folders = [folder for folder in sorted(self._folders) if folder.is_dir()]
        if self.polling or not folders:
            while not self._stop.wait(POLL_S):
                yield set()
            return
        settle = round(SETTLE_S * 1000)
        events = watch(
            *folders,
            watch_filter=None,
            recursive=False,
            debounce=8 * settle,
            step=settle,
            rust_timeout=round(TURN_S * 1000),
            yield_on_timeout=True,
            stop_event=self._stop,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        for changes in events:
            yield {Path(path) for _, path in changes}

    def _turn(self, changes: set[Path]) -> bool:
        """Take changes and what waited; whether the folders are to be watched anew."""
        if any(path in self._folders or path.name in _RELISTING or path.is_dir() for path in changes):
            self._relist(doubting=True)
            return self._other_folders()
        sources = {path for path in changes if path.suffix == ".py"}
        if any(path not in self._files for path in sources):
            self._relist(doubting=True)  # it may be one that git ignores
        with self._lock:
            self._consider({*(sources & set(self._files)), *self._doubted}, doubting=True)
        return time.monotonic() - self._swept > (POLL_S if self.polling else SWEEP_S) and self._sweep()

    def _other_folders(self) -> bool:
        """Look which folders there are; whether others than before, or one that was made anew."""
        before = self._folders
        self._folders = {folder: found for folder in folders_of(self.root) if (found := stamp(folder)) is not None}
        return {folder: found[-1] for folder, found in before.items()} != {folder: found[-1] for folder, found in self._folders.items()}

    def _sweep(self) -> bool:
        """Look at all files and folders; whether the folders are to be watched anew."""
        self._swept = time.monotonic()
        with self._lock:
            stamps = list(self._stamps.items())
        changed = {path for path, known in stamps if stamp(path) != known}
        anew = not self.polling and self._is_missed(changed)
        if anew:
            logger.warning("no events come from %s; its files are looked at every %g s instead", self.root, POLL_S)
            self.polling = True
        if not self._folders or any(stamp(folder) != known for folder, known in self._folders.items()):
            anew = self._other_folders() or anew
            self._relist(doubting=True)
        else:
            self._consider(changed, doubting=True)
        return anew

    def _is_missed(self, changed: set[Path]) -> bool:
        """Whether one of them changed so long ago that an event should have told."""
        old = time.time() - SWEEP_S / 2
        return any((now := stamp(path)) is not None and now[1] / 1e9 < old for path in changed - set(self._doubted))

    def _relist(self, *, doubting: bool) -> None:
        settings = settings_of(self.root)
        self._errors = [] if settings.problem is None else [SourceError(file="pyproject.toml", line=1, message=settings.problem)]
        listed = set(scanned_files(self.root, settings))
        with self._lock:
            known = set(self._files)
            moved = {path for path in listed & known if stamp(path) != self._stamps.get(path)}
            self._consider({*(listed - known), *(known - listed), *moved, *self._doubted}, doubting=doubting, listed=listed)

    def _consider(self, paths: Iterable[Path], *, doubting: bool, listed: set[Path] | None = None) -> None:
        workspace = Workspace(self.root)
        with self._lock:  # whoever asks at the same time sees a change either not at all or as told
            for path in sorted(paths):
                state = self._read(workspace, path, doubting=doubting, gone=listed is not None and path not in listed)
                if state is not None:
                    self._on_file(state)

    def _read(self, workspace: Workspace, path: Path, *, doubting: bool, gone: bool) -> FileState | None:
        """The new state of a file; None when it is the old one or waits to be still."""
        known = self._files.get(path)
        before = stamp(path)
        found = None if gone else _content(path)
        if found == (known.digest if known else None):
            self._doubted.pop(path, None)
            self._stamps[path] = before
            return None
        state = None if found is None else _state_of(workspace, path, found, known)
        if doubting and self._is_doubted(path, found, known, state):
            return None
        self._doubted.pop(path, None)
        if state is None:
            self._files.pop(path, None)
            self._stamps.pop(path, None)
            return FileState(file=known.file if known else path.name, digest="")
        self._files[path] = state
        self._stamps[path] = before
        return state

    def _is_doubted(self, path: Path, found: str | None, known: FileState | None, state: FileState | None) -> bool:
        kept = {info.qualname for info in state.functions} if state else set[str]()
        if state is not None and state.error is None and (known is None or {info.qualname for info in known.functions} <= kept):
            return False
        seen, since = self._doubted.get(path, (None, 0.0))
        if path not in self._doubted or seen != found:
            since = time.monotonic()
            self._doubted[path] = (found, since)
        return time.monotonic() - since < DOUBT_S


def _content(path: Path) -> str | None:
    """The digest of a file's content, or what stands for one where there is a file and none can be had; None when there is no file."""
    try:
        if path.is_file():
            return digest(path.read_bytes())
    except OSError:
        return "not to be read" if os.path.lexists(path) else None
    return "no regular file" if os.path.lexists(path) else None


def _state_of(workspace: Workspace, path: Path, found: str, known: FileState | None) -> FileState:
    module = workspace.read(path)
    file = path.relative_to(workspace.root).as_posix() if path.is_relative_to(workspace.root) else path.as_posix()
    if module.errors:
        return FileState(file=file, digest=found, functions=known.functions if known else [], error=module.errors[0])
    return FileState(file=file, digest=found, functions=module.functions)
