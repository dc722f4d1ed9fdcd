"""Real traffic recorded once and replayed offline: for tests of programs that use a hosted model.

    provider = RecordedProvider("answers.json", "openai:gpt-5.4")
    runtime = Runtime(provider=provider, model="gpt-5.4")

A recording holds what was asked and what came back, byte for byte, and nothing else: no header of a request, no query of an address, and no key, wherever it
stood. A request is found again by its address and its body, without what differs from run to run (the session's id); the same request made several times is
answered in the order that was recorded, and the last answer repeats.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import httpx
import msgspec

from openprogram.errors import ConfigurationError, NoModelError, UsageError
from openprogram.providers.base import ModelEvent, ModelRequest, Profile
from openprogram.providers.hosted import hosted
from openprogram.providers.http import HttpProvider, Link

Mode = Literal["replay", "record", "auto"]
_MODES = ("replay", "record", "auto")
_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms")
_PASSING = ("prompt_cache_key",)
_STRIPPED = "***"


class Exchange(msgspec.Struct, kw_only=True):
    """One request and its answer; ``body`` of the answer is text."""

    url: str
    request: Any
    status: int
    headers: dict[str, str] = {}
    body: str = ""


class _Recording(msgspec.Struct, kw_only=True):
    version: int = 1
    model: str = ""
    exchanges: list[Exchange] = []


class Tape:
    """The exchanges of one file. Raises ConfigurationError for a file that is no recording."""

    def __init__(self, file: Path, model: str) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._turns: dict[bytes, int] = defaultdict(int)
        self._recording = _Recording(model=model)
        try:
            self._recording = msgspec.json.decode(file.read_bytes(), type=_Recording)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigurationError(f"{file} is no recording: {error}") from None

    @property
    def model(self) -> str:
        """The ``"provider:model"`` that was recorded."""
        return self._recording.model

    def clear(self) -> None:
        """Forget what the file holds; it is written anew with the first exchange."""
        self._recording.exchanges.clear()

    def next(self, url: str, request: Any, *, again: bool) -> Exchange | None:
        """The answer to this request that has not been given yet. When all have: the last one ``again``, or None."""
        wanted = _identity(url, request)
        with self._lock:
            found = [exchange for exchange in self._recording.exchanges if _identity(exchange.url, exchange.request) == wanted]
            position = self._turns[wanted]
            if position >= len(found):
                return found[-1] if again and found else None
            self._turns[wanted] += 1
            return found[position]

    def add(self, exchange: Exchange) -> None:
        """Keep an exchange, in the file at once."""
        with self._lock:
            self._recording.exchanges.append(exchange)
            self._turns[_identity(exchange.url, exchange.request)] += 1
            text = msgspec.json.format(msgspec.json.encode(self._recording), indent=1)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            draft = self.file.with_name(f".{self.file.name}.{os.getpid()}")
            draft.write_bytes(text + b"\n")
            draft.replace(self.file)


def _identity(url: str, request: Any) -> bytes:
    body = {key: value for key, value in cast("dict[str, Any]", request).items() if key not in _PASSING} if isinstance(request, dict) else request
    return msgspec.json.encode([url, body], order="deterministic")


class _Player(httpx.AsyncBaseTransport):
    """Answers from a tape; asks ``inner`` for what the tape does not hold, where there is one, and records that."""

    def __init__(self, tape: Tape, base: str, secrets: tuple[str, ...], inner: httpx.AsyncBaseTransport | None) -> None:
        self._tape = tape
        self._base = base
        self._secrets = secrets
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url.path.removeprefix(self._base)
        body = self._clean(await request.aread())
        asked: Any = msgspec.json.decode(body)
        known = self._tape.next(url, asked, again=self._inner is None)
        if known is not None:
            return httpx.Response(known.status, headers=known.headers, content=known.body.encode("utf-8", "surrogateescape"))
        if self._inner is None:
            tail = body[-300:].decode("utf-8", "replace")
            raise UsageError(f"{self._tape.file} holds no answer to this request to {url}; record it again (mode='record'). It ends in: {tail}")
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        return self._taped(response, url, asked)

    def _taped(self, response: httpx.Response, url: str, asked: Any) -> httpx.Response:
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        encoding = {name: value for name, value in response.headers.items() if name == "content-encoding"}

        def keep(content: bytes) -> None:
            body = self._clean(httpx.Response(200, headers=encoding, content=content).content).decode("utf-8", "surrogateescape")
            self._tape.add(Exchange(url=url, request=asked, status=response.status_code, headers=headers, body=body))

        response.stream = _Tee(cast("httpx.AsyncByteStream", response.stream), keep)
        return response

    def _clean(self, content: bytes) -> bytes:
        for secret in self._secrets:
            content = content.replace(secret.encode(), _STRIPPED.encode())
        return content

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()


class _Tee(httpx.AsyncByteStream):
    """Passes a body on as it comes, and hands it over once it is whole; one that broke off or was left is not kept."""

    def __init__(self, stream: httpx.AsyncByteStream, keep: Callable[[bytes], None]) -> None:
        self._stream = stream
        self._keep = keep

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: list[bytes] = []
        async for chunk in self._stream:
            parts.append(chunk)
            yield chunk
        self._keep(b"".join(parts))

    async def aclose(self) -> None:
        await self._stream.aclose()


class RecordedProvider:
    """A hosted provider whose traffic is recorded in ``file``.

    ``mode``: ``replay`` asks nobody, and a request that was not recorded is a UsageError that shows it; ``record`` asks for everything and writes the file
    anew; ``auto`` asks only for what the file does not hold. ``model`` is the ``"provider:model"`` that is recorded; replaying knows it from the file.
    ``environ``, ``api_key`` and ``options`` are those of the hosted provider. Raises NoModelError for a file to replay that is not there, ConfigurationError
    for one that is no recording.
    """

    def __init__(
        self, file: str | Path, model: str = "", *, mode: Mode = "replay", environ: Mapping[str, str] | None = None, api_key: str | None = None, **options: Any
    ) -> None:
        if mode not in _MODES:
            raise UsageError(f"mode is one of {', '.join(_MODES)}, not {mode!r}")
        self._tape = Tape(Path(file), model)
        if mode == "replay" and not self._tape.file.exists():
            raise NoModelError(f"there is no recording {file}; record it with RecordedProvider({str(file)!r}, 'provider:model', mode='record')")
        self.model = model or self._tape.model
        if mode == "record":
            self._tape.clear()
        provider = self.model.partition(":")[0]
        self._provider = _on_tape(self._tape, provider, mode, environ, api_key, options)

    @property
    def name(self) -> str:
        return self._provider.name

    def profile(self, model: str) -> Profile:
        return self._provider.profile(model)

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        return self._provider.stream(request)

    async def aclose(self) -> None:
        await self._provider.aclose()


def _on_tape(tape: Tape, provider: str, mode: Mode, environ: Mapping[str, str] | None, api_key: str | None, options: dict[str, Any]) -> HttpProvider:
    def replay(link: Link) -> httpx.AsyncBaseTransport:
        return _Player(tape, link.base, (), None)

    def record(link: Link) -> httpx.AsyncBaseTransport:
        return _Player(tape, link.base, link.secrets, link.open())

    if mode == "replay":
        return hosted(provider, environ={}, api_key="replayed", base_url="http://recorded", transport=replay, **options)
    return hosted(provider, environ=environ, api_key=api_key, transport=record, **options)


class RecordedFiles:
    """``recorded:FILE``: replays a recording, for programs that are tested from outside."""

    name = "recorded"

    def __init__(self) -> None:
        self._providers: dict[str, RecordedProvider] = {}
        self._lock = threading.Lock()

    def _of(self, file: str) -> RecordedProvider:
        with self._lock:
            if file not in self._providers:
                self._providers[file] = RecordedProvider(file)
            return self._providers[file]

    def profile(self, model: str) -> Profile:
        provider = self._of(model)
        return provider.profile(provider.model.partition(":")[2])

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        provider = self._of(request.model)
        return provider.stream(msgspec.structs.replace(request, model=provider.model.partition(":")[2]))

    async def aclose(self) -> None:
        for provider in self._providers.values():
            await provider.aclose()
