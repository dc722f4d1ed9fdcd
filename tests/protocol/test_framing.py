"""Framing: the same bodies come out however the bytes were cut, and whatever is no frame ends the connection."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openprogram_protocol.framing import MAX_HEADER, FrameReader, FramingError, frame

bodies = st.lists(st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)), max_size=8)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """``data`` cut at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:stop] for start, stop in itertools.pairwise(places)]


def read(reader: FrameReader, *chunks: bytes) -> list[bytes]:
    return [body for chunk in chunks for body in reader.feed(chunk)]


@given(bodies, st.lists(st.integers(min_value=0), max_size=20))
def test_bodies_survive_any_split_of_the_bytes(sent: list[bytes], cuts: list[int]) -> None:
    """However a stream is cut into reads, the same bodies come out in order and nothing is left over."""
    reader = FrameReader()
    assert read(reader, *pieces(b"".join(map(frame, sent)), cuts)) == sent
    assert reader.is_empty


@given(bodies)
def test_bodies_survive_a_byte_at_a_time(sent: list[bytes]) -> None:
    """The slowest peer is understood too."""
    reader = FrameReader()
    stream = b"".join(map(frame, sent))
    assert read(reader, *(stream[at : at + 1] for at in range(len(stream)))) == sent


@given(
    st.lists(st.booleans(), min_size=14, max_size=14),
    st.text(" \t", max_size=3),
    st.text(" \t", max_size=3),
    st.sampled_from([b"", b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n"]),
    st.sampled_from([b"", b"X-Other: 1\r\n"]),
)
def test_header_names_ignore_case_and_space(upper: list[bool], before: str, after: str, first: bytes, last: bytes) -> None:
    """Header names in any case, any space around the length and other headers beside it are read."""
    name = "".join(letter.upper() if up else letter.lower() for letter, up in zip("content-length", upper, strict=True))
    header = first + f"{name}:{before}5{after}\r\n".encode() + last
    assert read(FrameReader(), header + b"\r\nhello") == [b"hello"]


@pytest.mark.parametrize("text", ["漢字かな交じり文", "🙂👩‍👩‍👧‍👦🏳️‍🌈", "é𝄞\u2028\u0085", "Content-Length: 3\r\n\r\nabc"])
def test_lengths_count_bytes(text: str) -> None:
    """A body that is longer in bytes than in characters, or looks like a header, is read whole."""
    body = text.encode()
    assert frame(body).startswith(b"Content-Length: %d\r\n" % len(body))
    assert read(FrameReader(), frame(body) + frame(b"next")) == [body, b"next"]


@given(st.binary(min_size=1, max_size=200))
def test_a_connection_that_begins_with_anything_else_closes_silently(data: bytes) -> None:
    """Unless the first bytes can be a header of this protocol, the error says that nothing may be answered."""
    begin = data[:14].lower()
    if any(name.startswith(begin[: len(name)]) for name in (b"content-length", b"content-type")):
        return
    with pytest.raises(FramingError) as caught:
        read(FrameReader(), data)
    assert caught.value.silent


@pytest.mark.parametrize(
    "line", ["GET / HTTP/1.1", "POST /x HTTP/1.1", "Host: x", "{}", '{"jsonrpc":"2.0"}', " Content-Length: 1", "\r\n", "Content-Encoding: x", "\x16\x03\x01"]
)
@pytest.mark.parametrize("whole", [True, False], ids=["at once", "byte by byte"])
def test_web_pages_and_other_protocols_get_no_reply(line: str, whole: bool) -> None:
    """HTTP, TLS and bare JSON are refused silently, however slowly they arrive."""
    data = f"{line}\r\n\r\n".encode()
    with pytest.raises(FramingError) as caught:
        read(FrameReader(), *([data] if whole else [data[at : at + 1] for at in range(len(data))]))
    assert caught.value.silent


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"Content-Length: -1\r\n\r\n", "-1"),
        (b"Content-Length: +5\r\n\r\n", "+5"),
        (b"Content-Length: 5.0\r\n\r\n", "5.0"),
        (b"Content-Length: \r\n\r\n", "no number"),
        (b"Content-Length: 1_000\r\n\r\n", "1_000"),
        ("Content-Length: ٣\r\n\r\n".encode(), "no number"),
        (b"Content-Length: 9999999999999999\r\n\r\n", "9999999999999999"),
        (b"Content-Type: x\r\n\r\n", "without Content-Length"),
        (b"Content-Length: 5\r\nno colon here\r\n\r\n", "no colon here"),
        (b"Content-Length: 11\r\n\r\n", "limit of 10"),
    ],
)
def test_a_header_that_is_wrong_is_named(header: bytes, said: str) -> None:
    """What is wrong with a header is said, and it is answered: the peer does speak this protocol."""
    with pytest.raises(FramingError) as caught:
        read(FrameReader(max_body=10), header)
    assert said in str(caught.value)
    assert not caught.value.silent


def test_an_error_does_not_take_what_came_before_it() -> None:
    """The bodies ahead of a broken header are handed out before it raises."""
    got: list[bytes] = []
    with pytest.raises(FramingError):
        got.extend(FrameReader().feed(frame(b"first") + frame(b"second") + b"nonsense\r\n\r\n"))
    reader = FrameReader()
    stream = reader.feed(frame(b"first") + b"nonsense\r\n\r\n")
    assert next(stream) == b"first"
    with pytest.raises(FramingError):
        next(stream)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_the_limit_of_a_body_is_exact(extra: int) -> None:
    """A body of the limit passes, one of a byte more is refused before it is read."""
    reader = FrameReader(max_body=100)
    body = b"x" * (100 + extra)
    if extra <= 0:
        assert read(reader, frame(body)) == [body]
    else:
        with pytest.raises(FramingError, match="101 bytes"):
            read(reader, b"Content-Length: 101\r\n\r\n")


@pytest.mark.parametrize("size", [1, 64, 4096])
def test_a_header_without_an_end_is_given_up(size: int) -> None:
    """A header block is bounded, in whatever pieces it arrives, and so is the memory that it takes."""
    reader = FrameReader()
    sent = 0
    with pytest.raises(FramingError, match=str(MAX_HEADER)):
        for piece in [b"Content-Length: 1\r\nX: ", *[b"y" * size] * (2 * MAX_HEADER // size)]:
            sent += len(piece)
            read(reader, piece)
    assert sent <= MAX_HEADER + size + 22


def test_reading_many_small_frames_keeps_no_more_than_one() -> None:
    """What was handed out is not kept: 10,000 frames in one read take no more memory than that read."""
    stream = frame(b"x" * 100) * 10_000
    reader = FrameReader()
    tracemalloc.start()
    try:
        assert sum(1 for _ in reader.feed(stream)) == 10_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(stream)
