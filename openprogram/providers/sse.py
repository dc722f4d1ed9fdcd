"""Server-sent events as the standard says, whatever the network cuts where.

httpx-sse reads the fields of an event. Lines are split here, since httpx also splits them on U+2028 and U+0085, which JSON may hold as they are.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncGenerator, Iterable
from typing import NamedTuple

import httpx
from httpx_sse._decoders import SSEDecoder

from openprogram.errors import Reason
from openprogram.providers.transport import Where

MAX_EVENT_BYTES = 32 << 20


class LineSplitter:
    """Bytes in, complete lines out: UTF-8 decoded across chunk borders, split on LF, CR and CRLF and on nothing else."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._parts: list[str] = []
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        text = self._decode(chunk)
        if not text:
            return []
        if self._after_cr and text[0] == "\n":
            text = text[1:]
        self._after_cr = text.endswith("\r") if text else False
        first, *rest = re.split(r"\r\n|\r|\n", text)
        self._parts.append(first)
        if not rest:
            return []
        *whole, tail = rest
        lines = ["".join(self._parts), *whole]
        self._parts = [tail]
        return lines

    def end(self) -> str:
        """What stood after the last line end."""
        return "".join(self._parts)


class Event(NamedTuple):
    """The data of one event, and its name (``message`` where the server gives none)."""

    data: str
    name: str


class EventReader:
    """Bytes in, events out."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._decoder = SSEDecoder()

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes."""
        return self._events(self._lines.feed(chunk))

    def end(self) -> list[Event]:
        """An event that lacks its closing blank line at the end of the stream counts too."""
        return self._events((self._lines.end(), ""))

    def _events(self, lines: Iterable[str]) -> list[Event]:
        found = (self._decoder.decode(line) for line in lines)
        return [Event(event.data, event.event) for event in found if event is not None]


async def sse_events(response: httpx.Response, where: Where) -> AsyncGenerator[Event]:
    """The events of a response, each as soon as it is whole. Raises LLMError for one that is too big to be meant."""
    reader, held = EventReader(), 0
    async for chunk in response.aiter_bytes():
        held += len(chunk)
        events = reader.feed(chunk)
        if events:
            held = 0
        elif held > MAX_EVENT_BYTES:
            raise where.error(f"an event of the stream is over {MAX_EVENT_BYTES >> 20} MB", Reason.PROTOCOL)
        for event in events:
            yield event
    for event in reader.end():
        yield event
