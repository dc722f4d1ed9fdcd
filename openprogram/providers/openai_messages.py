"""`ModelRequest` → the body of an OpenAI Chat Completions request. Pure data in, pure data out.

A request looks the same whenever its parts are the same, since servers cache the longest prefix they have seen.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from openprogram.context.messages import Block, Message
from openprogram.errors import LLMError, Reason
from openprogram.providers.base import Constraint, ModelRequest, Profile, ToolSpec

Body = dict[str, Any]

_MEDIA = frozenset({"image", "audio", "video"})


def chat_body(request: ModelRequest, profile: Profile, *, max_tokens_field: str = "max_tokens") -> Body:
    """The body of a streamed request.

    Raises LLMError for media that the model cannot take, NotImplementedError for tools or a grammar where the profile has none, OSError for an image that
    cannot be read.
    """
    settings = request.settings
    body: Body = {"model": request.model, "messages": chat_messages(request, profile), "stream": True, "stream_options": {"include_usage": True}}
    options = {"temperature": settings.temperature, max_tokens_field: settings.max_output_tokens, "seed": settings.seed, "stop": list(settings.stop) or None}
    body.update({key: value for key, value in options.items() if value is not None})
    if request.tools:
        body.update(_tools(request, profile))
    if request.constraint is not None:
        body.update(_constraint(request.constraint, request.model, profile))
    return body


def chat_messages(request: ModelRequest, profile: Profile) -> list[Body]:
    """System part, history and new messages in wire form."""
    system: list[Body] = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, *(wire for message in request.messages() for wire in _message(message, request.model, profile))]


def _message(message: Message, model: str, profile: Profile) -> Iterator[Body]:
    """One message is several on the wire when it holds tool results: each is a message of role ``tool``, before anything else."""
    blocks = list(message.blocks) if profile.tools else [_as_text(block) for block in message.blocks]
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {"role": "tool", "tool_call_id": str(block["id"]), "content": str(block.get("text", ""))}
    calls = [_call(block) for block in blocks if block.get("type") == "tool_call"]
    content = _content([block for block in blocks if block.get("type") == "text" or block.get("type") in _MEDIA], model, profile)
    role = message.role if profile.tools or message.role != "tool" else "user"
    if calls:
        yield {"role": "assistant", "content": content or None, "tool_calls": calls}
    elif content or not any(block.get("type") == "tool_result" for block in blocks):
        yield {"role": "user" if role == "tool" else role, "content": content}


def _as_text(block: Block) -> Block:
    """A tool block as a model without tools reads it: in words."""
    if block.get("type") == "tool_call":
        return {"type": "text", "text": f"[called {block['name']}({_arguments(block)})]"}
    if block.get("type") == "tool_result":
        return {"type": "text", "text": f"[{block.get('name', 'tool')} {'failed' if block.get('is_error') else 'returned'}: {block.get('text', '')}]"}
    return block


def _content(blocks: list[Block], model: str, profile: Profile) -> str | list[Body]:
    """A plain string where there is only text, since many servers take nothing else."""
    if all(block.get("type") == "text" for block in blocks):
        return "\n".join(str(block.get("text", "")) for block in blocks)
    return [_part(block, model, profile) for block in blocks]


def _part(block: Block, model: str, profile: Profile) -> Body:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": str(block.get("text", ""))}
    if kind != "image" or not profile.images:
        raise LLMError(f"the model {model!r} takes no {kind} input; send text, or choose a model that does", reason=Reason.BAD_REQUEST, model=model)
    return {"type": "image_url", "image_url": {"url": _image_url(block)}}


def _image_url(block: Block) -> str:
    """``url`` as it is; ``data`` (base64 text or bytes) or the file at ``path`` as a data URI."""
    if block.get("url"):
        return str(block["url"])
    data, path = block.get("data"), block.get("path")
    if data is None and path is not None:
        data = Path(path).read_bytes()
    if data is None:
        raise LLMError("an image block needs data (base64), path or url", reason=Reason.BAD_REQUEST)
    mime = block.get("mime_type") or (mimetypes.guess_type(str(path))[0] if path else None) or "image/png"
    text = base64.b64encode(data).decode("ascii") if isinstance(data, (bytes, bytearray)) else str(data)
    return f"data:{mime};base64,{text}"


def _arguments(block: Block) -> str:
    args = block.get("args", {})
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)


def _call(block: Block) -> Body:
    return {"id": str(block["id"]), "type": "function", "function": {"name": block["name"], "arguments": _arguments(block)}}


def _tools(request: ModelRequest, profile: Profile) -> Body:
    if not profile.tools:
        raise NotImplementedError(f"the model {request.model!r} has no native tools, so none may be sent; its profile says so")
    body: Body = {"tools": [_tool(tool) for tool in request.tools], "tool_choice": _choice(request.tool_choice)}
    if not request.parallel_tool_calls:
        body["parallel_tool_calls"] = False
    return body


def _tool(tool: ToolSpec) -> Body:
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}}


def _choice(choice: str | Body) -> str | Body:
    """``{"type": "function", "name": N}`` is nested once more on this wire; the words are the same."""
    if isinstance(choice, str) or "function" in choice:
        return choice
    return {"type": "function", "function": {"name": choice["name"]}}


def _constraint(constraint: Constraint, model: str, profile: Profile) -> Body:
    if constraint.grammar is not None:
        if not profile.grammar:
            raise NotImplementedError(f"the model {model!r} takes no grammar; its profile says so")
        return {"grammar": constraint.grammar}
    if constraint.schema is None:
        return {}
    schema: Body = {"name": constraint.name, "schema": constraint.schema, "strict": is_strict(constraint.schema)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes the schema's objects: all closed, all properties required. Any other is refused there, so it is sent unstrict."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return True
    fields = cast("dict[str, Any]", schema)
    if fields.get("type") == "object" or "properties" in fields:
        properties: dict[str, Any] = fields.get("properties") or {}
        if fields.get("additionalProperties") is not False or set(properties) != set(fields.get("required") or ()):
            return False
        return all(map(is_strict, properties.values())) and _rest_is_strict(fields, skip=("properties",))
    return bool(fields) and _rest_is_strict(fields)


def _rest_is_strict(fields: dict[str, Any], skip: Iterable[str] = ()) -> bool:
    """Only keywords that hold schemas are looked into: data such as ``enum`` and ``default`` is not one."""
    single = all(is_strict(fields[key]) for key in ("items", "anyOf") if key in fields and key not in skip)
    definitions = cast("dict[str, Any]", fields.get("$defs") or {})
    return single and all(map(is_strict, definitions.values()))
