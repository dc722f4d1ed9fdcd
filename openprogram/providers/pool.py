"""Connections to one server, many at a time.

httpcore's pool looks at each connection for each other one whenever a request begins or ends, so that a few hundred requests at once cost more in the pool
than in the network. Here the connections are spread over small pools, each of which stays cheap; the first ones are filled first, so that connections are
used again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx

AT_ONCE = 16
"""Requests that one small pool carries at a time."""


class Pools(httpx.AsyncBaseTransport):
    """As many pools as there are requests for. It belongs to one event loop, as each of them does."""

    def __init__(self, make: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._make = make
        self._pools: list[_Pool] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        pool = next((pool for pool in self._pools if pool.busy < AT_ONCE), None)
        if pool is None:
            pool = _Pool(self._make())
            self._pools.append(pool)
        pool.busy += 1
        try:
            response = await pool.transport.handle_async_request(request)
        except BaseException:
            pool.busy -= 1
            raise
        response.stream = _Body(cast("httpx.AsyncByteStream", response.stream), pool)
        return response

    async def aclose(self) -> None:
        pools, self._pools = self._pools, []
        for pool in pools:
            await pool.transport.aclose()


class _Pool:
    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self.transport = transport
        self.busy = 0


class _Body(httpx.AsyncByteStream):
    """A body that gives its place back when it is closed."""

    def __init__(self, stream: httpx.AsyncByteStream, pool: _Pool) -> None:
        self._stream = stream
        self._pool: _Pool | None = pool

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.busy -= 1
        await self._stream.aclose()
