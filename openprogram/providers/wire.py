"""The seam between HTTP and what a family of providers speaks: where a request goes, what is in it, and how its reply is read.

Wires do no I/O. A `Reader` reads one reply: pieces in, events out, and it alone knows whether what came makes a whole reply.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, cast

import httpx

from openprogram.errors import LLMError, Reason
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, Profile, ToolCall, Usage
from openprogram.providers.transport import Where

Fields = dict[str, Any]
DONE = "[DONE]"
"""What several servers end a stream with; the only piece that is no JSON."""


class Encoded(NamedTuple):
    """The value of a field of a request, JSON already, in pieces: a long history is put together once, with all the rest."""

    pieces: tuple[bytes, ...]


def json_bytes(value: Any) -> bytes:
    """A value as it goes out. A lone surrogate, which UTF-8 has no place for, is read by the model as a question mark. Raises as `json.dumps` does."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


class Reader(Protocol):
    """One reply being read. ``done``: nothing of use follows. ``finished``: the server said that the reply is over, though a usage count may follow."""

    @property
    def done(self) -> bool: ...

    @property
    def finished(self) -> bool: ...

    def feed(self, piece: Any) -> Iterator[ModelEvent]:
        """The events of one piece of the stream. Raises LLMError for an error in it."""
        ...

    def whole(self, document: Any) -> Iterator[ModelEvent]:
        """The events of a reply that came as one document, from a server that does not stream."""
        ...

    def end(self) -> Iterator[ModelEvent]:
        """Tool calls and the `Finish`. Raises LLMError for a reply that broke off, held nothing, or was withheld."""
        ...


class Wire(Protocol):
    """A wire format. It holds no state of a request."""

    path: str
    """What a base URL must not end in, because ``url`` adds it."""

    root: str
    """The path of a base URL that has none."""

    def url(self, base: httpx.URL, model: str) -> httpx.URL:
        """Where a request for that model goes."""
        ...

    def models_url(self, base: httpx.URL) -> httpx.URL:
        """Where the names of the models are listed."""
        ...

    def headers(self, key: str) -> Mapping[str, str]:
        """How a key is shown."""
        ...

    def body(self, request: ModelRequest, profile: Profile, provider: str) -> Fields:
        """The request. Raises LLMError, NotImplementedError or OSError for one that cannot be made."""
        ...

    def reader(self, where: Where) -> Reader:
        """A reader for one reply."""
        ...

    def without(self, body: Fields, refusal: bytes) -> Fields | None:
        """The body without an option that this refusal names; None when there is none to leave out."""
        ...


class Calls:
    """Tool calls that come in pieces, told apart by index and by id."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._open: dict[Any, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, index: Any, call_id: str, name: str, arguments: Any) -> None:
        """Pieces of one call share an index; a new id on an index that is taken starts the next call, since some servers number every call 0."""
        call = self._open.get(index)
        if call is None or (call_id and call.id and call_id != call.id):
            call = self._open[index] = _Call()
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        if arguments:
            call.arguments.append(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))

    def replace(self, index: Any, arguments: str) -> None:
        """The whole arguments of a call, where a server repeats them at the end."""
        if index in self._open and arguments:
            self._open[index].arguments = [arguments]

    def events(self) -> Iterator[ToolCall]:
        """The calls, in the order in which they began."""
        for number, call in enumerate(self._calls):
            yield ToolCall(call.id or f"call_{number}", call.name, "".join(call.arguments) or "{}")


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


def ending(where: Where, reason: str, calls: Calls, usage: Usage | None, *, said: bool, why: str = "") -> Iterator[ModelEvent]:
    """The tool calls and the Finish of a reply that is over.

    A withheld reply has no calls, and raises LLMError when it has no text either: an empty text would pass for an answer.
    """
    if reason in ("content_filter", "refusal"):
        if not said:
            raise withheld(where, why or reason)
    else:
        yield from calls.events()
        reason = "tool_calls" if calls and reason == "stop" else reason
    yield Finish(reason=reason, usage=usage)


def withheld(where: Where, why: str, *, retryable: bool = False) -> LLMError:
    """The provider gave no answer on purpose."""
    return where.error(f"the provider withheld the reply ({why}); put the question another way", Reason.CONTENT_FILTER, retryable=retryable)


def broken_off(where: Where) -> LLMError:
    """The connection ended before the reply did."""
    return where.error("the stream ended in the middle of the reply", Reason.CONNECTION, retryable=True)


def empty(where: Where, why: str = "") -> LLMError:
    """The server answered with nothing."""
    return where.error(f"the server sent an empty reply{f' ({why})' if why else ''}", Reason.PROTOCOL, retryable=True)


def no_object(where: Where, piece: Any) -> LLMError:
    """A piece that is JSON, but not what any server of this kind sends."""
    return where.error(f"a piece of the stream is no object: {piece!r:.200}", Reason.PROTOCOL, retryable=True)


def text_of(value: Any) -> str:
    """A content field: text, null, or a list of text parts."""
    if isinstance(value, str):
        return value
    return "".join(part["text"] for part in objects(value) if isinstance(part.get("text"), str))


def object_of(value: Any) -> Fields:
    """The value if it is an object, else an empty one."""
    return cast("Fields", value) if isinstance(value, dict) else {}


def objects(value: Any) -> list[Fields]:
    """The objects of a list."""
    return [cast("Fields", item) for item in cast("list[Any]", value) if isinstance(item, dict)] if isinstance(value, list) else []


def count(value: Any) -> int:
    """A number of tokens; anything else counts as 0."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 60 else 0
