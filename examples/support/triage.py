"""Route customer messages: the model chooses what happens next, and the choice is the branch."""

from __future__ import annotations

from typing import Any

from openprogram import agentic_function, decision

EXAMPLES = [
    ("The kettle from order 8810 arrived broken, please return my money.", "refund"),
    ("Thanks, everything works now!", "close"),
    ("Your driver shouted at me and I want to speak to a manager.", "escalate"),
    ("You may close my request, it is solved.", "close"),
    ("Why can I not open my account page?", "escalate"),
    ("Order 3005 is not what I bought, refund me.", "refund"),
    ("My parcel is late, where is it?", "escalate"),
    ("I am happy with it, thank you.", "close"),
    ("Please pay order 1212 back to my card.", "refund"),
]


def worked_examples() -> list[dict[str, str]]:
    """The examples as turns of a conversation: what a customer wrote, what was picked."""
    turns = [[("user", message), ("assistant", route)] for message, route in EXAMPLES]
    return [{"type": "text", "role": role, "text": text} for turn in turns for role, text in turn]


@agentic_function
def refund(order_id: str) -> dict[str, Any]:
    """The customer wants money back for an order."""
    return {"action": "refund", "order_id": order_id}


@agentic_function
def escalate(reason: str) -> dict[str, Any]:
    """A person has to look into it: a question, a complaint, a problem."""
    return {"action": "escalate", "reason": reason}


@agentic_function(render_range={"callers": 0})
def route_message(message: str, runtime: Any = None) -> dict[str, Any] | str:
    """Route one customer message to what should happen next."""
    return decision.make(
        [*worked_examples(), {"type": "text", "text": message}],
        {"refund": refund, "escalate": escalate, "close": decision.value("CLOSED", "Nothing is left to do: thanks, or already solved.")},
    )
