"""What every store promises, over every backend of `conftest.BACKENDS`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from openprogram.context.call import Call, CallRole, Close, Frame, LogEntry, Reads, SessionInfo, new_id
from openprogram.context.messages import text_message
from openprogram.errors import StoreClosedError, StoreError, UnknownSessionError
from openprogram.store.base import Store


def node(info: SessionInfo, role: CallRole = "code", **fields: Any) -> Call:
    """A node of the session's main branch."""
    values: dict[str, Any] = {"name": "f", "frame": info.frame, "started_at": 1.5, **fields}
    return Call(id=values.pop("id", new_id(role)), session=info.id, role=role, **values)


def done(call: Call, **fields: Any) -> Close:
    """The successful end of a node, which enters the log."""
    values: dict[str, Any] = {"status": "completed", "ended_at": 2.5, "enters": True, **fields}
    return Close(id=call.id, **values)


def test_it_is_a_store(store: Store) -> None:
    """A backend has every method of the seam."""
    assert isinstance(store, Store)


def test_a_session_is_made_once(store: Store) -> None:
    """Creating a session again returns the one there is, with its branch, and gives it a title only if it had none."""
    first = store.create_session("s")
    assert first.nodes == 0
    assert store.frame(first.frame) == Frame(id=first.frame, session="s")
    assert store.create_session("s", title="one").frame == first.frame
    assert store.create_session("s", title="two").title == "one"
    assert store.session("s").title == "one"
    assert [info.id for info in store.sessions()].count("s") == 1


@pytest.mark.parametrize("bad", ["../../etc/x", "a/b", "a\\b", "", ".", "..", "x" * 201, "a\0b", "a\nb", "a\x1b[31m", "a\ud800", "a\u202eb"])
def test_f17_bad_session_ids_are_refused_before_anything_is_written(store: Store, bad: str) -> None:
    """f17: an id that is empty, too long, not printable or a path is a ValueError, and leaves no session."""
    with pytest.raises(ValueError, match="session id"):
        store.create_session(bad)
    assert store.sessions() == []


@pytest.mark.parametrize("ids", [("naïve 😀",), ("CON",), ("A", "a"), ("x" * 200,), ("..a", "a..", "%2e%2e"), ("'; DROP TABLE sessions; --",)])
def test_f17_other_session_ids_are_kept_one_to_one(store: Store, ids: tuple[str, ...]) -> None:
    """f17: any other id is kept as it is, and ids that differ are different sessions."""
    frames = {store.create_session(session_id).frame for session_id in ids}
    assert len(frames) == len(ids)
    assert {store.session(session_id).id for session_id in ids} == set(ids)


def test_an_unknown_session_is_named(store: Store) -> None:
    """Reading or writing a session that is not there names it."""
    with pytest.raises(UnknownSessionError, match="nowhere"):
        store.session("nowhere")
    with pytest.raises(UnknownSessionError, match="nowhere"):
        store.page("nowhere")
    with pytest.raises(UnknownSessionError, match="nowhere"):
        store.append(node(SessionInfo(id="nowhere", frame="frame-x")))


def test_sessions_are_listed_by_their_last_write(store: Store) -> None:
    """The session that was written last comes first; limit and offset cut the list."""
    infos = {name: store.create_session(name) for name in ("a", "b", "c")}
    first = store.append(node(infos["a"]))
    store.append(node(infos["c"]))
    store.append(node(infos["b"]))
    store.finish(done(first))
    assert [info.id for info in store.sessions()] == ["a", "b", "c"]
    assert [info.id for info in store.sessions(limit=1, offset=1)] == ["b"]
    assert store.sessions(limit=0) == []
    assert [info.nodes for info in store.sessions()] == [1, 1, 1]


def test_a_node_is_read_as_it_was_written(store: Store) -> None:
    """Every field of a node comes back, merged with what it was closed with."""
    info = store.create_session("s")
    message = text_message("user", "hi")
    store.append(node(info, "user", id="said", input="hello"))
    opened = store.append(node(info, "llm", name="m\0\ud800", caller="code-1", predecessor="said", input={"messages": [message]}, metadata={"a": 1, "b": 1}))
    assert (opened.seq, opened.predecessor, opened.reads) == (2, "said", Reads(info.frame, 0))
    assert opened.is_open
    closed = store.finish(done(opened, output="yo", exchanges=(message, {"x": 1}), metadata={"b": 2, "c": 3}))
    plain = {"role": "user", "blocks": [{"type": "text", "text": "hi"}]}
    assert closed == Call(
        id=opened.id,
        session="s",
        role="llm",
        name="m\0\ud800",
        frame=info.frame,
        seq=2,
        status="completed",
        input={"messages": [plain]},
        output="yo",
        caller="code-1",
        predecessor="said",
        reads=Reads(info.frame, 0),
        exchanges=(plain, {"x": 1}),
        metadata={"a": 1, "b": 2, "c": 3},
        started_at=1.5,
        ended_at=2.5,
    )
    assert store.node(opened.id) == closed
    assert store.page("s", after=1) == [closed]


