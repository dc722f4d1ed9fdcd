"""Route customer messages: the model chooses what happens next, and the choice is the branch."""

from __future__ import annotations

from typing import Any

from openprogram import agentic_function, decision

EXAMPLES = """Decide what to do with a customer's message.

Message: The kettle from order 8810 arrived broken, please return my money.
Decision: refund
Message: Your driver shouted at me and I want to speak to a manager.
Decision: escalate
Message: Thanks, everything works now!
Decision: close
"""


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
        f"{EXAMPLES}\nMessage: {message}",
        {"refund": refund, "escalate": escalate, "close": decision.value("CLOSED", "Nothing is left to do: thanks, or already solved.")},
    )
