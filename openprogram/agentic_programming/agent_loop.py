"""The tool-call loop: ask the model, run what it calls, show it the results, until it answers in words.

The loop is given its "one model request" and knows no Runtime. It keeps three promises: each call has exactly one result and no call runs twice; whatever a
tool does, the model sees a result and the loop goes on; the next request goes out when all results are there, in the order of the calls.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from openprogram.context import scope as scopes
from openprogram.context.messages import Block, Message
from openprogram.context.scope import OpenCall
from openprogram.errors import LLMError, Reason
from openprogram.functions.dispatch import run_tool, settled
from openprogram.functions.fit import Misfit
from openprogram.functions.gates import Approve, Refused, admit
from openprogram.functions.results import capped, error_text, text_of
from openprogram.functions.tool import Arguments, Tool
from openprogram.functions.toolbox import Toolbox
from openprogram.providers.base import ToolCall, ToolSpec
from openprogram.store.values import redact, snapshot

CHOICES = ("auto", "required", "none")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of a model: its text, why it ended, what else it holds that must go back unchanged, and its calls."""

    text: str
    reason: str
    blocks: tuple[Block, ...] = ()
    calls: tuple[ToolCall, ...] = ()


class Tooling(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn may do with tools. ``runtime`` fills the runtime parameters of tools, ``max_iterations`` counts model requests."""

    toolbox: Any
    choice: str | dict[str, Any] = "auto"
    parallel: bool = True
    max_iterations: int = 20
    runtime: Any = None
    approve: Approve

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model is sent them now."""
        shown: list[Tool] = self.toolbox.shown()
        return tuple(ToolSpec(name=tool.wire_name, description=tool.spec["description"], parameters=tool.spec["parameters"]) for tool in shown)


Request = Callable[[tuple[ToolSpec, ...], str | dict[str, Any]], Awaitable[Answer]]
Tell = Callable[[dict[str, Any]], None]


def checked_choice(choice: Any, toolbox: Toolbox) -> str | dict[str, Any]:
    """``tool_choice`` as providers take it. Raises ValueError, naming what is allowed."""
    if isinstance(choice, str) and choice in CHOICES:
        if choice == "required" and not toolbox:
            raise ValueError("tool_choice='required' needs at least one tool, and this call has none")
        return choice
    allowed = f"{', '.join(map(repr, CHOICES))} or {{'type': 'function', 'name': …}}"
    fields = cast("dict[str, Any]", choice) if isinstance(choice, dict) else {}
    if fields.get("type") != "function" or not isinstance(fields.get("name"), str) or fields.keys() - {"type", "name"}:
        raise ValueError(f"tool_choice does not know {choice!r:.200}; allowed: {allowed}")
    tool = toolbox.find(fields["name"])
    if tool is None:
        names = [tool.name for tool in toolbox.tools]
        near: list[str] = difflib.get_close_matches(str(fields["name"]), names, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else f"; the tools of this call are: {', '.join(names) or 'none'}"
        raise ValueError(f"tool_choice names {fields['name']!r}, which is no tool of this call{guess}")
    return {"type": "function", "name": tool.wire_name}


async def converse(request: Request, tooling: Tooling, *, opened: OpenCall, exchanges: list[Message], tell: Tell) -> tuple[str, str]:
    """The model's last text and why it ended; ``exchanges`` grows by each round of calls and results.

    When ``max_iterations`` requests are spent, the last text that the model wrote comes back with the reason ``max_iterations``; raises LLMError when there is
    none.
    """
    loop = _Loop(tooling, opened, tell)
    choice, text = tooling.choice, ""
    for _ in range(max(1, tooling.max_iterations)):
        answer = await request(tooling.specs(), choice)
        if not answer.calls or choice == "none":
            return answer.text, answer.reason
        text = answer.text if answer.text.strip() else text
        calls = loop.numbered(answer.calls)
        exchanges.append(Message(role="assistant", blocks=(*answer.blocks, *(call.block for call in calls))))
        exchanges.append(Message(role="tool", blocks=tuple(await loop.results(calls, is_cut=answer.reason == "length"))))
        choice = "auto"  # a call that was forced has been made; forced again, the model could never answer
    if text:
        return text, "max_iterations"
    spent = max(1, tooling.max_iterations)
    raise LLMError(f"the model called tools in each of max_iterations={spent} requests and wrote no answer", reason=Reason.MAX_ITERATIONS)


class _Call:
    """A call of the model, under an id that no other call of the turn has."""

    def __init__(self, call_id: str, call: ToolCall) -> None:
        self.id = call_id
        self.name = call.name
        self.arguments, self.problem = _parsed(call.arguments)
        self.block: Block = {"type": "tool_call", "id": call_id, "name": call.name, "args": self.arguments}
        if self.problem:
            self.block["raw"] = call.arguments

    def result(self, text: str, *, is_error: bool = False) -> Block:
        return {"type": "tool_result", "id": self.id, "name": self.name, "text": text, "is_error": is_error}


def _parsed(text: str) -> tuple[dict[str, Any], str]:
    """The arguments of a call, or why there are none. Nothing is repaired: half a file written is worse than a call made again."""
    if not text.strip():
        return {}, ""
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value = json.loads(value)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
        return {}, f"nothing was run: the arguments are no JSON object ({why})"
    if value is None:
        return {}, ""
    if not isinstance(value, dict):
        return {}, f"nothing was run: the arguments are a JSON object of the parameters, not {text[:100]!r}"
    return cast("dict[str, Any]", value), ""


class _Loop:
    def __init__(self, tooling: Tooling, opened: OpenCall, tell: Tell) -> None:
        self._tooling = tooling
        self._toolbox: Toolbox = tooling.toolbox
        self._opened = opened
        self._tell = tell
        self._ids: set[str] = set()

    def numbered(self, calls: tuple[ToolCall, ...]) -> list[_Call]:
        """The calls of a reply with unique ids; one that was delivered twice is made once."""
        found: list[_Call] = []
        seen: set[ToolCall] = set()
        for call in calls:
            if call.id and call in seen:
                continue
            seen.add(call)
            base = name = call.id or "call"
            number = 1
            while name in self._ids:
                number += 1
                name = f"{base}_{number}"
            self._ids.add(name)
            found.append(_Call(name, call))
        return found

    async def results(self, calls: list[_Call], *, is_cut: bool) -> list[Block]:
        """A result for each call, in their order. Raises what ends a run: an interrupt, an exit, a cancellation."""
        if is_cut:
            cut = "nothing was run: the reply was cut off by the token limit, so the arguments may be incomplete; make the call again, more briefly"
            return [self._said(call, call.result(cut, is_error=True)) for call in calls]
        if self._tooling.parallel:
            blocks = await self._together(calls)
        else:
            blocks = [block for call in calls for block in await self._together([call])]
        return [self._said(call, block) for call, block in zip(calls, blocks, strict=True)]

    async def _together(self, calls: list[_Call]) -> list[Block]:
        """Calls that run at once. The first that ends the run ends the others."""
        tasks = [asyncio.ensure_future(settled(self._one(call))) for call in calls]
        pending = set(tasks)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for fatal in (task.result()[1] for task in done):
                    if fatal is not None:
                        raise fatal
        finally:
            for task in pending:
                task.cancel()
            if pending:  # their nodes close before that of the exec
                await asyncio.wait(pending)
        return [cast("Block", task.result()[0]) for task in tasks]

    def _said(self, call: _Call, block: Block) -> Block:
        self._tell({"type": "tool_result", "id": call.id, "name": call.name, "text": block["text"], "is_error": block["is_error"]})
        return block

    async def _one(self, call: _Call) -> Block:
        """Runs in a task, and so in a context, of its own."""
        self._tell({"type": "tool_use", "id": call.id, "name": call.name, "args": call.arguments})
        if (outer := scopes.current.get()) is not None:
            scopes.current.set(msgspec.structs.replace(outer, caller=self._opened.id or outer.caller, transcript=True))
        scopes.entry.set(None)
        tool = self._toolbox.find(call.name)
        if tool is None or call.problem:
            return self._not_run(call, "ToolCallError", call.problem or self._toolbox.unknown(call.name))
        try:
            arguments = tool.read(call.arguments)
        except Misfit as misfit:
            return self._not_run(call, "Misfit", f"nothing was run: {misfit}")
        return await self._run(tool, call, arguments)

    def _not_run(self, call: _Call, kind: str, text: str) -> Block:
        metadata = {"expose": "io", "tool_call": call.id}
        node = scopes.open_call("code", call.name, snapshot(redact(call.arguments)), metadata=metadata)
        node.finish("error", enters=False, metadata={"error": {"type": kind, "message": text, "trace": ""}})
        return call.result(text, is_error=True)

    async def _run(self, tool: Tool, call: _Call, arguments: Arguments) -> Block:
        node = self._entered(tool, call, arguments)
        try:
            await admit(tool, arguments, self._tooling.approve)
            self._hand_over(tool, node)
            value, is_remembered = await run_tool(tool, arguments, runtime=self._tooling.runtime)
            text = text_of(value)
        except Refused as refusal:
            node.fail(refusal)
            return call.result(str(refusal), is_error=True)
        except asyncio.CancelledError as error:
            node.fail(error)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return call.result("the tool was cancelled", is_error=True)
        except BaseException as error:
            node.fail(error, trace="".join(traceback.format_exception(error)[-20:]))
            if not isinstance(error, Exception):
                raise
            return call.result(error_text(error), is_error=True)
        node.finish("completed", value, enters=False, metadata={"remembered": True} if is_remembered else {})
        return call.result(self._fitted(tool, call, node, text))

    def _fitted(self, tool: Tool, call: _Call, node: OpenCall, text: str) -> str:
        if not tool.options.persist_full:
            return capped(text, tool.options)
        name = node.id or call.id
        short = capped(text, tool.options, kept_as=name)
        if short is not text:
            self._toolbox.keep(name, text)
        return short

    def _entered(self, tool: Tool, call: _Call, arguments: Arguments) -> OpenCall:
        """Write the call's node and enter its frame. Of a function that is hidden nothing is written."""
        if scopes.current.get() is None or tool.record["expose"] == "hidden":
            return OpenCall(None, None)
        metadata = {**tool.record, "tool_call": call.id}
        given = snapshot(redact(arguments.as_json))
        opened, inner = scopes.open_function(tool.name, given, metadata=metadata, render_range=getattr(tool.decorated, "render_range", {}))
        scopes.current.set(inner)
        return opened

    def _hand_over(self, tool: Tool, node: OpenCall) -> None:
        """An agentic function takes the node that was written for it instead of writing its own."""
        inner = scopes.current.get()
        if node.node is not None and inner is not None and tool.decorated is not None and tool.decorated.records_itself:
            scopes.entry.set((node.node.id, inner.view.frame.id))
