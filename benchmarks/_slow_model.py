"""A Chat Completions server in a process of its own, for `benchmarks.providers`: it answers each request after a while, and tells its port on standard output.

python -m benchmarks._slow_model SECONDS TOKENS
"""

from __future__ import annotations

import asyncio
import json
import sys


def reply(tokens: int) -> bytes:
    """A streamed answer of so many pieces."""
    piece = json.dumps({"choices": [{"index": 0, "delta": {"content": "token "}, "finish_reason": None}]})
    last = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {data}\n\n" for data in [*[piece] * tokens, last, "[DONE]"]).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def serve(seconds: float, tokens: int) -> None:
    """Serve until standard input ends."""
    answer = reply(tokens)

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
                await reader.readexactly(length)
                await asyncio.sleep(seconds)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(exchange, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), int(sys.argv[2])))
