"""A provider over HTTP: any wire format at any base URL.

What goes wrong below and inside HTTP is mapped here once for all wires; a wire only says what a request is and how a reply reads. A stream that is closed or
cancelled closes its connection.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import httpx
import msgspec

from openprogram.errors import ConfigurationError, Reason, UsageError
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, Profile
from openprogram.providers.limits import Limits, gate_of
from openprogram.providers.pool import Pools
from openprogram.providers.profiles import priced
from openprogram.providers.sse import MAX_EVENT_BYTES, Event, EventReader, sse_events
from openprogram.providers.surroundings import context_of, proxy_for, verification
from openprogram.providers.transport import (
    MAX_ERROR_BYTES,
    Transports,
    Where,
    mapped,
    payload_error,
    printable_url,
    read_bounded,
    status_error,
)
from openprogram.providers.wire import DONE, Encoded, Fields, Reader, Wire, json_bytes, object_of, objects

_DRAIN_S = 0.2
_AFTER_END_S = 1.0


class Link(NamedTuple):
    """What a transport of one's own may use: the path that all addresses begin with, what it must not show, and a way to the real network."""

    base: str
    secrets: tuple[str, ...]
    open: Callable[[], httpx.AsyncBaseTransport]


def _network(link: Link) -> httpx.AsyncBaseTransport:
    return link.open()


