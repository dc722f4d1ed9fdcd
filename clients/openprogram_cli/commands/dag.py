"""``openprogram dag``: what happened in a session, as a tree, one node whole, or the exact prompt of a model call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand

from openprogram_cli import output, stored, tree
from openprogram_cli.exits import usage
from openprogram_cli.shared import Local

if TYPE_CHECKING:
    from openprogram.context.call import Call, SessionInfo
    from openprogram.store.base import Store

HELP = """Show what happened in a session (by default the newest): functions, model calls and what they called.

--node shows one node whole, --prompt the exact messages that a model call was sent, request by request when it made several; without an ID they take the
last of the session. Ids may be shortened to any beginning that is unique; without SESSION they are looked for in every session, the newest first.
"""
LAST = "last"


class DagCommand(TyperCommand):
    """Typer has no options whose value may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        filled: list[str] = []
        for position, arg in enumerate(args):
            filled.append(arg)
            if arg in ("--node", "--prompt") and (position + 1 == len(args) or args[position + 1].startswith("-")):
                filled.append(LAST)
        return super().parse_args(ctx, filled)


def register(app: typer.Typer) -> None:
    app.command("dag", cls=DagCommand, help=HELP, short_help="Show what happened in a session.")(dag)


def dag(
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="A session's id or its beginning.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    node: Annotated[str | None, typer.Option(metavar="[ID]", help="Show this node whole.")] = None,
    prompt: Annotated[str | None, typer.Option(metavar="[ID]", help="Show the exact prompt of this model call.")] = None,
    local: Local = False,
) -> int:
    if node is not None and prompt is not None:
        raise usage("--node and --prompt exclude each other")
    with stored.opened(local=local) as store:
        info = stored.find_session(store, session)
        assert store is not None
        if node is not None:
            _show_node(_find(store, info, node, None, anywhere=session is None), as_json)
        elif prompt is not None:
            _show_prompt(store, _find(store, info, prompt, "llm", anywhere=session is None), as_json)
        else:
            _show_tree(info, stored.nodes_of(store, info.id), as_json)
    return 0


def _find(store: Store, info: SessionInfo, wanted: str, role: str | None, *, anywhere: bool) -> Call:
    """The node that an option names; `LAST` is the last one of that role."""
    if wanted != LAST:
        return stored.find_node(store, info, wanted, anywhere=anywhere)
    nodes = [node for node in stored.nodes_of(store, info.id) if role in (None, node.role)]
    if not nodes:
        raise usage(f"session {info.id} holds no {'model call' if role else 'node'} yet")
    return nodes[-1]


def _show_tree(info: SessionInfo, nodes: list[Call], as_json: bool) -> None:
    if as_json:
        output.write_json({"session": info, "nodes": nodes})
        return
    title = f"  {output.one_line(info.title, 80)}" if info.title else ""
    output.write(f"session {info.id}{title}  {len(nodes)} node{'' if len(nodes) == 1 else 's'}")
    for line in tree.lines_of(nodes):
        output.write(line)


def _show_node(node: Call, as_json: bool) -> None:
    document = cast("dict[str, Any]", output.plain(node))
    if as_json:
        output.write_json({"node": document})
        return
    for name, value in document.items():
        if value not in (None, [], {}, ""):
            output.write(f"{name}: {_shown(value)}")


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return output.printable(text if "\n" not in text else "\n  " + text.replace("\n", "\n  "))


def _show_prompt(store: Store, node: Call, as_json: bool) -> None:
    from openprogram.context.view import prompt_of

    if node.role != "llm":
        raise usage(f"{stored.short(node.id)} is no model call, so it has no prompt; `openprogram dag {node.session}` shows which nodes are")
    messages = prompt_of(store, node)
    system, added = node.metadata.get("system"), _added_by_request(node)
    if as_json:
        output.write_json({"node": node.id, "session": node.session, "system": system, "messages": messages, "added": added})
        return
    if added:
        output.write(f"This call made {len(added) + 1} requests. The first:\n")
    if isinstance(system, str) and system:
        _show_message("system", [{"type": "text", "text": system}])
    for message in messages:
        _show_message(message.role, message.blocks)
    for number, further in enumerate(added, 2):
        output.write(f"Request {number}, the same and behind it:\n")
        for message in further:
            _show_message(message["role"], message["blocks"])


def _added_by_request(node: Call) -> list[list[dict[str, Any]]]:
    """What each request of a call but the first held besides the one before: the reply to that, and what was said to it."""
    added: list[list[dict[str, Any]]] = []
    for message in node.exchanges:
        shown = cast("dict[str, Any]", output.plain(message))
        if shown["role"] == "assistant" or not added:
            added.append([])
        added[-1].append(shown)
    return added


def _show_message(role: str, blocks: Any) -> None:
    output.write(f"[{role}]")
    for block in blocks:
        text = block.get("text") if block.get("type") == "text" else None
        output.write(output.printable(text if isinstance(text, str) else json.dumps(output.plain(block), ensure_ascii=False)))
    output.write()
