"""Files that are no store, or may not be read or written: each is named and left alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openprogram.context.call import Call
from openprogram.errors import StoreCorruptError, StoreError, StoreVersionError
from openprogram.store import files
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.store.support import closed, contents, raw


def text_file(path: Path) -> None:
    path.write_text("hello", encoding="utf-8")


def long_text_file(path: Path) -> None:
    path.write_text("hello world " * 1000, encoding="utf-8")


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path)


def other_program(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def newer(path: Path) -> None:
    SqliteStore(path).close()
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 99")


def cut(path: Path) -> None:
    with contextlib.closing(SqliteStore(path)) as store:
        closed(store)
    os.truncate(path, 3000)


BAD: list[tuple[Callable[[Path], None], type[StoreError], str]] = [
    (text_file, StoreCorruptError, "no SQLite database"),
    (long_text_file, StoreCorruptError, "no SQLite database"),
    (cut, StoreCorruptError, "damaged"),
    (folder, StoreError, "folder"),
    (loop, StoreError, "symbolic link"),
    (other_program, StoreError, "another program"),
    (newer, StoreVersionError, "version 99"),
]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(("make", "kind", "words"), BAD, ids=[case[0].__name__ for case in BAD])
def test_f25_what_is_no_store_is_named_and_left_alone(path: Path, make: Callable[[Path], None], kind: type[StoreError], words: str, read_only: bool) -> None:
    """f25: a file that is not a store, or of a newer version, is an error with its path and the reason, and is not written to."""
    make(path)
    before = contents(path.parent)
    for _ in range(2):
        with pytest.raises(StoreError, match=words) as caught:
            SqliteStore(path, read_only=read_only)
        assert type(caught.value) is kind
        assert str(path) in str(caught.value)
    after = contents(path.parent)
    assert {name: after[name] for name in before} == before
    # SQLite needs these two to read a file that was in WAL mode.
    assert set(after) - set(before) <= ({path.name + "-wal", path.name + "-shm"} if read_only else set())


def test_f25_a_missing_folder_is_named(tmp_path: Path) -> None:
    """f25: a store is not made together with a folder that may be a typing mistake."""
    with pytest.raises(StoreError, match=r"no folder .*missing.* create it"):
        SqliteStore(tmp_path / "missing" / "store.sqlite3")
    assert list(tmp_path.iterdir()) == []


def test_f25_an_empty_file_becomes_a_store(path: Path) -> None:
    """f25: a file of 0 bytes is a new store, and becomes private."""
    path.touch(0o644)
    with contextlib.closing(SqliteStore(path)) as store:
        assert closed(store).seq == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_f25_zeroed_pages_are_reported_where_they_are_met(path: Path) -> None:
    """f25: whichever page of the file is zeroed, each call either works or raises an error with the path; some of the file is still read."""
    with contextlib.closing(SqliteStore(path)) as store:
        calls = [closed(store, input="x" * 900) for _ in range(40)]
    whole = path.read_bytes()
    outcomes: list[str] = []
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        outcomes.append(outcome_of_use(path, calls))
    assert {"damaged", "readable"} <= set(outcomes)


def outcome_of_use(path: Path, calls: list[Call]) -> str:
    """``damaged`` when the use of a store fails as promised."""
    try:
        with contextlib.closing(SqliteStore(path)) as store:
            store.sessions()
            for call in calls:
                store.node(call.id)
            store.page("s")
    except StoreError as error:
        assert str(path) in str(error)
        assert type(error) is StoreCorruptError or "no session" in str(error)
        return "damaged"
    return "readable"


UNREADABLE = """
import os, sys
from openprogram.errors import StoreError
from openprogram.store.sqlite import SqliteStore
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    store = SqliteStore(sys.argv[1])
    print([call.name for call in store.page("s")])
except StoreError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter."""
    made = Path(tempfile.mkdtemp(prefix="openprogram-test-"))
    made.chmod(0o755)
    yield made
    made.chmod(0o700)
    shutil.rmtree(made)


def as_somebody(path: Path) -> str:
    """What a user who is not root sees who opens the store."""
    return subprocess.run([sys.executable, "-c", UNREADABLE, str(path)], capture_output=True, text=True, check=True, timeout=60).stdout


def test_f25_a_file_without_permission_is_named(open_folder: Path) -> None:
    """f25: a file of mode 000 is an error with the path that speaks of permissions."""
    path = open_folder / "store.sqlite3"
    SqliteStore(path).close()
    path.chmod(0)
    before = path.read_bytes() if os.geteuid() == 0 else None
    said = as_somebody(path)
    assert said.startswith("StoreError")
    assert str(path) in said
    assert "permission" in said
    assert before is None or path.read_bytes() == before


def test_a_folder_without_permission_is_named(open_folder: Path) -> None:
    """A folder on the way that may not be entered is an error that names it and how to give oneself the permission."""
    closed_folder = open_folder / "with space"
    closed_folder.mkdir(mode=0)
    assert f"you may not enter {closed_folder}; give yourself the permission (chmod u+rwx '{closed_folder}')" in as_somebody(closed_folder / "store.sqlite3")


@pytest.mark.parametrize("inner", ["store.sqlite3", "deeper/store.sqlite3"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, inner: str) -> None:
    """A path through a file is an error that says which, both when it is opened and when somebody asks whether a store is there."""
    (tmp_path / "file").touch()
    for use in (SqliteStore, files.exists):
        with pytest.raises(StoreError, match="file is no folder"):
            use(tmp_path / "file" / inner)


def test_whether_a_store_is_there(path: Path) -> None:
    """A missing file or folder is no error, only not there."""
    assert not files.exists(path)
    assert not files.exists(path / "deeper")
    path.touch()
    assert files.exists(path)


def test_a_file_without_write_permission_is_read(open_folder: Path) -> None:
    """A store that may only be read, in a folder that may only be read, can be read."""
    path = open_folder / "store.sqlite3"
    with contextlib.closing(SqliteStore(path)) as store:
        closed(store, name="visible")
    path.chmod(0o444)
    path.with_name(path.name + "-lock").chmod(0)
    open_folder.chmod(0o555)
    assert as_somebody(path).startswith("['visible']")


@pytest.mark.parametrize("where", ["a\0b", "x" * 300])
def test_a_path_that_cannot_be_is_named(tmp_path: Path, where: str) -> None:
    """A file name that the system refuses is a StoreError."""
    with pytest.raises(StoreError, match=r"cannot be (opened|created)"):
        SqliteStore(tmp_path / where)
