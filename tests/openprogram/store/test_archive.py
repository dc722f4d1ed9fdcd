"""Sessions that are renamed, deleted, taken elsewhere and brought back, over every store that can."""

from __future__ import annotations

import contextlib
import datetime
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from openprogram.context.call import Branch, Call, Close, Frame, new_id
from openprogram.errors import StoreError, UnknownSessionError, UsageError
from openprogram.store.memory import MemoryStore
from openprogram.store.retention import prune
from openprogram.store.sqlite import SqliteStore
from openprogram.store.transfer import export_session, import_session
from tests.openprogram.store.support import closed, opened

Kept = SqliteStore | MemoryStore
BACKENDS: dict[str, Callable[[Path], Kept]] = {"memory": lambda _: MemoryStore(), "sqlite": SqliteStore}


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Kept]:
    """An empty store."""
    with contextlib.closing(BACKENDS[request.param](path)) as made:
        yield made


@pytest.fixture(params=BACKENDS)
def another(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """A second one."""
    with contextlib.closing(BACKENDS[request.param](tmp_path / "another.sqlite3")) as made:
        yield made


def everything(store: Kept, session: str) -> dict[str, Any]:
    """All that a store says of a session, through its public methods."""
    nodes = store.page(session, limit=10_000)
    branches = store.branches(session)
    frames = sorted({node.frame for node in nodes} | {branch.id for branch in branches})
    return {
        "info": store.session(session),
        "nodes": nodes,
        "branches": branches,
        "frames": {frame: store.frame(frame) for frame in frames},
        "logs": {frame: list(store.log(frame)) for frame in frames},
    }


def rich(store: Kept, session: str = "s") -> None:
    """A session with nested frames, branches, an error, long and odd values."""
    info = store.create_session(session, title="title \ud800\0")
    owner = Call(id=new_id("code"), session=session, role="code", name="outer", frame=info.frame, input={"big": 10**400, "text": "ä" * 3000}, started_at=1.5)
    frame = Frame(id=new_id("frame"), session=session, parent=info.frame, owner=owner.id)
    store.append(owner, opens=frame)
    odd = {"nan": float("inf"), "bytes": b"\0\xff", "lines": "a\u2028b\x0cc\r\nd", "$type": "mine", 1: (2, {3}), "no": None, "lone": "\udfff"}
    inner = store.append(Call(id=new_id("llm"), session=session, role="llm", name="m\0", frame=frame.id, input=odd, caller=owner.id, metadata={"a": 1}))
    store.finish(Close(id=inner.id, status="error", metadata={"error": {"message": "no"}}, enters=True, ended_at=2.5))
    store.finish(Close(id=owner.id, status="completed", output="x" * 5000, exchanges=({"y": "ä" * 3000},), enters=True, ended_at=3.5))
    branch = store.open_branch(Branch(id=new_id("frame"), session=session, name="other", parent=info.frame, base=1))
    store.append(Call(id=new_id("user"), session=session, role="user", name="", frame=branch.id, input="x" * 5000, status="completed"))


def test_renaming_gives_another_title(store: Kept) -> None:
    """A session keeps its id and everything else; any title does, and an unknown session is named."""
    rich(store)
    before = everything(store, "s")
    for title in ("new", "", "\ud800 \0 title"):
        assert store.rename_session("s", title).title == title
        assert store.session("s").title == title
    store.rename_session("s", "title \ud800\0")
    assert everything(store, "s") == before
    with pytest.raises(UnknownSessionError, match="nowhere"):
        store.rename_session("nowhere", "x")


def test_a_deleted_session_is_gone_and_others_are_not(store: Kept) -> None:
    """Nothing of a deleted session is left; others keep what they share with it; the id may be used anew."""
    rich(store, "kept")
    rich(store, "gone")
    kept, gone = everything(store, "kept"), everything(store, "gone")
    assert store.delete_session("gone") == gone["info"]
    assert everything(store, "kept") == kept
    assert store.nodes([node.id for node in gone["nodes"]]) == []
    assert [store.frame(frame) for frame in gone["frames"]] == [None] * len(gone["frames"])
    assert not any(store.log(frame) for frame in gone["frames"])
    assert [info.id for info in store.sessions()] == ["kept"]
    for use in (store.session, store.page, store.delete_session):
        with pytest.raises(UnknownSessionError, match="gone"):
            use("gone")
    assert closed(store, "gone").seq == 1


def test_a_session_in_use_is_not_deleted(store: Kept) -> None:
    """While a call runs in it a session stays, and the error says so; by force it goes, and what the call then writes is refused."""
    call = opened(store)
    with pytest.raises(StoreError, match=r"'s' is in use: 1 call of .* is running"):
        store.delete_session("s")
    assert store.session("s").nodes == 1
    store.delete_session("s", force=True)
    with pytest.raises(StoreError):
        store.finish(Close(id=call.id, status="completed"))
    assert store.sessions() == []


def test_a_dead_call_keeps_no_session(path: Path) -> None:
    """A call whose process is dead does not hold its session."""
    program = (
        "import sys, os; from openprogram.store.sqlite import SqliteStore; from tests.openprogram.store.support import opened;"
        "opened(SqliteStore(sys.argv[1])); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60, cwd=Path(__file__).parents[3])
    with contextlib.closing(SqliteStore(path)) as store:
        assert store.delete_session("s").nodes == 1


@pytest.mark.parametrize("session_id", [None, "new name"])
def test_f12_a_session_comes_back_from_a_file(store: Kept, another: Kept, tmp_path: Path, session_id: str | None) -> None:
    """f12: an exported session reads back node by node as it was, in any store, under its id or another; line breaks inside values break no line."""
    rich(store)
    rich(store, "other")
    running = opened(store)
    before = everything(store, "s")
    file = tmp_path / "s.jsonl"
    assert export_session(store, "s", file) == before["info"]
    lines = file.read_bytes().split(b"\n")
    assert [next(iter(json.loads(line))) for line in lines[:-1]].count("node") == 4
    info = import_session(another, file, session_id=session_id)
    after = everything(another, info.id)
    assert info.id == (session_id or "s")
    read = json.loads(json.dumps(repr(after)).replace("'new name'", "'s'"))
    assert read == repr(before).replace("status='running'", "status='interrupted'")
    assert closed(another, info.id).seq == 5
    assert running.seq == 4


def test_an_import_replaces_nothing(store: Kept, tmp_path: Path) -> None:
    """A session that is there, or whose nodes are there under another id, is not imported; once it is deleted it is."""
    rich(store)
    file = tmp_path / "s.jsonl"
    export_session(store, "s", file)
    before = everything(store, "s")
    for session_id in (None, "new"):
        with pytest.raises(StoreError, match="already"):
            import_session(store, file, session_id=session_id)
    assert [info.id for info in store.sessions()] == ["s"]
    store.delete_session("s")
    import_session(store, file)
    assert everything(store, "s") == before


def no_end(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def half_a_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-2], lines[-2][:-10]]


def no_beginning(lines: list[bytes]) -> list[bytes]:
    return lines[1:]


def node_missing(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if b'"role":"llm"' not in line]


def node_twice(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], *(line for line in lines if b'"role":"llm"' in line), lines[-1]]


