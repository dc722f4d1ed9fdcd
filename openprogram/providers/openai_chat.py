"""The Chat Completions wire, as OpenAI and the many servers that copy it speak it.

`ChatReply` reads the chunks without doing I/O; `OpenAIChatProvider` adds the connection. Every stream ends in exactly one `Finish` or raises: one that stops
without saying so is a broken connection, never a short answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any, cast

import httpx
import msgspec

from openprogram.errors import ConfigurationError, Reason, UsageError
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, Profile, TextDelta, ThinkingDelta, ToolCall, Usage
from openprogram.providers.openai_messages import chat_body
from openprogram.providers.transport import (
    MAX_ERROR_BYTES,
    MAX_EVENT_BYTES,
    Clients,
    Where,
    mapped,
    payload_error,
    printable_url,
    read_bounded,
    sse_events,
    status_error,
)

Fields = dict[str, Any]

_FINISH = {"length": "length", "max_tokens": "length", "tool_calls": "tool_calls", "function_call": "tool_calls", "content_filter": "content_filter"}
_PATH = "/chat/completions"


class OpenAIChatProvider:
    """A server that speaks Chat Completions at ``base_url`` (``…/v1``; a bare host means ``/v1``, a full ``…/chat/completions`` and a query are understood).

    ``profile`` is one for all models or a function of the model's name. ``max_tokens_field`` is ``max_completion_tokens`` for OpenAI's own newer models.
    ``trust_env`` False ignores proxies and certificates named in the environment. Times are seconds; ``read_timeout_s`` bounds the wait for the next piece.

    Raises UsageError for a URL, ConfigurationError for a key that cannot be sent.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        name: str = "openai",
        profile: Profile | Callable[[str], Profile] | None = None,
        headers: Mapping[str, str] | None = None,
        max_tokens_field: str = "max_tokens",
        trust_env: bool = True,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 600.0,
    ) -> None:
        self._name = name
        self._url = endpoint(base_url)
        self._key = _checked_key(api_key, name)
        self._profile: Profile | Callable[[str], Profile] = profile or Profile()
        self._max_tokens_field = max_tokens_field
        self._usage_option = True
        timeout = httpx.Timeout(read_timeout_s, connect=connect_timeout_s)
        sent = {"Accept": "text/event-stream", "Content-Type": "application/json", **(headers or {})}
        if self._key:
            sent["Authorization"] = f"Bearer {self._key}"
        # A plain http server needs no certificates, and loading them costs more than a local request.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if self._url.scheme == "http" and not trust_env else True
        self._clients = Clients(lambda: httpx.AsyncClient(headers=sent, timeout=timeout, trust_env=trust_env, verify=verify, follow_redirects=False))

    @property
    def name(self) -> str:
        return self._name

    def profile(self, model: str) -> Profile:
        return self._profile if isinstance(self._profile, Profile) else self._profile(model)

    async def aclose(self) -> None:
        await self._clients.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        where = Where(provider=self._name, model=request.model, url=printable_url(self._url), secrets=(self._key,) if self._key else ())
        body = chat_body(request, self.profile(request.model), max_tokens_field=self._max_tokens_field)
        client = await self._clients.get()
        with mapped(where):
            while True:
                if not self._usage_option:
                    body.pop("stream_options", None)
                async with _opened(client, self._url, _encode(body)) as response:
                    if response.is_success:
                        async with aclosing(_events(response, where)) as events:
                            async for event in events:
                                yield event
                        return
                    refusal = await _refusal(response)
                if not (self._usage_option and response.status_code in (400, 422) and b"stream_options" in refusal):
                    raise status_error(where, response.status_code, response.headers, refusal)
                self._usage_option = False


@asynccontextmanager
async def _opened(client: httpx.AsyncClient, url: httpx.URL, content: bytes) -> AsyncGenerator[httpx.Response]:
    """The response's head.

    A server may close a pooled connection at the moment it is used again; such a request was never answered and is sent once more at once.
    """
    async with AsyncExitStack() as stack:
        try:
            response = await stack.enter_async_context(client.stream("POST", url, content=content))
        except httpx.RemoteProtocolError:
            response = await stack.enter_async_context(client.stream("POST", url, content=content))
        yield response


