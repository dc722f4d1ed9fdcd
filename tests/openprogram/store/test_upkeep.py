"""The file of a store looked after: what is wrong with it is found, what it no longer needs is given back, also while others write."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from openprogram.context.call import Call, Close, Frame
from openprogram.errors import StoreError
from openprogram.store import vacuum as vacuums
from openprogram.store.check import Finding, check
from openprogram.store.migrations import FIRST, MIGRATIONS, SECOND
from openprogram.store.sqlite import SqliteStore
from openprogram.store.vacuum import vacuum
from tests.openprogram.store.support import closed, opened, raw


def long_text(number: int) -> str:
    """A text that is kept apart from its node, and does not get shorter."""
    return f"{number} {os.urandom(3000).hex()}"


@pytest.fixture
def filled(path: Path) -> Iterator[SqliteStore]:
    """A store with nested frames, logs and long values."""
    with contextlib.closing(SqliteStore(path)) as store:
        info = store.create_session("s")
        owner = Call(id="code-owner", session="s", role="code", name="f", frame=info.frame)
        store.append(owner, opens=Frame(id="frame-inner", session="s", parent=info.frame, owner=owner.id))
        for number in range(3):
            call = Call(id=f"llm-{number}", session="s", role="llm", name="m", frame="frame-inner", caller=owner.id, input=long_text(number))
            store.append(call)
            store.finish(Close(id=call.id, status="completed", output=number, enters=True))
        store.finish(Close(id=owner.id, status="completed", enters=True))
        closed(store, input="short")
        yield store


def test_a_whole_store_has_no_findings(filled: SqliteStore, path: Path) -> None:
    """Nothing is found in a store as it is written, open or not, with running nodes, an index, and after everything that tidies it."""
    opened(filled)
    assert check(filled) == check(path) == []
    filled.index()
    filled.delete_session("s", force=True)
    closed(filled, "t", input=long_text(1))
    vacuum(filled)
    assert check(filled) == []


DAMAGE = {
    "UPDATE nodes SET input = '{' WHERE id = 'llm-1'": ("value", "node llm-1", "input cannot be read"),
    "DELETE FROM payloads WHERE rowid = 2": ("value", "node llm-1", "which is missing"),
    "UPDATE payloads SET json = '\"other\"' WHERE rowid = 2": ("value", "payload", "its hash is another"),
    "UPDATE payloads SET json = x'00' WHERE rowid = 2": ("value", "payload", "damaged"),
    "UPDATE nodes SET caller = 'code-none' WHERE id = 'llm-1'": ("edge", "llm-1", "was called by code-none"),
    "UPDATE nodes SET predecessor = 'code-none' WHERE id = 'llm-1'": ("edge", "llm-1", "follows code-none"),
    "UPDATE nodes SET frame = 'frame-none' WHERE id = 'llm-1'": ("edge", "llm-1", "in frame frame-none"),
    "UPDATE nodes SET session = 'none' WHERE id = 'llm-1'": ("edge", "llm-1", "in session 'none'"),
    "UPDATE nodes SET reads_frame = 'frame-none' WHERE id = 'llm-1'": ("edge", "llm-1", "reads frame frame-none"),
    "UPDATE nodes SET reads_upto = 99 WHERE id = 'llm-1'": ("edge", "llm-1", "reads 99 entries"),
    "DELETE FROM nodes WHERE id = 'llm-1'": ("edge", "frame-inner", "holds node llm-1"),
    "DELETE FROM log WHERE node = 'llm-1'": ("edge", "frame-inner", "has gaps"),
    "UPDATE frames SET parent = 'frame-none' WHERE id = 'frame-inner'": ("edge", "frame-inner", "parent frame-none"),
    "UPDATE frames SET owner = 'code-none' WHERE id = 'frame-inner'": ("edge", "frame-inner", "belongs to node code-none"),
    "UPDATE frames SET base = 99 WHERE id = 'frame-inner'": ("edge", "frame-inner", "after entry 99"),
    "UPDATE frames SET session = 'none' WHERE id = 'frame-inner'": ("edge", "frame-inner", "in session 'none'"),
    "UPDATE sessions SET frame = 'frame-none'": ("edge", "s", "no main branch"),
    "UPDATE sessions SET next_seq = 99": ("edge", "s", "98 nodes"),
    "INSERT INTO branches VALUES ('frame-none', 's', 'b', 0)": ("edge", "frame-none", "no frame"),
    "INSERT INTO log VALUES ('frame-none', 0, 'llm-1', 0)": ("edge", "frame-none", "log of frame frame-none"),
    "INSERT INTO runs VALUES ('run-1', x'00', 'f', 'w', 's', 'code-none', 'queued', '', 0, NULL, NULL)": ("edge", "run-1", "began with node code-none"),
}


@pytest.mark.parametrize(("statement", "finding"), DAMAGE.items())
def test_what_is_damaged_is_found(filled: SqliteStore, path: Path, statement: str, finding: tuple[str, str, str]) -> None:
    """Each way in which values and rows may not fit together is told, with the name of the row; what is found is never raised."""
    with raw(path) as connection:
        connection.execute(statement)
    kind, where, problem = finding
    found = check(path)
    assert any(one.kind == kind and where in one.where and problem in one.problem for one in found), found
    assert found == check(filled)


def test_damaged_pages_are_found(filled: SqliteStore, path: Path) -> None:
    """Whichever page is zeroed, the check ends and tells of it, unless the page held nothing."""
    for number in range(40):
        closed(filled, input="x" * 900 + str(number))
    filled.close()
    whole = path.read_bytes()
    with raw(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found: list[list[Finding]] = []
    for page in range(len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        found.append(check(path))
    assert sum(map(bool, found)) >= len(found) - 3
    assert any(one.kind == "file" for findings in found for one in findings)


def test_many_findings_are_counted(filled: SqliteStore, path: Path) -> None:
    """Of a thousand of a kind a hundred are told, and how many more there are."""
    with raw(path) as connection:
        connection.executemany("INSERT INTO log VALUES ('frame-inner', ?, 'code-none', 0)", [(position,) for position in range(3, 1003)])
    edges = [finding for finding in check(path) if "code-none" in finding.problem or "more like" in finding.problem]
    assert len(edges) == 101
    assert "900 more" in edges[-1].problem


@pytest.mark.parametrize("content", [b"hello", b"hello" * 2000, None])
def test_what_cannot_be_opened_is_a_finding(path: Path, content: bytes | None) -> None:
    """A file that is no store, or is not there, is a finding that names it."""
    if content is not None:
        path.write_bytes(content)
    (finding,) = check(path)
    assert finding.kind == "file"
    assert str(path) in finding.problem


def test_vacuum_gives_back_what_nobody_needs(path: Path) -> None:
    """Long texts of deleted sessions go, those that another session shares stay, the file shrinks, and what was deleted is nowhere in it."""
    shared = long_text(0)
    with contextlib.closing(SqliteStore(path)) as store:
        for number in range(300):
            closed(store, "gone", input=long_text(number), name="secret-name")
        closed(store, "gone", input=shared)
        kept = closed(store, "kept", input=shared)
        store.index()
        store.delete_session("gone")
        done = vacuum(store)
        assert done.texts == 300
        assert done.after == path.stat().st_size < done.before / 10
        assert store.node(kept.id) == kept
        assert b"secret-name" not in path.read_bytes()
        assert vacuum(store).texts == 0
        assert [hit.node for hit in store.search(shared[10:60])] == [kept.id]


def test_vacuum_beside_writers(path: Path) -> None:
    """While sessions are written, deleted and vacuumed at once, in two stores of one file, no node loses its long text."""
    texts = [long_text(number) for number in range(5)]
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(name: str, store: SqliteStore) -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                session = f"{name}-{number % 3}"
                for text in texts:
                    call = opened(store, session, input=text)
                    store.finish(Close(id=call.id, status="completed", output=text[::-1]))
                if number % 2:
                    store.delete_session(session)
        except BaseException as error:
            failures.append(error)

    with contextlib.closing(SqliteStore(path)) as store, contextlib.closing(SqliteStore(path)) as other:
        threads = [threading.Thread(target=write, args=("a", store)), threading.Thread(target=write, args=("b", other))]
        for thread in threads:
            thread.start()
        try:
            for _ in range(15):
                vacuum(store)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failures == []
        assert check(store) == []


def test_a_text_that_is_stored_again_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that was garbage when it was looked for, and that a node refers to by the time it would be deleted, stays."""
    text = long_text(0)
    with contextlib.closing(SqliteStore(path)) as store:
        waiting = opened(store, "kept")
        closed(store, "gone", input=text)
        closed(store, "gone", input=text[::-1])
        store.delete_session("gone")
        look = vacuums._look  # pyright: ignore[reportPrivateUsage]

        def and_then(connection: sqlite3.Connection) -> object:
            found = look(connection)
            if text:
                store.finish(Close(id=waiting.id, status="completed", output=text))
            return found

        monkeypatch.setattr(vacuums, "_look", and_then)
        assert vacuum(store).texts == 1
        read = store.node(waiting.id)
        assert read is not None
        assert read.output == text


