"""Functions are kept as they are on disk, by events and by sweeps, and a save in two steps is one save."""

from __future__ import annotations

import os
import queue
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from openprogram_daemon.discovery import watcher as watching
from openprogram_daemon.discovery.watcher import FileState, Watcher
from openprogram_daemon.discovery.workspace import folders_of

FUNCTION = "from openprogram import agentic_function\n@agentic_function\ndef {}(): ...\n"
BOTH = pytest.mark.parametrize("events", [True, False], ids=["events", "sweeps"])


class Watched:
    """A watcher and what it told."""

    def __init__(self, root: Path, events: bool) -> None:
        self.told: queue.SimpleQueue[FileState] = queue.SimpleQueue()
        self.watcher = Watcher(root, self.told.put, events=events)

    def names(self) -> dict[str, list[str]]:
        """Function names by file, as the watcher knows them."""
        found: dict[str, list[str]] = {}
        for info in self.watcher.functions().functions:
            found.setdefault(info.file, []).append(info.name)
        return found

    def next(self) -> FileState:
        return self.told.get(timeout=15)

    def drain(self) -> list[FileState]:
        found: list[FileState] = []
        while not self.told.empty():
            found.append(self.told.get())
        return found


@contextmanager
def watched(root: Path, *, events: bool = True) -> Generator[Watched]:
    found = Watched(root, events)
    found.watcher.start()
    try:
        found.drain()
        yield found
    finally:
        found.watcher.stop()
        found.watcher.join()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


@BOTH
def test_a_save_is_told_with_the_whole_file(tmp_path: Path, events: bool) -> None:
    """One told state per save, with every function of the file."""
    file = tmp_path / "a.py"
    file.write_text(FUNCTION.format("f"))
    with watched(tmp_path, events=events) as here:
        file.write_text(FUNCTION.format("f") + FUNCTION.format("g"))
        state = here.next()
        assert (state.file, [info.name for info in state.functions], state.error) == ("a.py", ["f", "g"], None)
        assert here.names() == {"a.py": ["f", "g"]}


@BOTH
def test_files_come_and_go(tmp_path: Path, events: bool) -> None:
    """New files, files in new folders, renamed and deleted ones."""
    with watched(tmp_path, events=events) as here:
        (tmp_path / "a.py").write_text(FUNCTION.format("f"))
        until(lambda: here.names() == {"a.py": ["f"]})
        (tmp_path / "new" / "deep").mkdir(parents=True)
        (tmp_path / "new" / "deep" / "b.py").write_text(FUNCTION.format("g"))
        until(lambda: here.names() == {"a.py": ["f"], "new/deep/b.py": ["g"]})
        (tmp_path / "new" / "deep" / "b.py").write_text(FUNCTION.format("h"))
        until(lambda: here.names() == {"a.py": ["f"], "new/deep/b.py": ["h"]})
        (tmp_path / "a.py").rename(tmp_path / "c.py")
        until(lambda: here.names() == {"c.py": ["f"], "new/deep/b.py": ["h"]})
        (tmp_path / "c.py").unlink()
        until(lambda: here.names() == {"new/deep/b.py": ["h"]})
        assert [state.functions for state in here.drain() if state.file == "c.py"][-1] == []


def test_content_judges(tmp_path: Path) -> None:
    """A touch and the same text again are no change; a file renamed over another is one."""
    file = tmp_path / "a.py"
    file.write_text(FUNCTION.format("f"))
    with watched(tmp_path) as here:
        os.utime(file)
        file.write_text(FUNCTION.format("f"))
        (tmp_path / "a.tmp").write_text(FUNCTION.format("g"))
        (tmp_path / "a.tmp").rename(file)
        assert [info.name for info in here.next().functions] == ["g"]
        assert here.drain() == []


def test_a_save_in_two_steps_is_one(tmp_path: Path) -> None:
    """Functions that vanish and come back at once never vanished; nor does half a file show an error."""
    file = tmp_path / "a.py"
    whole = FUNCTION.format("f") + FUNCTION.format("g")
    file.write_text(whole)
    with watched(tmp_path) as here:
        for half in ("", FUNCTION.format("f"), "def f(:\n"):
            file.write_text(half)
            time.sleep(3 * watching.SETTLE_S)  # longer than a file that is still takes, shorter than one that is doubted
            file.write_text(whole)
        file.write_text(whole + FUNCTION.format("h"))
        state = here.next()
        assert [info.name for info in state.functions] == ["f", "g", "h"] and state.error is None
        assert here.drain() == []


