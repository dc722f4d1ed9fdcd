"""What the vendors' servers refuse of a conversation, as they document it or as users met it: the texts of their 400s."""

from __future__ import annotations

import itertools
import json
from typing import Any

Item = dict[str, Any]


def refusal_of(kind: str, body: Any) -> str | None:
    """Why a vendor would answer 400, None if it would not."""
    checks = {"chat": _chat, "responses": _responses, "anthropic": _anthropic, "gemini": _gemini}
    return checks[kind](body)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _chat(body: Item) -> str | None:
    seen: set[str] = set()
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            waiting.remove(message["tool_call_id"])
            if not message["content"].strip():
                return "the content of a tool message must not be empty"
            continue
        if waiting:
            return f"an assistant message with 'tool_calls' must be followed by tool messages: {waiting} did not have responses"
        if message["role"] == "user" and not message["content"] and len(body["messages"]) > 1:
            return "a message must have content"
        for call in message.get("tool_calls", ()):
            if call["id"] in seen:
                return f"the tool call id {call['id']} occurs twice"
            if not _is_object(call["function"]["arguments"]):
                return "tool call arguments must be the JSON of an object"
            seen.add(call["id"])
            waiting.append(call["id"])
    return f"no tool output found for {waiting}" if waiting else None


def _responses(body: Item) -> str | None:
    calls = [item for item in body["input"] if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in body["input"] if item["type"] == "function_call_output"]
    names = [item["call_id"] for item in calls]
    if len(set(names)) < len(names):
        return "a call_id occurs twice"
    if missing := set(names) - set(outputs):
        return f"no tool output found for function call {sorted(missing)}"
    if stray := set(outputs) - set(names):
        return f"no tool call found for function call output {sorted(stray)}"
    if not all(_is_object(call["arguments"]) for call in calls):
        return "arguments must be the JSON of an object"
    last = body["input"][-1]
    return "a reasoning item was provided without its required following item" if last["type"] == "reasoning" else None


def _anthropic(body: Item) -> str | None:
    messages: list[Item] = body["messages"]
    roles = [message["role"] for message in messages]
    if roles[:1] != ["user"] or any(a == b for a, b in itertools.pairwise(roles)):
        return "messages: roles must alternate between 'user' and 'assistant', and the first must be 'user'"
    seen: set[str] = set()
    end: Item = {"content": []}
    for message, after in itertools.pairwise([*messages, end]):
        if any(block["type"] == "text" and not block["text"].strip() for block in message["content"]):
            return "messages: text content blocks must contain non-whitespace text"
        uses = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if seen & set(uses) or len(set(uses)) < len(uses):
            return "messages: `tool_use` ids must be unique"
        seen |= set(uses)
        leading = [block.get("tool_use_id") for block in after["content"][: len(uses)]]
        results = [block["tool_use_id"] for block in after["content"] if block["type"] == "tool_result"]
        if set(leading) != set(uses):
            return "messages: `tool_use` ids were found without `tool_result` blocks immediately after"
        if set(results) - set(uses):
            return "messages: unexpected `tool_use_id` found in `tool_result` blocks"
    if any(block["type"] == "tool_result" and not str(block["content"]).strip() for message in messages for block in message["content"]):
        return "messages: tool_result: content must be non-empty"
    return None


def _gemini(body: Item) -> str | None:
    contents: list[Item] = body["contents"]
    roles = [content["role"] for content in contents]
    if roles[:1] != ["user"] or any(a == b for a, b in itertools.pairwise(roles)):
        return "please ensure that the conversation alternates between user and model"
    end: Item = {"parts": []}
    for content, after in itertools.pairwise([*contents, end]):
        if not content["parts"] or any(part.get("text") == "" and "thoughtSignature" not in part for part in content["parts"]):
            return "unable to submit request because it must have a text parameter"
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        answers = [part["functionResponse"] for part in after["parts"] if "functionResponse" in part]
        if [call["name"] for call in calls] != [answer["name"] for answer in answers]:
            return "please ensure that the number of function response parts is equal to the number of function call parts of the function call turn"
    return None