def test_a_store_that_may_only_be_read_is_not_vacuumed(filled: SqliteStore, path: Path) -> None:
    """Vacuuming what may only be read is an error that says so."""
    assert vacuum(filled).texts == 0
    with contextlib.closing(SqliteStore(path, read_only=True)) as reader, pytest.raises(StoreError, match="may only be read"):
        vacuum(reader)


def old_store(path: Path, nodes: int) -> None:
    """A store of the second version, as it was written then."""
    with raw(path) as connection:
        for statement in (*FIRST, *SECOND, "PRAGMA user_version = 2", "PRAGMA journal_mode = WAL"):
            connection.execute(statement)
        connection.execute("INSERT INTO sessions VALUES ('s', 'title', 'frame-1', ?, 1.0, 2.0)", (nodes + 1,))
        connection.execute("INSERT INTO frames VALUES ('frame-1', 's', NULL, 0, NULL)")
        for number in range(1, nodes + 1):
            values = (f"code-{number}", "s", number, "code", "f", "frame-1", "completed", 1.0, 2.0, "other:1/1/1", f'"text {number}"', '{"a":1}')
            connection.execute(
                "INSERT INTO nodes (id, session, seq, role, name, frame, status, started, ended, owner, input, metadata) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                values,
            )
            connection.execute("INSERT INTO log VALUES ('frame-1', ?, ?, 0)", (number - 1, f"code-{number}"))
        connection.execute("UPDATE nodes SET input = x'01' WHERE seq = 1")
        connection.execute("INSERT INTO payloads VALUES (x'01', '\"long\"')")


