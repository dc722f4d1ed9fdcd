"""Finding nodes by what they say, over every store that can be searched, with its index up to date, behind, or not there."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openprogram.context.call import Close
from openprogram.context.messages import text_message
from openprogram.errors import UnknownSessionError, UsageError
from openprogram.store import search
from openprogram.store.base import Archive
from openprogram.store.memory import MemoryStore
from openprogram.store.sqlite import SqliteStore
from tests.openprogram.store.support import closed, opened, raw

Kept = SqliteStore | MemoryStore

WAYS = ["memory", "index up to date", "index behind", "index half way", "no index"]


class Searched:
    """A store and what brings its index to where a test wants it."""

    def __init__(self, store: Kept, way: str) -> None:
        self.store = store
        self._way = way

    def half_way(self) -> None:
        if isinstance(self.store, SqliteStore) and self._way == "index half way":
            self.store.index()

    def find(self, query: str, **options: Any) -> list[str]:
        """The names of the nodes that are found."""
        if isinstance(self.store, SqliteStore) and self._way == "index up to date":
            self.store.index()
        return [hit.name for hit in self.store.search(query, **options)]


@pytest.fixture(params=WAYS)
def searched(request: pytest.FixtureRequest, path: Path) -> Iterator[Searched]:
    """An empty store of each kind."""
    store: Kept = MemoryStore() if request.param == "memory" else SqliteStore(path, search_index=request.param == "index half way")
    with contextlib.closing(store):
        yield Searched(store, request.param)


TEXTS: list[tuple[Any, str, bool]] = [
    ("The quick brown fox", "quick", True),
    ("The quick brown fox", "QUICK fox", True),
    ("The quick brown fox", "quick wolf", False),
    ("progress was made", "gress", True),
    ("progress was made", "p", True),
    ("progress was made", "w", True),
    ("progress was made", "xy", False),
    ("the quick  brown\n\tfox", '"quick brown fox"', True),
    ("quick or brown", '"quick brown"', False),
    ("你好世界，再见", "你好", True),
    ("你好世界，再见", "世", True),
    ("你好世界，再见", "好世界", True),
    ("你好世界，再见", "世再", False),
    ("東京タワーに行きました", "タワー", True),
    ("서울에서 만나요", "울에", True),
    ("版本v2发布", "本v2发", True),
    ("ไม่เป็นไร", "เป็น", True),
    ("Crème Brûlée", "creme brulee", True),
    ("creme brulee", "Crème", True),
    ("Straße", "STRASSE", True),
    ("ＡＢＣ ｶﾅ", "abc カナ", True),
    ("Ελλάδα ΌΣΟΣ", "όσος", True),
    ("x -> y != z", "->", True),
    ("snake_case_name", "case_na", True),
    ("a/b/c.py:12", "b/c.py:12", True),
    ("100%", "100%", True),
    ("a\u2028b\x00c", "b", True),
    ({"city": "Paris", "rooms": [42, 3.5]}, "paris 42 3.5 city", True),
    ({"ok": True, "none": None}, "true", False),
    ("lone \ud800 surrogate", "surrogate", True),
    ({1: "int key"}, '"int key"', True),
    ({"when": datetime.date(2024, 2, 29)}, "2024-02-29", True),
    (b"bytes are no text", "bytes", False),
    ({"messages": [text_message("user", "say it")]}, '"say it"', True),
    ({"messages": [text_message("user", "say it")]}, "blocks", False),
    ("'; DROP TABLE nodes; --", '"DROP TABLE"', True),
    ('he said "stop" AND left NOT', "AND NOT stop", True),
    ("😀 party", "😀", True),
]


@pytest.mark.parametrize(("value", "query", "found"), TEXTS)
def test_what_occurs_is_found(searched: Searched, value: Any, query: str, found: bool) -> None:
    """Words, parts of words, phrases and text without spaces are found wherever they occur, whatever the case, accents and width; nothing else is."""
    closed(searched.store, name="other", input="something else altogether, 12")
    searched.half_way()
    closed(searched.store, name="this", input=value)
    assert searched.find(query) == (["this"] if found else [])


def test_every_part_of_a_node_is_searched(searched: Searched) -> None:
    """Name, input, output, exchanges and the error are searched, what else was noted is not; terms may stand in different parts, a phrase may not."""
    store = searched.store
    call = opened(store, name="alpha", input="beta", metadata={"model": "epsilon"})
    message = {"role": "tool", "blocks": [{"type": "tool_result", "text": "gamma", "id": "zeta", "name": "tool"}]}
    error = {"error": {"type": "EtaError", "message": "theta", "trace": "iota"}}
    store.finish(Close(id=call.id, status="error", output="delta", exchanges=(message,), metadata=error))
    for query in ("alpha", "beta", "gamma", "delta", "etaerror", "theta", "alpha delta theta", "tool"):
        assert searched.find(query) == ["alpha"], query
    for query in ("epsilon", "zeta", "iota", '"alpha beta"', '"beta delta"', "tool_result"):
        assert searched.find(query) == [], query


def test_data_in_messages_is_not_searched(searched: Searched) -> None:
    """An image in a message is not searched for words, the text beside it is."""
    blocks = [{"type": "image", "data": "word" * 1000, "media_type": "image/png"}, {"type": "text", "text": "caption"}, "data:image/png;base64,wordword"]
    closed(searched.store, name="this", input={"messages": [{"role": "user", "blocks": blocks}]})
    assert searched.find("word") == []
    assert searched.find("caption") == ["this"]


def test_the_newest_comes_first(searched: Searched) -> None:
    """Nodes come in the order in which they were written, the newest first, over all sessions or one; limit and offset cut the list."""
    for number in range(6):
        closed(searched.store, f"s{number % 2}", name=f"n{number}", input="same")
        if number == 2:
            searched.half_way()
    assert searched.find("same") == ["n5", "n4", "n3", "n2", "n1", "n0"]
    assert searched.find("same", limit=2, offset=1) == ["n4", "n3"]
    assert searched.find("same", session="s1") == ["n5", "n3", "n1"]
    assert searched.find("same", limit=0) == []
    with pytest.raises(UnknownSessionError):
        searched.find("same", session="nowhere")


def test_what_runs_is_found_and_found_again(searched: Searched) -> None:
    """A running node is found by its input at once, and by its output once it ended, also when others were written and indexed meanwhile."""
    store = searched.store
    running = opened(store, name="slow", input="question")
    assert searched.find("question") == ["slow"]
    closed(store, name="quick", input="question")
    searched.half_way()
    assert searched.find("question") == ["quick", "slow"]
    assert searched.find("answer") == []
    store.finish(Close(id=running.id, status="completed", output="the answer"))
    assert searched.find("answer") == ["slow"]
    assert searched.find("question answer") == ["slow"]


@pytest.mark.parametrize("query", ["", "  ", '""', '"', "\0", "\u0301"])
def test_nothing_to_look_for_is_a_usage_error(searched: Searched, query: str) -> None:
    """A query without a word says what to give."""
    with pytest.raises(UsageError, match="search"):
        searched.find(query)


def test_long_values_and_long_queries(searched: Searched) -> None:
    """The end of a long value is found, and so is a query as long as a page; what lies beyond a million characters is not searched."""
    text = " ".join(f"word{number}" for number in range(100_000))
    for name, value in (("long", text[: search.MOST_TEXT - 100]), ("longer", "y" * search.MOST_TEXT)):
        call = opened(searched.store, name=name, input=value)
        searched.store.finish(Close(id=call.id, status="completed", output="needle"))
    assert searched.find("needle") == ["long"]
    assert searched.find(text[500:5000]) == ["long"]
    assert searched.find(f'"{text[500:5000]}"') == ["long"]


@pytest.mark.parametrize(
    ("text", "query", "excerpt"),
    [
        ("short", "SHORT", "short"),
        ("a\n b\tc", '"b c"', "a b c"),
        ("x" * 500 + " needle " + "y" * 500, "needle", "…" + "x" * 39 + " needle " + "y" * 113 + "…"),
        ("é" * 500 + " Nädel " + "y" * 500, "nadel", "…" + "é" * 39 + " Nädel " + "y" * 114 + "…"),
        ("你" * 300 + "好" + "们" * 300, "你好", "…" + "你" * 41 + "好" + "们" * 118 + "…"),
    ],
)
def test_an_excerpt_shows_the_place(text: str, query: str, excerpt: str) -> None:
    """A hit shows one line around what was looked for, as it was written."""
    store = MemoryStore()
    closed(store, input=text)
    (hit,) = store.search(query)
    assert hit.excerpt == excerpt
    assert (hit.session, hit.seq, hit.role, hit.status) == ("s", 1, "code", "completed")


def indexed(path: Path) -> tuple[int, int]:
    """Up to which node the file's index goes, and how many wait."""
    with raw(path) as connection:
        return connection.execute("SELECT indexed, (SELECT count(*) FROM unindexed) FROM upkeep").fetchone()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_index_follows_by_itself(path: Path) -> None:
    """Nodes are indexed soon after they are written, by whoever has the store open, and no write waits for it; a running one waits for its end."""
    with contextlib.closing(SqliteStore(path)) as store:
        running = opened(store)
        for number in range(100):
            closed(store, input=f"word{number}")
        until(lambda: indexed(path) == (101, 1))
        store.finish(Close(id=running.id, status="completed", output="late"))
        until(lambda: indexed(path) == (101, 0))
        assert [hit.node for hit in store.search("late")] == [running.id]
        with raw(path) as connection:
            connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def test_what_one_process_left_another_indexes(path: Path) -> None:
    """What was written by one who closed at once is indexed by the next who writes."""
    with contextlib.closing(SqliteStore(path, search_index=False)) as store:
        for _ in range(70):
            closed(store)
    assert indexed(path) == (0, 0)
    with contextlib.closing(SqliteStore(path)) as store:
        closed(store)
        until(lambda: indexed(path) == (71, 0))


