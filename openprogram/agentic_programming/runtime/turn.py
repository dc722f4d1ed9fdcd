"""One turn: what an exec sends and receives, recorded as one llm node.

A turn makes one or more model requests (a pick in two steps makes two). Its node opens before the first request and closes after the last, with the messages
between them as ``exchanges``, so that the transcript can be shown again exactly as it was sent.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any, cast

import msgspec

from openprogram.agentic_programming.agent_loop import Answer, Tooling, converse
from openprogram.agentic_programming.decision.check import ParseProblem, Pick, pick_from
from openprogram.agentic_programming.decision.menu import arguments_question, names_grammar, schema_of, short_menu
from openprogram.agentic_programming.decision.menu import render as render_menu
from openprogram.agentic_programming.decision.options import Menu
from openprogram.agentic_programming.runtime.content import messages_of, question_of
from openprogram.agentic_programming.runtime.retry import Attempts, ConsumerFailed, RetryInfo
from openprogram.context.messages import Block, Message, text_message
from openprogram.context.scope import OpenCall, current, open_call
from openprogram.providers.base import (
    Constraint,
    Finish,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    Opaque,
    Provider,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolSpec,
    Usage,
)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn produced: the last reply's text, why it ended, the tokens of all its requests, and the pick when one was asked for."""

    text: str
    finish_reason: str
    usage: Usage
    pick: Pick | None = None
    problem: ParseProblem | None = None
    node: str | None = None


