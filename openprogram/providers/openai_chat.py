"""The Chat Completions wire, as OpenAI and the many servers that copy it speak it.

Every stream ends in exactly one `Finish` or raises: one that stops without saying so is a broken connection, never a short answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import httpx

from openprogram.errors import Reason
from openprogram.providers.base import ModelEvent, ModelRequest, Opaque, Profile, TextDelta, ThinkingDelta, Usage
from openprogram.providers.http import HttpProvider
from openprogram.providers.openai_messages import chat_body, encoded_messages
from openprogram.providers.transport import Where, payload_error
from openprogram.providers.wire import DONE, Calls, Fields, broken_off, count, empty, ending, no_object, object_of, objects, text_of

_FINISH = {"length": "length", "max_tokens": "length", "tool_calls": "tool_calls", "function_call": "tool_calls", "content_filter": "content_filter"}
_LEFT_OUT = ("stream_options", "prompt_cache_key")


class ChatWire:
    """Chat Completions.

    ``max_tokens_field`` is ``max_completion_tokens`` for OpenAI's own models; ``cache_key`` sends the session's id as ``prompt_cache_key``; ``key_header``
    names the header of the key where that is no bearer token; ``echo_thinking`` sends a reply's reasoning back with its tool calls.
    """

    path = "/chat/completions"
    root = "/v1"

    def __init__(self, *, max_tokens_field: str = "max_tokens", cache_key: bool = False, key_header: str = "", echo_thinking: bool = False) -> None:
        self._max_tokens_field = max_tokens_field
        self._cache_key = cache_key
        self._key_header = key_header
        self._echo_thinking = echo_thinking

    def url(self, base: httpx.URL, model: str) -> httpx.URL:
        return base.copy_with(path=base.path + self.path)

    def models_url(self, base: httpx.URL) -> httpx.URL:
        return base.copy_with(path=f"{base.path}/models")

    def headers(self, key: str) -> Mapping[str, str]:
        return {self._key_header: key} if self._key_header else {"Authorization": f"Bearer {key}"}

    def body(self, request: ModelRequest, profile: Profile, provider: str) -> Fields:
        return chat_body(
            request,
            profile,
            provider=provider,
            max_tokens_field=self._max_tokens_field,
            cache_key=self._cache_key,
            messages=encoded_messages(request, profile, provider) if hasattr(request.history, "encoded") else None,
        )

    def reader(self, where: Where) -> ChatReply:
        return ChatReply(where, echo_thinking=self._echo_thinking)

    def without(self, body: Fields, refusal: bytes) -> Fields | None:
        named = next((name for name in _LEFT_OUT if name in body and name.encode() in refusal), None)
        return None if named is None else {key: value for key, value in body.items() if key != named}


class ChatReply:
    """Chunks in, events out."""

    def __init__(self, where: Where, *, echo_thinking: bool = False) -> None:
        self._where = where
        self._echo_thinking = echo_thinking
        self._calls = Calls()
        self._usage: Usage | None = None
        self._reason: str | None = None
        self._thoughts: list[str] = []
        self._refused = False
        self._said = False
        self._begun = False
        self.done = False

    @property
    def finished(self) -> bool:
        return self.done or self._reason is not None

    def feed(self, piece: Any) -> Iterator[ModelEvent]:
        if piece == DONE:
            self.done = True
            return
        if not isinstance(piece, dict):
            raise no_object(self._where, piece)
        fields = cast("Fields", piece)
        if error := fields.get("error"):
            raise payload_error(self._where, error)
        self._usage = _usage(fields.get("usage")) or self._usage
        for choice in objects(fields.get("choices"))[:1]:
            yield from self._delta(object_of(choice.get("delta") or choice.get("message")))
            self._reason = str(choice.get("finish_reason") or "") or self._reason

    def whole(self, document: Any) -> Iterator[ModelEvent]:
        self.done = True
        yield from self.feed({} if document is None else document)

    def _delta(self, delta: Fields) -> Iterator[ModelEvent]:
        self._begun = self._begun or bool(delta)
        if thinking := text_of(delta.get("reasoning_content") or delta.get("reasoning")):
            self._thoughts.append(thinking)
            yield ThinkingDelta(thinking)
        if refusal := text_of(delta.get("refusal")):
            self._refused = self._said = True
            yield TextDelta(refusal)
        if text := text_of(delta.get("content")):
            self._said = True
            yield TextDelta(text)
        for position, part in enumerate(objects(delta.get("tool_calls"))):
            index, function = part.get("index"), object_of(part.get("function"))
            key = index if isinstance(index, int) else position
            self._calls.add(key, str(part.get("id") or ""), str(function.get("name") or ""), function.get("arguments"))

    def end(self) -> Iterator[ModelEvent]:
        if not self.finished:
            raise broken_off(self._where)
        if self._reason is None and not self._begun:
            raise empty(self._where)
        if self._reason == "error":
            raise self._where.error("the server broke the reply off with an error", Reason.SERVER, retryable=True)
        if self._echo_thinking and self._calls and self._thoughts:
            yield Opaque(self._where.provider, self._where.model, {"reasoning_content": "".join(self._thoughts)})
        reason = "refusal" if self._refused else _FINISH.get(self._reason or "stop", "stop")
        yield from ending(self._where, reason, self._calls, self._usage, said=self._said)


def _usage(value: Any) -> Usage | None:
    fields = object_of(value)
    if not fields:
        return None
    read, written = object_of(fields.get("prompt_tokens_details")), object_of(fields.get("completion_tokens_details"))
    return Usage(
        input_tokens=count(fields.get("prompt_tokens")),
        output_tokens=count(fields.get("completion_tokens")),
        cache_read=count(read.get("cached_tokens") or fields.get("prompt_cache_hit_tokens")),
        cache_create=count(read.get("cache_write_tokens")),
        reasoning_tokens=count(written.get("reasoning_tokens")),
        cost=float(fields["cost"]) if isinstance(fields.get("cost"), (int, float)) else None,
    )


class OpenAIChatProvider(HttpProvider):
    """A server that speaks Chat Completions at ``base_url`` (``…/v1``; a bare host means ``/v1``, a full ``…/chat/completions`` and a query are understood).

    ``profile`` is one for all models or a function of the model's name; other options are those of `HttpProvider`. Raises UsageError for a URL,
    ConfigurationError for a key that cannot be sent.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        name: str = "openai",
        profile: Profile | Callable[[str], Profile] | None = None,
        max_tokens_field: str = "max_tokens",
        **options: Any,
    ) -> None:
        super().__init__(ChatWire(max_tokens_field=max_tokens_field), base_url, api_key, name=name, profile=profile, **options)
