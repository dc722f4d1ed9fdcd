"""A session as a tree of who called whom: functions, model calls and what was said, one line each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from openprogram_cli.output import one_line, plain, seconds
from openprogram_cli.stored import short
from openprogram_cli.streams import holds

if TYPE_CHECKING:
    from openprogram.context.call import Call

VALUE_WIDTH = 48


class Glyphs(NamedTuple):
    """The pieces that the branches are drawn with."""

    fork: str
    last: str
    line: str
    space: str


def glyphs() -> Glyphs:
    """Box characters where stdout has them, else ASCII."""
    return Glyphs("├─ ", "└─ ", "│  ", "   ") if holds("├└│─") else Glyphs("|- ", "`- ", "|  ", "   ")


def lines_of(nodes: Sequence[Call]) -> Iterator[str]:
    """The tree, in the order in which calls began. A node whose caller is not among the nodes is a root."""
    children: dict[str | None, list[Call]] = defaultdict(list)
    known = {node.id for node in nodes}
    for node in nodes:
        children[node.caller if node.caller in known else None].append(node)
    pieces = glyphs()
    # A stack, since nothing bounds how deep calls nest.
    stack = [(node, "", "") for node in reversed(children[None])]
    while stack:
        node, prefix, below = stack.pop()
        yield prefix + line_of(node)
        inner = children.get(node.id, [])
        for position, child in reversed(list(enumerate(inner))):
            is_last = position == len(inner) - 1
            stack.append((child, below + (pieces.last if is_last else pieces.fork), below + (pieces.space if is_last else pieces.line)))


def line_of(node: Call) -> str:
    """Kind, call, result, status, duration, tokens and short id of a node."""
    parts = [title_of(node), *_notes(node), f"[{short(node.id)}]"]
    return "  ".join(part for part in parts if part)


def title_of(node: Call) -> str:
    """What the node did: the call of a function and its result, the prompt and reply of a model call."""
    arrow = " → " if holds("→") else " -> "
    if node.role == "code":
        title, result = _called(node.name, node.input), "" if node.output is None else f"{arrow}{_value(node.output)}"
    elif node.role == "llm":
        title, result = f"model {one_line(_model_of(node), 60)}{_prompt_of(node)}", _result_of(node, arrow)
    else:
        return f"user: {_value(node.input)}"
    return title + result if node.status == "completed" else title


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _called(name: str, arguments: Any) -> str:
    return f"{one_line(name, 80)}({', '.join(f'{one_line(str(key), 40)}={_value(value)}' for key, value in _mapping(arguments).items())})"


def _value(value: Any) -> str:
    text = repr(value) if isinstance(value, str) and len(value) <= VALUE_WIDTH * 4 else value if isinstance(value, str) else str(plain(value))
    return one_line(text, VALUE_WIDTH)


def _model_of(node: Call) -> str:
    model = node.metadata.get("model")
    return model if isinstance(model, str) and model else node.name


def _prompt_of(node: Call) -> str:
    said = _mapping(node.input).get("messages") or ()
    messages: list[Any] = [plain(message) for message in said]
    texts = [block["text"] for message in messages for block in message.get("blocks", ()) if isinstance(block.get("text"), str)]
    asked = [text for text in texts if not _is_framing(text)] or texts
    return f"({_value(asked[-1])})" if asked else ""


def _is_framing(text: str) -> bool:
    """Whether the library put the text around a question: the situational line, the request to end with a pick, the menu."""
    if text.startswith(("(You are asked from within the function ", "Options:\n")):
        return True
    from openprogram.agentic_programming.decision.menu import DECISION_FINISH_INSTRUCTION

    return text == DECISION_FINISH_INSTRUCTION


def _result_of(node: Call, arrow: str) -> str:
    """What came of a model call: the pick it made, why it made none, or its reply."""
    pick = _mapping(node.metadata.get("pick"))
    if "problem" in pick:
        return f"{arrow}{_value(node.output)}  no valid pick: {one_line(str(pick['problem']), 40)}"
    if "name" in pick:
        repaired = "  repaired" if pick.get("repaired") else ""
        return f"{arrow}picks {_called(str(pick['name']), pick.get('args'))}{repaired}"
    return "" if node.output is None else f"{arrow}{_value(node.output)}"


def _notes(node: Call) -> list[str]:
    duration = node.metadata.get("duration_s")
    if duration is None and node.ended_at is not None and node.status in ("completed", "error", "cancelled"):
        duration = node.ended_at - node.started_at
    notes = [node.status, seconds(duration) if isinstance(duration, int | float) else ""]
    if counts := _mapping(node.metadata.get("usage")):
        notes.append(f"{counts.get('input_tokens', 0)}+{counts.get('output_tokens', 0)} tokens")
    if told := _mapping(node.metadata.get("error")):
        notes.append(one_line(": ".join(str(part) for part in (told.get("type", "error"), told.get("message")) if part), 100))
    return notes