def test_an_old_store_is_migrated_whole(path: Path) -> None:
    """A store of an older version reads after its migration as before, can be searched, written and vacuumed, and its copy is beside it."""
    old_store(path, 50)
    with contextlib.closing(SqliteStore(path)) as store:
        calls = store.page("s")
        assert [call.input for call in calls] == ["long", *(f"text {number}" for number in range(2, 51))]
        assert [entry.node for entry in store.log("frame-1")] == [call.id for call in calls]
        assert closed(store).seq == 51
        assert [hit.seq for hit in store.search("text 42")] == [42]
        assert [finding.where for finding in check(store)] == ["payload 01"]  # which this test made up
        store.delete_session("s")
        assert vacuum(store).texts == 1
        assert check(store) == []
    with raw(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    with raw(path.with_name(path.name + ".v2.bak")) as copy:
        assert copy.execute("PRAGMA user_version").fetchone() == (2,)
        assert copy.execute("SELECT count(*) FROM nodes").fetchone() == (50,)


def test_ids_are_told_apart(path: Path) -> None:
    """What is checked of one session says nothing of another."""
    with contextlib.closing(SqliteStore(path)) as store:
        for session in ("a", "b"):
            closed(store, session)
        with raw(path) as connection:
            connection.execute("UPDATE sessions SET next_seq = 9 WHERE id = 'a'")
        assert [finding.where for finding in check(store)] == ["a"]