def newer(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"openprogram":1', b'"openprogram":2'), *lines[1:]]


def text(_: list[bytes]) -> list[bytes]:
    return [b"hello\n"]


def nothing(_: list[bytes]) -> list[bytes]:
    return []


BROKEN = [no_end, half_a_line, no_beginning, node_missing, node_twice, newer, text, nothing]


@pytest.mark.parametrize("damage", BROKEN)
def test_a_damaged_file_is_refused_whole(store: Kept, tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]]) -> None:
    """A file that is cut off, does not fit together or is none of ours is an error with its name, and nothing of it is imported."""
    rich(store)
    file = tmp_path / "s.jsonl"
    export_session(store, "s", file)
    store.delete_session("s")
    file.write_bytes(b"".join(damage(file.read_bytes().splitlines(keepends=True))))
    with pytest.raises(StoreError, match=r"s\.jsonl"):
        import_session(store, file)
    assert store.sessions() == []


@pytest.mark.parametrize("session_id", ["../evil", "a/b", ".", "x" * 300])
def test_f17_an_import_checks_the_id(store: Kept, tmp_path: Path, session_id: str) -> None:
    """f17: an id that no session may have is refused, given or in the file."""
    rich(store)
    file = tmp_path / "s.jsonl"
    export_session(store, "s", file)
    with pytest.raises(UsageError, match="session id"):
        import_session(store, file, session_id=session_id)
    file.write_text(file.read_text("utf-8").replace('"id":"s"', json.dumps({"id": session_id})[1:-1].replace(": ", ":"), 1), "utf-8")
    with pytest.raises(UsageError, match="session id"):
        import_session(store, file)


def test_f20_an_export_is_whole_whenever_it_is_there(store: Kept, tmp_path: Path) -> None:
    """f20: many exports of one session to one file at once leave one whole file and nothing beside it; a failed one leaves the older."""
    rich(store)
    folder = tmp_path / "exports"
    folder.mkdir()
    file = folder / "s.jsonl"
    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(export_session, store, "s", file) for _ in range(24)]:
            future.result()
    with pytest.raises(UnknownSessionError):
        export_session(store, "nowhere", file)
    assert list(folder.iterdir()) == [file]
    store.delete_session("s")
    assert import_session(store, file).nodes == 3


def aged(store: Kept, *ids: str) -> None:
    """Sessions, the first written first."""
    for session_id in ids:
        closed(store, session_id)


def test_retention_keeps_the_newest(store: Kept) -> None:
    """Beyond the number to keep the oldest go; a dry run says which and deletes none; one that is in use stays and is told."""
    aged(store, "a", "b", "c", "d")
    opened(store, "b")
    assert [info.id for info in prune(store, keep=1, dry_run=True).deleted] == ["a", "c", "d"]
    assert len(store.sessions()) == 4
    pruned = prune(store, keep=1)
    assert [info.id for info in pruned.deleted] == ["a", "c", "d"]
    aged(store, "e")
    pruned = prune(store, keep=0)
    assert [info.id for info in pruned.in_use] == ["b"]
    assert [info.id for info in store.sessions()] == ["b"]


def test_retention_by_age(store: Kept) -> None:
    """What was last written longer ago than a time goes, whether that is given in seconds or as a timedelta."""
    aged(store, "a", "b")
    assert prune(store, older_than=datetime.timedelta(hours=1)).deleted == []
    assert prune(store, older_than=3600.0, keep=5).deleted == []
    assert [info.id for info in prune(store, older_than=0).deleted] == ["a", "b"]
    assert store.sessions() == []


@pytest.mark.parametrize("options", [{}, {"keep": -1}, {"older_than": -1.0}, {"older_than": float("nan")}])
def test_retention_wants_to_know(store: Kept, options: dict[str, Any]) -> None:
    """Without a limit, or with a senseless one, nothing is deleted and the error says what to give."""
    aged(store, "a")
    with pytest.raises(UsageError):
        prune(store, **options)
    assert len(store.sessions()) == 1


def test_retention_of_many(store: Kept) -> None:
    """More sessions than are listed at once are all looked at."""
    for number in range(1100):
        store.create_session(f"s{number}")
    assert len(prune(store, keep=3).deleted) == 1097
    assert len(store.sessions(limit=2000)) == 3
