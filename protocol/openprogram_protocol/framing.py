"""``Content-Length`` framing, as the Language Server Protocol defines it, without I/O: bytes in, bodies out.

Header names are case-insensitive, the space after the colon is optional, lengths count bytes. The first line of a connection must be a header this protocol
knows; anything else (a web page's HTTP, say) is a `FramingError` whose ``silent`` is set, so that the connection is closed without a reply.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_HEADER = 4096
MAX_BODY = 64 * 1024 * 1024
_KNOWN = (b"content-length", b"content-type")


class FramingError(ValueError):
    """Bytes that are no frame. The connection cannot go on; ``silent`` says that it must close without a reply."""

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


def frame(body: bytes) -> bytes:
    """A body with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class FrameReader:
    """Collects bytes and yields whole bodies. ``max_body`` is a length in bytes."""

    def __init__(self, *, max_body: int = MAX_BODY) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._length: int | None = None
        self._started = False
        self._max_body = max_body

    @property
    def is_empty(self) -> bool:
        """Whether no unfinished frame waits for more bytes."""
        return not self._buffer and self._length is None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that ``data`` completes. Raises FramingError."""
        self._buffer += data
        while True:
            if self._length is None and not self._read_header():
                return
            assert self._length is not None
            if len(self._buffer) < self._length:
                return
            body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
            self._length, self._scanned = None, 0
            yield body

    def _read_header(self) -> bool:
        self._check_start()
        end = self._buffer.find(b"\r\n\r\n", max(0, self._scanned - 3))
        if end < 0:
            self._scanned = len(self._buffer)
            if self._scanned > MAX_HEADER:
                raise FramingError(f"a header block of over {MAX_HEADER} bytes")
            return False
        if end > MAX_HEADER:
            raise FramingError(f"a header block of over {MAX_HEADER} bytes")
        self._length = self._parse(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        return True

    def _check_start(self) -> None:
        if self._started or not self._buffer:
            return
        begin = bytes(self._buffer[:16]).lower()
        if not any(name.startswith(begin[: len(name)]) for name in _KNOWN):
            raise FramingError("the first line is no header of this protocol", silent=True)
        self._started = len(begin) >= len(_KNOWN[0])

    def _parse(self, block: bytes) -> int:
        length: int | None = None
        for line in block.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if not colon:
                raise FramingError(f"a header line without a colon: {line[:80]!r}")
            if name.strip().lower() == b"content-length":
                length = self._number(value.strip())
        if length is None:
            raise FramingError("a header block without Content-Length")
        if length > self._max_body:
            raise FramingError(f"a body of {length} bytes, over the limit of {self._max_body}")
        return length

    @staticmethod
    def _number(value: bytes) -> int:
        if not value.isdigit() or len(value) > 15:
            raise FramingError(f"Content-Length is no number: {value[:40]!r}")
        return int(value)
