"""`ModelRequest` → the body of an OpenAI Chat Completions request. Pure data in, pure data out.

A request looks the same whenever its parts are the same, since servers cache the longest prefix they have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from openprogram.context.messages import Block, Message
from openprogram.errors import LLMError, Reason
from openprogram.providers.base import Constraint, ModelRequest, Profile, ToolSpec
from openprogram.providers.conversation import Turn, Used, arguments_json, entry_turns, result_text, turns_of
from openprogram.providers.media import KINDS, Media, media_of
from openprogram.providers.schemas import is_within
from openprogram.providers.thinking import effort
from openprogram.providers.wire import Encoded, json_bytes

Body = dict[str, Any]


def chat_body(
    request: ModelRequest,
    profile: Profile,
    *,
    provider: str = "openai",
    max_tokens_field: str = "max_tokens",
    cache_key: bool = False,
    messages: Any = None,
) -> Body:
    """The body of a streamed request. ``messages`` stands for `chat_messages`, where they were made another way.

    Raises LLMError for media or a web search that the model does not offer, NotImplementedError for tools or a grammar where the profile has none, OSError for
    a file that cannot be read.
    """
    settings = request.settings
    messages = chat_messages(request, profile, provider) if messages is None else messages
    body: Body = {"model": request.model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    options = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        max_tokens_field: settings.max_output_tokens,
        "seed": settings.seed,
        "stop": list(settings.stop) or None,
        "reasoning_effort": effort(settings.thinking, profile),
        "prompt_cache_key": request.session_id if cache_key else None,
    }
    body.update({key: value for key, value in options.items() if value is not None})
    if settings.web_search:
        raise no_web_search(request.model)
    if request.tools:
        body.update(_tools(request, profile))
    if request.constraint is not None:
        body.update(_constraint(request.constraint, request.model, profile))
    return {**body, **settings.extra}


def no_web_search(model: str) -> LLMError:
    """For a model whose provider has no web search of its own."""
    return LLMError(f"the model {model!r} has no web search of its own here; give it a tool that searches", reason=Reason.BAD_REQUEST, model=model)


def chat_messages(request: ModelRequest, profile: Profile, provider: str = "openai") -> list[Body]:
    """System part, history and new messages in wire form."""
    system: list[Body] = [{"role": "system", "content": request.system}] if request.system else []
    turns = turns_of(request, provider, tools=profile.tools)
    messages = [wire for turn in turns for wire in _messages(turn, request.model, profile)]
    return [*system, *(messages or [{"role": "user", "content": ""}])]


class ChatForm(NamedTuple):
    """How entries of a history are written for one model, so that each is written once."""

    model: str
    provider: str
    profile: Profile

    def encode(self, messages: Sequence[Message], names: Used, *, past: bool = True) -> bytes:
        """The messages as JSON objects with commas between them; see `openprogram.context.fragments.Form`."""
        turns = entry_turns(messages, names, self.model, self.provider, tools=self.profile.tools, past=past)
        try:
            return b",".join(json_bytes(wire) for turn in turns for wire in _messages(turn, self.model, self.profile))
        except (TypeError, ValueError, RecursionError) as error:
            raise LLMError(f"the request cannot be written as JSON: {error}", reason=Reason.BAD_REQUEST, model=self.model) from None


def encoded_messages(request: ModelRequest, profile: Profile, provider: str = "openai") -> Encoded:
    """`chat_messages` as JSON. What a history has encoded before is not encoded again."""
    form, history = ChatForm(request.model, provider, profile), request.history
    system = json_bytes({"role": "system", "content": request.system}) if request.system else b""
    past: list[bytes] = history.encoded(form)
    new = form.encode(request.new, history.names(form), past=False)
    pieces = [piece for piece in (*((b",", system) if system else ()), *past, *((b",", new) if new else ())) if piece]
    if not pieces:
        return Encoded((b"[", json_bytes({"role": "user", "content": ""}), b"]"))
    return Encoded((b"[", pieces[0].removeprefix(b","), *pieces[1:], b"]"))


def _messages(turn: Turn, model: str, profile: Profile) -> Iterator[Body]:
    """One turn is several messages on the wire when it holds tool results: each is a message of role ``tool``, before anything else."""
    for block in turn.of("tool_result"):
        yield {"role": "tool", "tool_call_id": str(block["id"]), "content": result_text(block)}
    calls = [_call(block) for block in turn.of("tool_call")]
    content = _content([block for block in turn.blocks if block.get("type") == "text" or block.get("type") in KINDS], model, profile)
    carried = {key: value for block in turn.of("opaque") for key, value in block["data"].items()}
    if calls:
        yield {"role": "assistant", "content": content or None, **carried, "tool_calls": calls}
    elif content:
        yield {"role": turn.role, "content": content, **carried}


def _content(blocks: list[Block], model: str, profile: Profile) -> str | list[Body]:
    """A plain string where there is only text, since many servers take nothing else."""
    if all(block.get("type") == "text" for block in blocks):
        return "\n".join(str(block.get("text", "")) for block in blocks)
    return [_part(block, model, profile) for block in blocks]


def _part(block: Block, model: str, profile: Profile) -> Body:
    if block.get("type") == "text":
        return {"type": "text", "text": str(block.get("text", ""))}
    media = media_of(block, model, profile)
    return {"type": "image_url", "image_url": {"url": media.uri}} if media.kind == "image" else _audio(media, model)


def _audio(media: Media, model: str) -> Body:
    sound = media.mime_type.partition("/")[2].removeprefix("x-")
    form = {"mpeg": "mp3", "wave": "wav", "vnd.wave": "wav"}.get(sound, sound)
    if media.kind != "audio" or media.url or form not in ("mp3", "wav"):
        raise LLMError(f"the model {model!r} takes audio as the data of a WAV or MP3 file only", reason=Reason.BAD_REQUEST, model=model)
    return {"type": "input_audio", "input_audio": {"data": media.data, "format": form}}


def _call(block: Block) -> Body:
    return {"id": str(block["id"]), "type": "function", "function": {"name": block["name"], "arguments": arguments_json(block)}}


def _tools(request: ModelRequest, profile: Profile) -> Body:
    check_tools(request, profile)
    body: Body = {"tools": [_tool(tool) for tool in request.tools], "tool_choice": _choice(request.tool_choice)}
    if not request.parallel_tool_calls and profile.parallel_tools:
        body["parallel_tool_calls"] = False
    return body


def check_tools(request: ModelRequest, profile: Profile) -> None:
    """Raises NotImplementedError when tools are sent to a model that has none."""
    if request.tools and not profile.tools:
        raise NotImplementedError(f"the model {request.model!r} has no native tools, so none may be sent; its profile says so")


def _tool(tool: ToolSpec) -> Body:
    strict = {"strict": True} if tool.strict else {}
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters, **strict}}


def _choice(choice: str | Body) -> str | Body:
    """``{"type": "function", "name": N}`` is nested once more on this wire; the words are the same."""
    if isinstance(choice, str) or "function" in choice:
        return choice
    return {"type": "function", "function": {"name": choice["name"]}}


def chosen_name(choice: str | Body) -> str | None:
    """The tool that a choice forces, in either of its shapes; None for a word."""
    if isinstance(choice, str):
        return None
    inner: Any = choice.get("function", choice)
    return str(inner["name"])


def _constraint(constraint: Constraint, model: str, profile: Profile) -> Body:
    if constraint.grammar is not None:
        if not profile.grammar:
            raise NotImplementedError(f"the model {model!r} takes no grammar; its profile says so")
        return {"grammar": constraint.grammar}
    schema = openai_schema(constraint, profile)
    return {} if schema is None else {"response_format": {"type": "json_schema", "json_schema": schema}}


def openai_schema(constraint: Constraint, profile: Profile) -> Body | None:
    """Name, schema and whether it is strict, as both OpenAI wires nest it; None for a schema whose root OpenAI refuses, which is then left to the prompt."""
    if constraint.schema is None or (profile.schema_dialect == "openai" and constraint.schema.get("type") != "object"):
        return None
    return {"name": constraint.name, "schema": constraint.schema, "strict": is_within("openai", constraint.schema)}