def test_functions_that_stay_away_are_gone(tmp_path: Path) -> None:
    """They are told as gone after the time of doubt, and at once to whoever asks for what is on disk now."""
    file = tmp_path / "a.py"
    file.write_text(FUNCTION.format("f") + FUNCTION.format("g"))
    with watched(tmp_path) as here:
        began = time.monotonic()
        file.write_text(FUNCTION.format("f"))
        assert [info.name for info in here.next().functions] == ["f"]
        assert time.monotonic() - began >= watching.DOUBT_S
        file.write_text(FUNCTION.format("k"))
        here.watcher.refresh()
        assert here.names() == {"a.py": ["k"]}


def test_a_broken_file_keeps_the_functions_it_had(tmp_path: Path) -> None:
    """Its error stands on its line until it is mended; other files are not touched."""
    (tmp_path / "a.py").write_text(FUNCTION.format("f"))
    (tmp_path / "b.py").write_text(FUNCTION.format("g"))
    with watched(tmp_path) as here:
        (tmp_path / "a.py").write_text("x = 1\ndef f(:\n")
        error = here.next().error
        assert error is not None and (error.file, error.line) == ("a.py", 2)
        assert here.names() == {"a.py": ["f"], "b.py": ["g"]}
        assert here.watcher.functions().errors == [error]
        (tmp_path / "a.py").write_text(FUNCTION.format("f"))
        assert here.next().error is None
        assert here.watcher.functions().errors == []


def test_what_is_not_the_users_own_is_not_watched(tmp_path: Path) -> None:
    """Environments, node_modules, hidden and git-ignored folders: neither their files nor their folders are looked at."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("ignored/\ngenerated.py\n")
    for name in (".venv", "env", "node_modules", ".hidden", "ignored", "kept"):
        (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "ignored" / "inner" / "a.py").write_text(FUNCTION.format("f"))
    assert folders_of(tmp_path) == [tmp_path, tmp_path / "kept", tmp_path / "kept" / "inner"]
    with watched(tmp_path) as here:
        for place in (".venv", "env", "node_modules", ".hidden", "ignored"):
            (tmp_path / place / "inner" / "a.py").write_text(FUNCTION.format("f"))
        (tmp_path / "generated.py").write_text(FUNCTION.format("f"))
        (tmp_path / "kept" / "inner" / "a.py").write_text(FUNCTION.format("f"))
        assert here.next().file == "kept/inner/a.py"
        here.watcher.refresh()
        assert here.names() == {"kept/inner/a.py": ["f"]} and here.drain() == []


def test_a_sweep_finds_what_no_event_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a mount gives no events, the change is found all the same, and from then on sweeps come often."""
    file = tmp_path / "a.py"
    file.write_text(FUNCTION.format("f"))
    monkeypatch.setattr(watching, "SWEEP_S", 0.2)
    monkeypatch.setattr(watching, "DOUBT_S", 0.0)
    deaf = tmp_path / "elsewhere"
    deaf.mkdir()
    found = Watched(tmp_path, events=True)
    monkeypatch.setattr(watching, "folders_of", lambda _: [deaf])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    found.watcher.start()
    try:
        for number in range(100):
            file.write_text(FUNCTION.format(f"g{number}"))
            until(lambda: found.names() == {"a.py": [f"g{number}"]})  # noqa: B023 - asked within this turn
            if found.watcher.polling:
                break
        assert found.watcher.polling
    finally:
        found.watcher.stop()
        found.watcher.join()


def test_a_root_that_vanishes_ends_nothing(tmp_path: Path) -> None:
    """A folder that is moved away has no functions; when it is back they are."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.py").write_text(FUNCTION.format("f"))
    with watched(root) as here:
        root.rename(tmp_path / "moved")
        until(lambda: here.names() == {})
        (tmp_path / "moved").rename(root)
        until(lambda: here.names() == {"a.py": ["f"]})