def test_what_is_stored_is_a_snapshot(store: Store) -> None:
    """A value changed after the call, by the writer or by a reader, is not changed in the store."""
    info = store.create_session("s")
    arguments: dict[str, Any] = {"items": [1]}
    call = store.append(node(info, input=arguments))
    arguments["items"].append(2)
    read = store.node(call.id)
    assert read is not None
    read.input["items"].append(3)
    again = store.node(call.id)
    assert again is not None
    assert again.input == {"items": [1]}


def test_open_edges_are_filled_from_the_log(store: Store) -> None:
    """``predecessor`` is the last entry of the frame's log and ``reads`` its length, at the moment the node is written; only closed nodes that enter count."""
    info = store.create_session("s")
    calls = [store.append(node(info, "llm")) for _ in range(2)]
    assert [call.predecessor for call in calls] == [None, None]
    assert [call.reads for call in calls] == [Reads(info.frame, 0)] * 2
    store.finish(done(calls[1]))
    store.finish(done(calls[0], status="error", enters=False))
    third = store.append(node(info, "llm"))
    assert (third.seq, third.predecessor, third.reads) == (3, calls[1].id, Reads(info.frame, 1))
    assert store.append(node(info, "code")).reads is None
    assert store.append(node(info, "llm", reads=Reads("frame-other", 7))).reads == Reads("frame-other", 7)


def test_nested_frames_freeze_what_they_see(store: Store) -> None:
    """A frame's base is its parent's log when it opened; the log entry of its owner holds how long its own log was when that closed."""
    info = store.create_session("s")
    before = store.append(node(info))
    store.finish(done(before))
    owner, frame_id = node(info), new_id("frame")
    store.append(owner, opens=Frame(id=frame_id, session="s", parent=info.frame, base=99, owner=owner.id))
    assert store.frame(frame_id) == Frame(id=frame_id, session="s", parent=info.frame, base=1, owner=owner.id)
    inner = [store.append(node(info, "llm", frame=frame_id)) for _ in range(3)]
    for call in inner[:2]:
        store.finish(done(call))
    store.finish(done(owner))
    assert list(store.log(info.frame)) == [LogEntry(before.id, 0), LogEntry(owner.id, 2)]
    store.finish(done(inner[2]))
    late = store.append(node(info, frame=frame_id))
    assert late.predecessor == inner[2].id
    assert [entry.node for entry in store.log(frame_id)] == [call.id for call in inner]
    assert list(store.log(info.frame))[-1] == LogEntry(owner.id, 2)


@pytest.mark.parametrize(("start", "stop", "expected"), [(0, None, [0, 1, 2]), (1, 2, [1]), (2, 9, [2]), (5, None, []), (0, 0, [])])
def test_parts_of_a_log(store: Store, start: int, stop: int | None, expected: list[int]) -> None:
    """``start`` and ``stop`` cut a log like a slice; an unknown frame has none."""
    info = store.create_session("s")
    calls = [store.append(node(info)) for _ in range(3)]
    for call in calls:
        store.finish(done(call))
    assert [entry.node for entry in store.log(info.frame, start, stop)] == [calls[index].id for index in expected]
    assert list(store.log("frame-none")) == []


@pytest.mark.parametrize("status", ["completed", "error", "cancelled", "interrupted"])
def test_the_first_terminal_state_wins(store: Store, status: Any) -> None:
    """Closing a closed node changes nothing and returns the node as it stands."""
    info = store.create_session("s")
    call = store.append(node(info))
    first = store.finish(done(call, status=status, output=1, enters=False))
    for again in ("completed", "error", "cancelled"):
        assert store.finish(done(call, status=again, output=2, metadata={"x": 1}, enters=True)) == first
    assert list(store.log(info.frame)) == []