def test_a_deleted_session_is_not_found_and_its_place_is_taken(searched: Searched) -> None:
    """Nodes of a deleted session are not found, and nodes that are given their numbers are, under their own words only."""
    for session, text in (("kept", "apple"), ("gone", "banana")):
        for number in range(3):
            closed(searched.store, session, name=f"{session}{number}", input=text)
    searched.half_way()
    assert len(searched.find("banana")) == 3
    searched.store.delete_session("gone")
    assert searched.find("banana") == []
    for number in range(2):
        closed(searched.store, "new", name=f"new{number}", input="cherry")
    assert searched.find("banana") == []
    assert searched.find("cherry") == ["new1", "new0"]
    assert searched.find("a") == ["kept2", "kept1", "kept0"]
    searched.half_way()
    assert searched.find("cherry") == ["new1", "new0"]


def test_only_nodes_that_may_match_are_read(path: Path) -> None:
    """With the index up to date a search reads the few nodes that hold the words, not the whole store."""
    with contextlib.closing(SqliteStore(path)) as store:
        for number in range(300):
            closed(store, input=f"text number{number} about this and that")
        store.index()
        with raw(path) as connection:
            # Whoever reads one of these finds that it cannot be read.
            connection.execute("UPDATE nodes SET input = 'no JSON' WHERE seq <> 123")
        assert [hit.seq for hit in store.search("number122")] == [123]
        assert [hit.seq for hit in store.search('"ber122 about"')] == [123]


def test_both_backends_are_archives(searched: Searched) -> None:
    """Each has every method of the seam."""
    assert isinstance(searched.store, Archive)