def read(reply: Reply, menu: Menu, text: str) -> Reply:
    """A reply with the pick that its ``text`` makes, or with the problem that it is none."""
    try:
        return msgspec.structs.replace(reply, pick=pick_from(text, menu, finish_reason=reply.finish_reason))
    except ParseProblem as problem:
        return msgspec.structs.replace(reply, problem=problem)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one turn needs. ``menu`` asks for a pick; ``closing`` says that nothing but the pick is wanted, so that it may be constrained."""

    provider: Any
    model: str
    blocks: list[Block]
    system: str | None
    settings: ModelSettings
    max_attempts: int
    timeout_s: float | None = None
    on_retry: Callable[[RetryInfo], object] | None = None
    on_stream: Callable[[dict[str, Any]], object] | None = None
    menu: Menu | None = None
    closing: bool = False
    session_id: str | None = None
    tooling: Tooling | None = None


class Turn:
    """A plan being carried out."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._started = time.monotonic()
        self._provider: Provider = plan.provider
        self._profile = self._provider.profile(plan.model)
        self._two_steps = plan.menu is not None and plan.closing and self._profile.two_step_pick
        self._new = messages_of(self._opening())
        self._exchanges: list[Message] = []
        self._usage = Usage()
        self._told = False
        self._attempts = self._new_attempts()
        self._opened = OpenCall(None, None)

    def _new_attempts(self) -> Attempts:
        plan = self._plan
        return Attempts(
            plan.max_attempts,
            on_retry=plan.on_retry,
            provider=self._provider.name,
            model=plan.model,
            started=self._started,
            timeout_s=plan.timeout_s,
        )

    def _opening(self) -> list[Block]:
        scope = current.get()
        blocks = list(self._plan.blocks)
        if (menu := self._plan.menu) and self._two_steps:
            blocks.insert(0, {"type": "text", "text": short_menu(menu)})  # a small model answers what stands last
        elif menu:
            blocks.append({"type": "text", "text": render_menu(menu)})
        if scope is not None and scope.function and self._profile.situational_line:
            line = f"(You are asked from within the function {scope.function}; do not call {scope.function} again.)"
            blocks.insert(0, {"type": "text", "text": line})
        return blocks

    def _open(self) -> OpenCall:
        plan = self._plan
        scope = current.get()
        metadata: dict[str, Any] = {"model": plan.model, "provider": self._provider.name}
        if plan.system:
            metadata["system"] = plan.system
        if plan.tooling is not None and not plan.closing:
            metadata["tools"] = [spec.name for spec in plan.tooling.specs()]
        if scope is not None and scope.render_range:
            metadata["render_range"] = scope.render_range
        return open_call("llm", plan.model, {"messages": list(self._new)}, metadata=metadata)

    async def _begin(self) -> None:
        """Open the node, behind what had to be cut for it; a turn that there is no room for fails as a node, too."""
        try:
            if self._profile.context_window is not None:
                await self._make_room(self._profile.context_window)
        finally:
            self._opened = self._open()

    async def _make_room(self, window: int) -> None:
        from openprogram.agentic_programming.runtime.room import make_room

        plan = self._plan
        tools = () if plan.tooling is None or plan.closing else plan.tooling.specs()
        fixed = [plan.system or "", *(msgspec.json.encode(tool).decode() for tool in tools)]
        reply = plan.settings.max_output_tokens or min(window // 4, self._profile.max_output_tokens or window)
        await make_room(model=plan.model, window=window, reply=reply, fixed=fixed, new=self._new, ask=self._summarize)

    async def _summarize(self, text: str, most: int) -> str:
        plan = self._plan
        settings = msgspec.structs.replace(plan.settings, max_output_tokens=most, stop=())
        blocks: list[Block] = [{"type": "text", "text": text}]
        request = Plan(provider=plan.provider, model=plan.model, blocks=blocks, system=None, settings=settings, max_attempts=plan.max_attempts)
        return (await Turn(request).run()).text

    async def run(self) -> Reply:
        """Carry the plan out and close its node. Raises LLMError, or whatever the provider's function raised."""
        try:
            async with asyncio.timeout(self._plan.timeout_s):
                await self._begin()
                reply = await (self._pick_in_two() if self._two_steps else self._whole())
        except TimeoutError as error:
            failure = error if self._plan.timeout_s is None else self._attempts.timed_out()
            self._fail(failure)
            raise failure from None
        except ConsumerFailed as error:
            failure = error.__cause__ or error
            self._fail(failure)
            raise failure from None
        except BaseException as error:
            self._fail(error)
            raise
        self._finish(reply)
        return msgspec.structs.replace(reply, node=self._opened.id)

    def _fail(self, error: BaseException) -> None:
        self._opened.fail(error, trace="".join(traceback.format_exception_only(error)))

    def _finish(self, reply: Reply) -> None:
        metadata: dict[str, Any] = {"usage": reply.usage.as_dict(), "finish_reason": reply.finish_reason}
        if reply.pick is not None:
            metadata["pick"] = {"name": reply.pick.option.name, "args": reply.pick.arguments, "repaired": reply.pick.repaired}
        elif reply.problem is not None:
            metadata["pick"] = {"problem": reply.problem.kind, "message": str(reply.problem)}
        self._opened.finish("completed", reply.text, enters=True, exchanges=tuple(self._exchanges), metadata=metadata)

    async def _whole(self) -> Reply:
        menu = self._plan.menu
        constraint = Constraint(schema=schema_of(menu), name="pick") if menu and self._plan.closing and self._profile.schema else None
        if self._plan.tooling is None or self._plan.closing:
            text, reason = await self._request(constraint)
        else:
            text, reason = await converse(self._answer, self._plan.tooling, opened=self._opened, exchanges=self._exchanges, tell=self._tell)
        reply = Reply(text=text, finish_reason=reason, usage=self._usage)
        return reply if menu is None else read(reply, menu, text)

    async def _pick_in_two(self) -> Reply:
        """First the name, which small models get right far more often alone; then, if the option takes any, its arguments."""
        menu = self._plan.menu
        assert menu is not None
        text, reason = await self._request(Constraint(grammar=names_grammar(menu), name="name"))
        option = menu.options.get(text.strip())
        if option is None or not option.properties:
            return read(Reply(text=text, finish_reason=reason, usage=self._usage), menu, json.dumps({"call": text.strip()}))
        self._exchanges += [text_message("assistant", text), text_message("user", arguments_question(option, question_of(self._plan.blocks)))]
        text, reason = await self._request(Constraint(schema=option.schema, name="arguments"))
        reply = Reply(text=text, finish_reason=reason, usage=self._usage)
        return read(reply, menu, f'{{"call": {json.dumps(option.name)}, "args": {text}}}')

    async def _request(self, constraint: Constraint | None) -> tuple[str, str]:
        answer = await self._answer((), "auto", constraint)
        return answer.text, answer.reason

    async def _answer(self, tools: tuple[ToolSpec, ...], choice: str | dict[str, Any], constraint: Constraint | None = None) -> Answer:
        plan = self._plan
        request = ModelRequest(
            model=plan.model,
            new=(*self._new, *self._exchanges),
            history=self._opened.history(),
            system=plan.system,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=plan.tooling is None or plan.tooling.parallel,
            constraint=constraint,
            settings=plan.settings,
            session_id=plan.session_id,
        )
        self._told = False
        self._attempts = self._new_attempts()
        return await self._attempts.run(lambda: self._stream(request))

    async def _stream(self, request: ModelRequest) -> Answer:
        if self._told:  # by an attempt that failed: what was shown of it is void
            self._told = False
            self._tell({"type": "restart"})
        said: list[str | Block] = []
        calls: list[ToolCall] = []
        reason = "stop"
        stream = cast("AsyncGenerator[ModelEvent, None]", self._provider.stream(request))  # the seam promises an iterator that can be closed
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    said.append(event.text)
                    self._told = True
                    self._tell({"type": "text", "text": event.text})
                elif isinstance(event, ThinkingDelta):
                    self._told = True
                    self._tell({"type": "thinking", "text": event.text})
                elif isinstance(event, ToolCall):
                    calls.append(event)
                elif isinstance(event, Opaque):
                    said.append(event.block())
                elif isinstance(event, Finish):
                    reason = event.reason
                    self._usage += event.usage or Usage()
        text = "".join(piece for piece in said if isinstance(piece, str))
        return Answer(text=text, reason=reason, blocks=_blocks(said) if calls else (), calls=tuple(calls))

    def _tell(self, event: dict[str, Any]) -> None:
        if self._plan.on_stream is None:
            return
        try:
            self._plan.on_stream(event)
        except Exception as error:
            raise ConsumerFailed from error


def _blocks(said: list[str | Block]) -> tuple[Block, ...]:
    """What a reply said, in order; text that follows text is one block."""
    blocks: list[Block] = []
    for is_text, pieces in itertools.groupby(said, lambda piece: isinstance(piece, str)):
        if not is_text:
            blocks += cast("list[Block]", list(pieces))
        elif text := "".join(cast("Iterator[str]", pieces)):
            blocks.append({"type": "text", "text": text})
    return tuple(blocks)