class HttpProvider:
    """Models behind one base URL.

    ``profile`` is one for all models or a function of the model's name. ``environ`` names proxies and certificates (None: this process's own environment).
    Times are seconds; ``read_timeout_s`` bounds the wait for the next piece. ``transport`` makes what carries the requests instead of the network alone.

    Raises UsageError for a URL, ConfigurationError for a key, a proxy or certificates that cannot be used.
    """

    def __init__(
        self,
        wire: Wire,
        base_url: str,
        api_key: str | None = None,
        *,
        name: str,
        profile: Profile | Callable[[str], Profile] | None = None,
        headers: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 600.0,
        limits: Limits | None = None,
        transport: Callable[[Link], httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        self._wire = wire
        self._name = name
        self._base = base_of(base_url, wire)
        self._key = checked_key(api_key, name)
        self._profile: Profile | Callable[[str], Profile] = profile or Profile()
        self._refused: set[str] = set()
        self._gate = gate_of(name, str(self._base), self._key, limits or Limits())
        surroundings = os.environ if environ is None else environ
        proxy, verify = proxy_for(self._base, surroundings), verification(self._base, surroundings)
        sent = {"Accept": "text/event-stream", "Content-Type": "application/json", **(wire.headers(self._key) if self._key else {}), **(headers or {})}
        self._secrets = tuple(filter(None, [self._key, *(headers or {}).values(), str(proxy.auth[1]) if proxy is not None and proxy.auth else None]))
        if self._base.userinfo:
            sent["Authorization"] = f"Basic {base64.b64encode(self._base.userinfo).decode()}"
            self._base = self._base.copy_with(userinfo=b"")
        self._headers = httpx.Headers(sent)
        self._timeout = httpx.Timeout(read_timeout_s, connect=connect_timeout_s).as_dict()
        link = Link(self._base.path, self._secrets, lambda: Pools(lambda: httpx.AsyncHTTPTransport(verify=context_of(verify), proxy=proxy, trust_env=False)))
        carry: Callable[[Link], httpx.AsyncBaseTransport] = transport or _network
        self._transports = Transports(lambda: carry(link))

    @property
    def name(self) -> str:
        return self._name

    def profile(self, model: str) -> Profile:
        return self._profile if isinstance(self._profile, Profile) else self._profile(model)

    async def aclose(self) -> None:
        await self._transports.aclose()

    async def models(self) -> list[str]:
        """The names of the models that the server lists, sorted. Raises LLMError as a request does."""
        url = self._wire.models_url(self._base)
        where = Where(provider=self._name, model="list of models", url=printable_url(url), secrets=self._secrets)
        transport = await self._transports.get()
        with mapped(where):
            async with self._opened(transport, url, None) as response:
                content = await read_bounded(response, MAX_EVENT_BYTES)
                if not response.is_success:
                    raise status_error(where, response.status_code, response.headers, content)
        listed = object_of(decoded(content.decode("utf-8", "replace"), where))
        names = (str(model.get("id") or model.get("name") or "") for key in ("data", "models") for model in objects(listed.get(key)))
        return sorted(name.removeprefix("models/") for name in names if name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        profile = self.profile(request.model)
        url = self._wire.url(self._base, request.model)
        where = Where(provider=self._name, model=request.model, url=printable_url(url), secrets=self._secrets)
        body = self._wire.body(request, profile, self._name)
        transport = await self._transports.get()
        async with self._gate.place() if self._gate is not None else nullcontext():
            with mapped(where):
                async with aclosing(self._exchange(transport, url, body, where)) as events:
                    async for event in events:
                        yield priced(event, profile) if isinstance(event, Finish) else event

    async def _exchange(self, transport: httpx.AsyncBaseTransport, url: httpx.URL, body: Fields, where: Where) -> AsyncGenerator[ModelEvent]:
        """One reply. An option that a server of that kind does not know is left out from then on."""
        body = {key: value for key, value in body.items() if key not in self._refused}
        while True:
            async with self._opened(transport, url, encode(body, where)) as response:
                if response.is_success:
                    async with aclosing(_events(response, self._wire.reader(where), where)) as events:
                        async for event in events:
                            yield event
                    return
                refusal = await _refusal(response)
            shorter = self._wire.without(body, refusal) if response.status_code in (400, 422) else None
            if shorter is None:
                raise status_error(where, response.status_code, response.headers, refusal)
            self._refused |= body.keys() - shorter.keys()
            body = shorter

    @asynccontextmanager
    async def _opened(self, transport: httpx.AsyncBaseTransport, url: httpx.URL, content: bytes | None) -> AsyncGenerator[httpx.Response]:
        """The response's head; ``content`` None asks without sending anything.

        A server may close a pooled connection at the moment it is used again; such a request was never answered and is sent once more at once. The transport
        is asked itself: what a client adds to that (redirects, cookies, authentication) is not wanted here, and costs as much again.
        """
        connected: list[str] = []

        async def trace(event: str, _: Any) -> None:
            if event.startswith("connection.connect_"):
                connected.append(event)

        def request() -> httpx.Request:
            method, extensions = "GET" if content is None else "POST", {"timeout": self._timeout, "trace": trace}
            return httpx.Request(method, url, headers=self._headers, content=content, extensions=extensions)

        try:
            response = await transport.handle_async_request(request())
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if connected:
                raise
            response = await transport.handle_async_request(request())
        try:
            yield response
        finally:
            await response.aclose()


async def _events(response: httpx.Response, reader: Reader, where: Where) -> AsyncGenerator[ModelEvent]:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/html":
        raise where.error(f"{where.url} answered with a web page; is it the right address?", Reason.PROTOCOL)
    events = _documented(response, reader, where) if kind == "application/json" else _streamed(response, reader, where)
    async with aclosing(events) as found:
        async for event in found:
            yield event
    for event in reader.end():
        yield event


async def _documented(response: httpx.Response, reader: Reader, where: Where) -> AsyncGenerator[ModelEvent]:
    """A reply in one document: from a gateway that does not stream, an error under status 200, or a stream under the wrong name."""
    content = await read_bounded(response, MAX_EVENT_BYTES)
    if len(content) >= MAX_EVENT_BYTES:
        raise where.error(f"the reply is over {MAX_EVENT_BYTES >> 20} MB", Reason.PROTOCOL)
    if re.match(rb"(\xef\xbb\xbf)?\s*(data|event|id|retry)?:", content):
        sse = EventReader()
        for event in (*sse.feed(content), *sse.end()):
            for found in _fed(reader, event, where):
                yield found
        return
    for found in reader.whole(decoded(content.decode("utf-8-sig", "replace"), where)):
        yield found


async def _streamed(response: httpx.Response, reader: Reader, where: Where) -> AsyncGenerator[ModelEvent]:
    try:
        async with aclosing(sse_events(response, where)) as events:
            while (sse := await _next(events, reader)) is not None:
                for event in _fed(reader, sse, where):
                    yield event
                if reader.done:
                    await _drain(events)
                    return
    except httpx.TransportError:
        if not reader.finished:
            raise


async def _next(events: AsyncIterator[Event], reader: Reader) -> Event | None:
    """The next event, None at the end. Once a reply is over only a count can follow, and a server that stays silent then is not waited for."""
    try:
        async with asyncio.timeout(_AFTER_END_S if reader.finished else None):
            return await anext(events)
    except (StopAsyncIteration, TimeoutError):
        return None


def _fed(reader: Reader, event: Event, where: Where) -> Iterable[ModelEvent]:
    """What a reader makes of one server-sent event."""
    data = event.data.strip()
    if event.name == "error":
        raise payload_error(where, _error_object(decoded(data, where) if data.startswith(("{", '"')) else data))
    return reader.feed(data if data == DONE else decoded(data, where)) if data else ()


async def _drain(events: AsyncIterator[Any]) -> None:
    """Read to the end, so that the connection can serve again; a server that keeps it open after the last event is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in events:
                pass


async def _refusal(response: httpx.Response) -> bytes:
    try:
        return await read_bounded(response, MAX_ERROR_BYTES)
    except httpx.HTTPError:  # the status says more than the failure to read its explanation
        return b""


def base_of(base_url: str, wire: Wire) -> httpx.URL:
    """A base URL without what the wire adds to it. Raises UsageError for one that is no http(s) URL with a host."""
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:  # its text may quote a password
        raise UsageError("the base URL is malformed; it should look like https://example.org/v1") from None
    if url.scheme not in ("http", "https") or not (re.fullmatch(rb"[\w.-]+", url.raw_host) or b":" in url.raw_host):
        raise UsageError(f"the base URL {printable_url(url)!r} needs a scheme and a host, such as https://example.org/v1")
    path = re.sub("/{2,}", "/", url.path).rstrip("/").removesuffix(wire.path)
    return url.copy_with(path=path or wire.root, fragment=None)


def checked_key(key: str | None, name: str) -> str | None:
    """The key without blanks around it, None for an empty one. Raises ConfigurationError for one that no header can hold, without showing it."""
    key = (key or "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError(f"the API key for {name} holds characters that no key has (blanks, line ends or non-ASCII); copy it again")
    return key or None


def encode(body: Fields, where: Where) -> bytes:
    """The body as UTF-8, see `json_bytes`."""
    try:
        fields = [(b",", json_bytes(key), b":", *(value.pieces if isinstance(value, Encoded) else (json_bytes(value),))) for key, value in body.items()]
        return b"".join([b"{", *[piece for field in fields for piece in field][1:], b"}"])
    except (TypeError, ValueError, RecursionError) as error:
        raise where.error(f"the request cannot be written as JSON: {error}", Reason.BAD_REQUEST) from None


def decoded(data: str, where: Where) -> Any:
    """A piece of an answer. Raises LLMError for one that is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise where.error(f"a piece of the answer is no JSON ({error}): {data:.200}", Reason.PROTOCOL, retryable=True) from None


def _error_object(payload: Any) -> Any:
    return object_of(payload).get("error", payload) if isinstance(payload, dict) else payload
