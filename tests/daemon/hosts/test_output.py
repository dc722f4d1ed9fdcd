"""What is kept and told of a stream that may be endless."""

from __future__ import annotations

import asyncio
import os

from hypothesis import given
from hypothesis import strategies as st
from openprogram_daemon.hosts.output import Kept, Output


@given(st.lists(st.text(alphabet="abc\n", max_size=12), max_size=12), st.integers(0, 9), st.integers(1, 9))
def test_head_and_tail_are_kept_exactly(pieces: list[str], head: int, tail: int) -> None:
    """However a text arrives in pieces: all of it while it fits, else its first and last characters and how many are missing."""
    kept = Kept(head, tail)
    for piece in pieces:
        kept.add(piece)
    whole = "".join(pieces)
    text = kept.text()
    if len(whole) <= head + tail or text == whole:  # a piece is dropped only when what is left still makes a tail
        assert text == whole
        return
    first, _, rest = text.partition("\n… ")
    number, _, last = rest.partition(" characters left out …\n")
    assert first == whole[:head]
    assert whole.endswith(last) and len(last) >= tail
    assert int(number) == len(whole) - head - len(last)


def test_characters_are_not_cut_and_pieces_are_joined() -> None:
    """Bytes that arrive one by one become whole characters, told in few pieces; what is no UTF-8 is replaced."""

    async def test() -> list[str]:
        told: list[str] = []
        read_end, write_end = os.pipe()
        output = Output(read_end, told.append)
        for byte in "añ😀".encode() + b"\xff":
            os.write(write_end, bytes([byte]))
            await asyncio.sleep(0)
        os.close(write_end)
        output.finish()
        assert output.text == "añ😀\ufffd"
        return told

    told = asyncio.run(test())
    assert "".join(told) == "añ😀\ufffd" and len(told) <= 2


def test_the_end_is_not_waited_for() -> None:
    """What is in the pipe when the run ends is read, although somebody still holds it open."""

    async def test() -> None:
        told: list[str] = []
        read_end, write_end = os.pipe()
        output = Output(read_end, told.append)
        os.write(write_end, b"last words")
        output.finish()
        output.finish()
        assert told == ["last words"]
        os.close(write_end)

    asyncio.run(test())