def test_mistakes_are_named_and_write_nothing(store: Store) -> None:
    """A second node of one id, an unknown frame, a frame of another session, an unknown or running end: each is a StoreError, and the session is as before."""
    info, other = store.create_session("s"), store.create_session("t")
    call = store.append(node(info))
    taken = Frame(id=info.frame, session="s", parent=info.frame)
    for wrong, opens in [
        (call, None),
        (node(info, frame="frame-none"), None),
        (node(info, frame=other.frame), None),
        (node(info), taken),
        (node(info), Frame(id="frame-new", session="s", parent="frame-none")),
    ]:
        with pytest.raises(StoreError, match=r"exists already|no such frame"):
            store.append(wrong, opens=opens)
    for close in (Close(id="code-none", status="completed"), Close(id=call.id, status="running")):
        with pytest.raises(StoreError, match=close.id):
            store.finish(close)
    assert [found.id for found in store.page("s")] == [call.id]
    assert store.frame("frame-new") is None
    assert store.append(node(info)).seq == 2


def test_several_nodes_come_in_the_order_asked_for(store: Store) -> None:
    """Unknown ids are left out, a repeated one is repeated, and there may be thousands."""
    info = store.create_session("s")
    ids = [store.append(node(info)).id for _ in range(3)]
    asked = [ids[2], "code-none", ids[0], ids[2], *[f"code-{number}" for number in range(2000)], ids[1]]
    assert [call.id for call in store.nodes(asked)] == [ids[2], ids[0], ids[2], ids[1]]
    assert store.nodes([]) == []
    assert store.node("code-none") is None


def test_pages_follow_seq(store: Store) -> None:
    """Pages are in the order of ``seq`` and begin after the one named."""
    info = store.create_session("s")
    store.create_session("t")
    ids = [store.append(node(info)).id for _ in range(7)]
    first = store.page("s", limit=3)
    assert [call.seq for call in first] == [1, 2, 3]
    rest = store.page("s", after=first[-1].seq)
    assert [call.id for call in [*first, *rest]] == ids
    assert store.page("s", after=7) == store.page("s", limit=0) == store.page("t") == []


def test_f07_any_thread_may_call(store: Store) -> None:
    """f07: a store made in one thread works in eight others at once; ``seq`` has no gap and no double."""
    info = store.create_session("s")

    def work(_: int) -> list[int]:
        numbers: list[int] = []
        for _ in range(10):
            call = store.append(node(info))
            assert store.finish(done(call)).status == "completed"
            numbers.append(call.seq)
        return numbers

    with ThreadPoolExecutor(8) as pool:
        numbers = [number for found in pool.map(work, range(8)) for number in found]
    assert sorted(numbers) == list(range(1, 81))
    assert len(store.log(info.frame)) == store.session("s").nodes == 80


def test_f07_a_closed_store_says_so(store: Store) -> None:
    """f07: closing from another thread, twice, is fine; after it every call is a StoreClosedError."""
    info = store.create_session("s")
    call = store.append(node(info))
    closer = threading.Thread(target=store.close)
    closer.start()
    closer.join()
    store.close()
    uses: list[Any] = [
        lambda: store.create_session("s"),
        lambda: store.session("s"),
        store.sessions,
        lambda: store.append(node(info)),
        lambda: store.finish(done(call)),
        lambda: store.node(call.id),
        lambda: store.nodes([call.id]),
        lambda: store.page("s"),
        lambda: store.frame(info.frame),
        lambda: store.log(info.frame),
    ]
    for use in uses:
        with pytest.raises(StoreClosedError, match="closed"):
            use()


@pytest.mark.parametrize("size", [10, 999, 1001, 5_000_000])
def test_large_values_are_kept_whole(store: Store, size: int) -> None:
    """Short and long values come back whole, wherever they stand."""
    info = store.create_session("s")
    call = store.append(node(info, input={"text": "ä" * size}, metadata={"text": "b" * size}))
    closed = store.finish(done(call, output="ä" * size, exchanges=("c" * size,), metadata={"more": "d" * size}))
    assert closed.input == {"text": "ä" * size}
    assert closed.output == "ä" * size
    assert closed.exchanges == ("c" * size,)
    assert closed.metadata == {"text": "b" * size, "more": "d" * size}
    assert store.node(call.id) == closed


def test_any_value_comes_back(store: Store) -> None:
    """f10, f15, f16: values that JSON has no word for are exact, or readable, and never break the write."""
    info = store.create_session("s")
    value = {"big": 10**5000, "text": "\ud83d\ude00\0", "tuple": (1, {2}), "mine": {"$type": "tuple", "value": [1]}, 1: "a", "1": "b", None: b"x"}
    call = store.append(node(info, input=value, metadata={"tokens": 2**64}))
    read = store.finish(done(call, output=object()))
    assert read.input == value
    assert read.metadata == {"tokens": 2**64}
    assert read.output["$type"] == "object"
