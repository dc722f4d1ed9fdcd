"""Route 24 customer messages with the daemon's model and show each step, the score and the recorded DAG.

Run it with ``make demo``, or ``python examples/support/demo.py`` once a model is installed. The daemon is started if there is none; it keeps the model loaded,
so that the second time begins at once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import openprogram_clients
from triage import route_message

import openprogram

HERE = Path(__file__).parent


def picked(result: dict[str, Any] | str) -> tuple[str, dict[str, Any]]:
    """The route and its arguments behind what route_message returned."""
    if isinstance(result, dict):
        return result["action"], {name: value for name, value in result.items() if name != "action"}
    return "close", {}


def route_all(tickets: list[dict[str, str]], runtime: Any) -> tuple[int, int]:
    """Route every ticket, a line each; how many took the right route, and how many of the refunds among them name the right order."""
    right, named = 0, 0
    for number, ticket in enumerate(tickets, 1):
        started = time.perf_counter()
        route, arguments = picked(route_message(ticket["message"], runtime=runtime))
        seconds = time.perf_counter() - started
        verdict = judge(ticket, route, arguments)
        right += route == ticket["route"]
        named += verdict == "right" and route == "refund"
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        print(f"{number:2}. {ticket['message']}\n    → {route}({shown})   {verdict}   {seconds:.1f} s", flush=True)
    return right, named


def judge(ticket: dict[str, str], route: str, arguments: dict[str, Any]) -> str:
    """Right or wrong, and what was meant."""
    if route != ticket["route"]:
        return f"wrong, {ticket['route']} was meant"
    if route == "refund" and arguments["order_id"] != ticket["order_id"]:
        return f"right, but of order {ticket['order_id']}"
    return "right"


def main() -> int:
    """Route the messages; 3 when there is no model or no daemon to do it with."""
    tickets = [json.loads(line) for line in (HERE / "tickets.jsonl").read_text("utf-8").splitlines()]
    connected = openprogram.connect(HERE, title="Support triage demo")
    try:
        with connected as runtime:
            print(f"Routing {len(tickets)} messages with {runtime.model}; every pick is one of refund, escalate, close.\n", flush=True)
            right, named = route_all(tickets, runtime)
            nodes = connected.session.nodes()
    except (openprogram.NoModelError, openprogram_clients.ClientError) as error:
        print(error, file=sys.stderr)
        return 3
    tell(tickets, right, named)
    print(f"Recorded as session {connected.session.id}, {len(nodes)} nodes. The first message:\n")
    show_first(nodes)
    print(f"\nMore: openprogram dag {connected.session.id}      exact prompts: openprogram dag {connected.session.id} --prompt NODE")
    return 0


def tell(tickets: list[dict[str, str]], right: int, named: int) -> None:
    """The score, and what it is worth."""
    print(f"\n{right} of {len(tickets)} went where a person would send them (picking blindly gets about {len(tickets) // 3});")
    refunds = sum(ticket["route"] == "refund" for ticket in tickets)
    print(f"{named} of {refunds} refunds name the right order. This is a very small model: every pick is valid, not every pick is wise.\n")


def show_first(nodes: list[Any]) -> None:
    """The first call and what it called, as a tree."""
    top = nodes[0]
    for node in nodes:
        if node is top or node.caller == top.id:
            indent = "  " if node is top else "    "
            print(f"{indent}{node.role:4}  {node.name}  {node.status}  {node.metadata.get('duration_s', 0):.2f} s  {node.id[:13]}")


if __name__ == "__main__":
    sys.exit(main())
