"""Any menu, any arguments that fit it, any accepted way to write them: the same call comes out."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openprogram import decision
from openprogram.agentic_programming.decision.check import pick_from
from openprogram.agentic_programming.decision.menu import schema_of
from openprogram.agentic_programming.decision.options import build_menu
from tests.openprogram.decision.menus import menus, replies

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def typed(value: Any) -> Any:
    """A value with its types, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [typed(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return type(value).__name__, value


def expected(handler: Any, name: str, arguments: dict[str, Any]) -> Any:
    """What the documents promise for a pick."""
    if isinstance(handler, tuple):
        return {"decision": name, **arguments}
    return arguments if callable(handler) else handler


def check_round_trip(data: st.DataObject) -> None:
    """Make a menu and a pick, write it down, and read it again."""
    menu, name, arguments = data.draw(menus())
    reply = data.draw(replies(name, arguments))
    assert not pick_from(reply, build_menu(menu)).repaired
    assert typed(decision.resolve_decision(reply, menu, None, None)) == typed(expected(menu[name], name, arguments))
    chosen, kwargs = decision.parse_args(reply, menu, None)
    assert chosen == (menu[name] if callable(menu[name]) else name)
    assert typed(kwargs) == typed(arguments if menu[name] != {"value": name} else {})


@quick
@given(st.data())
def test_a_pick_round_trips(data: st.DataObject) -> None:
    """However the pick is written, its option and its arguments arrive unchanged and of the same types, without a repair or a request."""
    check_round_trip(data)


@pytest.mark.soak
@settings(quick, max_examples=5000)
@given(st.data())
def test_five_thousand_picks_round_trip(data: st.DataObject) -> None:
    """The same for many more menus."""
    check_round_trip(data)


@quick
@given(menus())
def test_the_menu_is_one_schema_that_admits_its_picks(drawn: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    """The pick fits the schema that constrains a provider; one without the name, or with another, does not."""
    menu, name, arguments = drawn
    schema = schema_of(build_menu(menu))
    validator: Any = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    assert validator.is_valid({"call": name, "args": arguments})
    assert not validator.is_valid({"args": arguments})
    assert not validator.is_valid({"call": "no such option at all", "args": arguments})


@quick
@given(menus())
def test_each_example_in_the_menu_is_a_valid_pick(drawn: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
    """A model that copies a ``Call:`` line has picked that option."""
    menu, _, _ = drawn
    lines = [line.strip().removeprefix("Call: ") for line in decision.render_options(menu).splitlines() if line.startswith("  Call: {")]
    assert [json.loads(line)["call"] for line in lines] == list(menu)
    for line, name in zip(lines, menu, strict=True):
        assert pick_from(line, build_menu(menu)).option.name == name