class ChatReply:
    """Chunks in, events out. ``end`` says whether what came makes a whole reply."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._calls: list[_Call] = []
        self._open: dict[int, _Call] = {}
        self._usage: Usage | None = None
        self._reason: str | None = None
        self._refused = False
        self._begun = False
        self.done = False

    @property
    def finished(self) -> bool:
        """Whether the server said that the reply is over."""
        return self.done or self._reason is not None

    def feed(self, chunk: Any) -> Iterator[ModelEvent]:
        """The events of one chunk. Raises LLMError for an error object in it."""
        if not isinstance(chunk, dict):
            raise self._where.error(f"a piece of the stream is no object: {chunk!r:.200}", Reason.PROTOCOL, retryable=True)
        fields = cast("Fields", chunk)
        if error := fields.get("error"):
            raise payload_error(self._where, error)
        self._usage = _usage(fields.get("usage")) or self._usage
        for choice in _objects(fields.get("choices"))[:1]:
            yield from self._delta(_object(choice.get("delta") or choice.get("message")))
            self._reason = str(choice.get("finish_reason") or "") or self._reason

    def _delta(self, delta: Fields) -> Iterator[ModelEvent]:
        self._begun = self._begun or bool(delta)
        if thinking := _text(delta.get("reasoning_content") or delta.get("reasoning")):
            yield ThinkingDelta(thinking)
        if refusal := _text(delta.get("refusal")):
            self._refused = True
            yield TextDelta(refusal)
        if text := _text(delta.get("content")):
            yield TextDelta(text)
        for position, part in enumerate(_objects(delta.get("tool_calls"))):
            self._merge(part, position)

    def _merge(self, part: Fields, position: int) -> None:
        """Pieces of one call share an index; a new id on an index that is taken starts the next call, since some servers number every call 0."""
        index, new_id = part.get("index"), part.get("id") or ""
        key = index if isinstance(index, int) else position
        call = self._open.get(key)
        if call is None or (new_id and call.id and new_id != call.id):
            call = self._open[key] = _Call()
            self._calls.append(call)
        call.id = call.id or str(new_id)
        function = _object(part.get("function"))
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if arguments:
            call.arguments.append(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def end(self) -> Iterator[ModelEvent]:
        """The tool calls and the `Finish`. Raises LLMError for a stream that broke off, held nothing or ended in an error."""
        if not self.finished:
            raise self._where.error("the stream ended in the middle of the reply", Reason.CONNECTION, retryable=True)
        if self._reason is None and not self._begun:
            raise self._where.error("the server sent an empty reply", Reason.PROTOCOL, retryable=True)
        if self._reason == "error":
            raise self._where.error("the server broke the reply off with an error", Reason.SERVER, retryable=True)
        reason = "refusal" if self._refused else _FINISH.get(self._reason or "stop", "stop")
        if reason not in ("refusal", "content_filter"):
            for number, call in enumerate(self._calls):
                yield ToolCall(call.id or f"call_{number}", call.name, "".join(call.arguments) or "{}")
            reason = "tool_calls" if self._calls and reason == "stop" else reason
        yield Finish(reason=reason, usage=self._usage)


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


async def _events(response: httpx.Response, where: Where) -> AsyncGenerator[ModelEvent]:
    reply = ChatReply(where)
    if "application/json" in response.headers.get("content-type", ""):  # a gateway that does not stream, or an error under status 200
        chunk = _decoded((await read_bounded(response, MAX_EVENT_BYTES)).decode("utf-8", "replace"), where)
        reply.done = True
        for event in reply.feed({} if chunk is None else chunk):
            yield event
    else:
        async with aclosing(_streamed(response, reply, where)) as events:
            async for event in events:
                yield event
    for event in reply.end():
        yield event


async def _streamed(response: httpx.Response, reply: ChatReply, where: Where) -> AsyncGenerator[ModelEvent]:
    try:
        async with aclosing(sse_events(response, where)) as events:
            async for sse in events:
                data = sse.data.strip()
                if sse.event == "error":
                    raise payload_error(where, _error_object(_decoded(data, where)))
                if data == "[DONE]":
                    reply.done = True
                    await _drain(events)
                    return
                for event in reply.feed(_decoded(data, where)) if data else ():
                    yield event
    except httpx.TransportError:
        if not reply.finished:
            raise


async def _drain(events: AsyncIterator[Any]) -> None:
    """Read to the end, so that the connection can serve again; a server that keeps it open after the last event is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            async for _ in events:
                pass


async def _refusal(response: httpx.Response) -> bytes:
    try:
        return await read_bounded(response, MAX_ERROR_BYTES)
    except httpx.HTTPError:  # the status says more than the failure to read its explanation
        return b""


def endpoint(base_url: str) -> httpx.URL:
    """The URL that requests go to. Raises UsageError for one that is no http(s) URL with a host."""
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:  # its text may quote a password
        raise UsageError("the base URL is malformed; it should look like https://example.org/v1") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"the base URL {printable_url(url)!r} needs a scheme and a host, such as https://example.org/v1")
    path = re.sub("/{2,}", "/", url.path).rstrip("/").removesuffix(_PATH)
    return url.copy_with(path=f"{path or '/v1'}{_PATH}")


def _checked_key(key: str | None, name: str) -> str | None:
    key = (key or "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError(f"the API key for {name} holds characters that no key has (blanks, line ends or non-ASCII); copy it again")
    return key or None


def _encode(body: Fields) -> bytes:
    # A lone surrogate cannot be sent as UTF-8; the model reads a question mark instead of failing.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _decoded(data: str, where: Where) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise where.error(f"a piece of the answer is no JSON ({error}): {data:.200}", Reason.PROTOCOL, retryable=True) from None


def _error_object(payload: Any) -> Any:
    return cast("Fields", payload).get("error", payload) if isinstance(payload, dict) else payload


def _text(value: Any) -> str:
    """A content field: text, null, or a list of text parts."""
    if isinstance(value, str):
        return value
    return "".join(part["text"] for part in _objects(value) if isinstance(part.get("text"), str))


def _object(value: Any) -> Fields:
    return cast("Fields", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Fields]:
    return [cast("Fields", item) for item in cast("list[Any]", value) if isinstance(item, dict)] if isinstance(value, list) else []


def _usage(value: Any) -> Usage | None:
    fields = _object(value)
    if not fields:
        return None
    details = _object(fields.get("prompt_tokens_details"))
    return Usage(
        input_tokens=_count(fields.get("prompt_tokens")),
        output_tokens=_count(fields.get("completion_tokens")),
        cache_read=_count(details.get("cached_tokens")),
    )


def _count(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
