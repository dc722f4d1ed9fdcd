"""The other end of a connection, in the hands of a test: it says exactly what the test wants said, which a real daemon does not do on demand."""

from __future__ import annotations

import json
import socket
from collections import deque
from typing import Any

from openprogram_protocol.framing import FrameReader, frame

WAIT_S = 20.0


class Peer:
    """Reads and writes messages as dicts, and bytes as they are."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.socket.settimeout(WAIT_S)
        self._frames = FrameReader()
        self._bodies: deque[bytes] = deque()

    def receive_descriptors(self) -> list[int]:
        """The open files that came with the next message."""
        data, descriptors, _, _ = socket.recv_fds(self.socket, 1, 4)
        self._bodies.extend(self._frames.feed(data))
        return list(descriptors)

    def receive(self) -> dict[str, Any]:
        """The next message. Raises EOFError at the end of the connection."""
        while not self._bodies:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._bodies.extend(self._frames.feed(data))
        return json.loads(self._bodies.popleft())

    def send(self, **message: Any) -> None:
        self.socket.sendall(frame(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()))

    def reply(self, request: dict[str, Any], result: Any) -> None:
        self.send(id=request["id"], result=result)

    def refuse(self, request: dict[str, Any], code: int, message: str, **data: Any) -> None:
        self.send(id=request["id"], error={"code": code, "message": message, "data": data})

    def close(self) -> None:
        self.socket.close()
