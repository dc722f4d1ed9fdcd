"""A provider that answers from a script, for the tests of programs that use OpenProgram.

Each reply is a text, a list of events, an exception to raise, or a function of the request that returns one of these. ``requests`` keeps every `ModelRequest`
that was made, so that a test can say what the model was shown. The script ends loudly: one request more than there are replies is an AssertionError.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from openprogram.context.messages import Message
from openprogram.errors import NoModelError
from openprogram.providers.base import Finish, ModelEvent, ModelRequest, Profile, TextDelta, Usage

Reply = str | Sequence[ModelEvent] | BaseException | Callable[[ModelRequest], Any]


class ScriptedProvider:
    """Give the replies in order; ``repeat`` starts over at the end; without ``keep`` no request is kept. ``profile`` says what the pretended model can do."""

    name = "scripted"

    def __init__(self, replies: Iterable[Reply], *, profile: Profile | None = None, repeat: bool = False, keep: bool = True) -> None:
        self._count = 0
        self._keep = keep
        self._replies = list(replies)
        self._profile = profile or Profile()
        self._repeat = repeat
        self._lock = threading.Lock()
        self.requests: list[ModelRequest] = []
        self.prompts: list[list[Message]] = []
        self.closed = False

    def profile(self, model: str) -> Profile:
        return self._profile

    def _next(self, request: ModelRequest) -> Reply:
        with self._lock:
            position = self._count
            self._count += 1
            if self._keep:
                self.requests.append(request)
                self.prompts.append(request.messages())
        if not self._replies or (position >= len(self._replies) and not self._repeat):
            raise AssertionError(f"the script has {len(self._replies)} replies and this is request {position + 1}: {request.new!r:.300}")
        return self._replies[position % len(self._replies)]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        reply = self._next(request)
        if callable(reply):
            reply = reply(request)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, str):
            yield TextDelta(reply)
            yield Finish(usage=Usage(input_tokens=sum(len(message.blocks) for message in request.new), output_tokens=len(reply.split())))
            return
        for event in reply:
            yield event

    async def aclose(self) -> None:
        self.closed = True


class ScriptFiles:
    """``scripted:FILE``: the replies of a JSON list of texts, in order and from the start again, for programs that are tested from outside.

    Each file keeps its own place; it is read again when it changes.
    """

    name = "scripted"

    def __init__(self) -> None:
        self._scripts: dict[str, tuple[int, ScriptedProvider]] = {}
        self._lock = threading.Lock()

    def profile(self, model: str) -> Profile:
        return Profile()

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self._script(request.model).stream(request)

    def _script(self, file: str) -> ScriptedProvider:
        try:
            stamp = os.stat(file).st_mtime_ns  # noqa: PTH116 - asked for at every request: a Path costs more than the call
            with self._lock:
                if file not in self._scripts or self._scripts[file][0] != stamp:
                    replies = msgspec.json.decode(Path(file).read_bytes(), type=list[str])
                    self._scripts[file] = (stamp, ScriptedProvider(replies, repeat=True, keep=False))
                return self._scripts[file][1]
        except (OSError, msgspec.MsgspecError) as error:
            raise NoModelError(f"scripted:{file} needs a JSON file with a list of replies (texts): {error}") from None

    async def aclose(self) -> None:
        return None
