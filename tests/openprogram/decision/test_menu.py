"""The menu as a model sees it."""

from __future__ import annotations

import decimal
import enum
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from openprogram import agentic_function, decision
from openprogram.agentic_programming.decision.menu import placeholder, schema_of
from openprogram.agentic_programming.decision.options import build_menu


class Level(enum.Enum):
    LOW = "low"
    HIGH = 2


@dataclass
class Item:
    name: str
    count: int = 1
    parts: list[Item] = field(default_factory=list["Item"])


class Order(BaseModel):
    items: list[Item]
    note: Annotated[str, Field(description="for the packer")] = ""


def clash() -> Any:
    class Order(BaseModel):
        number: int

    def other(order: Order) -> None: ...

    other.__annotations__["order"] = Order
    return other


def refund(order: Order, level: Level = Level.LOW, tag: str | None = None) -> None:
    """Pay back.

    Only once.
    """


def tree(root: Item, mode: Literal["fast", "safe"]) -> None: ...


def anything(x, y=object(), *args, **more: int) -> None: ...  # noqa: B008  # pyright: ignore


MENUS: dict[str, Any] = {
    "functions": [refund, tree, anything],
    "same name, other type": [refund, clash()],
    "values": ["stop", ("go", "now")],
    "one value": ["stop"],
    "schemas": {
        "plan": ("Plan.", {"steps": [{"action": "what to do", "order": Order}], "why": {"type": str, "options": ["a", "b"]}, "first": Item, "free": dict}),
        "pair": ("Two.", {"pair": tuple[int, str], "either": int | list[Item] | None}),
    },
    "awkward names": {'say "hi"': 1, "back\\slash": 2, "ünï": 3},
}


def calls(text: str) -> list[Any]:
    """The JSON of each ``Call:`` line."""
    return [json.loads(line.strip().removeprefix("Call: ")) for line in text.splitlines() if line.startswith("  Call: ")]


@pytest.mark.parametrize("name", MENUS)
def test_the_schema_is_valid_and_the_examples_fit_it(name: str) -> None:
    """One JSON Schema of 2020-12, strict JSON, whose references all resolve; each ``Call:`` line is a JSON object of one option and fits it."""
    menu = build_menu(MENUS[name])
    schema = schema_of(menu)
    json.dumps(schema, allow_nan=False)
    validator: Any = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    examples = calls(decision.render_options(MENUS[name]))
    assert [example["call"] for example in examples] == menu.names()
    for example in examples:
        validator.validate(example)
    assert not validator.is_valid({"call": "none of these", "args": {}})


def test_definitions_of_one_name_are_kept_apart() -> None:
    """Two options that take different classes called Order each get their own."""
    menu = build_menu(MENUS["same name, other type"])
    validator: Any = jsonschema.Draft202012Validator(schema_of(menu))
    assert validator.is_valid({"call": "other", "args": {"order": {"number": 1}}})
    assert not validator.is_valid({"call": "other", "args": {"order": {"items": []}}})
    assert validator.is_valid({"call": "refund", "args": {"order": {"items": []}}})
    assert not validator.is_valid({"call": "refund", "args": {"order": {"number": 1}}})


def test_the_text_shows_what_a_model_needs() -> None:
    """Signature in Python's words with defaults, description, allowed values and descriptions at every depth, what is optional, and an example."""

    @agentic_function(input={"key": {"hidden": True}, "kind": {"description": "which one", "options": ["a", "b"]}})
    def fetch(kind: str, n: int = 3, level: Level = Level.HIGH, key: str = "secret", tags: list[str] = [], runtime: Any = None) -> None:  # noqa: B006
        """Get it."""

    text = decision.render_options([fetch, ("plan", "Make one.", {"steps": [{"act": "what to do", "n": int}], "done": bool, "share": float})])
    assert text == "\n".join(
        [
            "Options:",
            "",
            "fetch(kind: str, n: int = 3, level: str | int = 2, tags: list[str] = [])",
            "  Get it.",
            '  - kind: which one; one of "a", "b"',
            "  - n: optional",
            '  - level: one of "low", 2; optional',
            "  - tags: optional",
            '  Call: {"call": "fetch", "args": {"kind": "a"}}',
            "",
            "plan(steps: list[dict], done: bool, share: float)",
            "  Make one.",
            "  - steps[].act: what to do",
            '  Call: {"call": "plan", "args": {"steps": [{"act": "<str>", "n": 0}], "done": false, "share": 0}}',
        ]
    )


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        ("int", "x: int"),
        ("list[int]", "x: list[int]"),
        ("int | None", "x: int | None"),
        ('Literal["a", "b"]', "x: str"),
        ("dict[str, int]", "x: dict"),
        ("Item", "x: dict"),
        ("Level", "x: str | int"),
        ("Any", "x: any"),
        ("NoSuchType", "x: any"),
    ],
)
def test_types_are_shown_in_the_words_of_python(annotation: str, shown: str) -> None:
    """Postponed annotations too; one that cannot be resolved admits any value."""

    def option(x: Any) -> None: ...

    option.__annotations__["x"] = annotation
    assert f"option({shown})" in decision.render_options([option])


def test_a_type_that_holds_itself_has_an_end() -> None:
    """The example of a recursive type stops at some depth."""
    schema: dict[str, Any] = {"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}, "required": ["t"]}}}
    assert json.dumps(placeholder(schema, schema)).count("t") == 5


def test_what_would_break_a_line_is_escaped() -> None:
    """Names, descriptions and allowed values with line breaks stay on the line of their field; other scripts are shown as they are."""
    text = decision.render_options([("emit", "Emit.", {"a\nb": str, "c": {"description": "two\nlines"}, "d": {"options": ["x\u2028y", "ü"]}, "größe": int})])
    assert text.splitlines()[2:] == [
        'emit("a\\nb": str, c: str, d: str, größe: int)',
        "  Emit.",
        "  - c: two lines",
        '  - d: one of "x\\u2028y", "ü"',
        r'  Call: {"call": "emit", "args": {"a\nb": "<str>", "c": "<str>", "d": "x\u2028y", "gr\u00f6\u00dfe": 0}}',
    ]


def test_a_decimal_is_a_number_or_its_digits() -> None:
    """Any other text is no pick, for a provider that is held to the schema too."""
    validator: Any = jsonschema.Draft202012Validator(schema_of(build_menu({"pay": ("Pay.", {"amount": decimal.Decimal})})))
    assert [validator.is_valid({"call": "pay", "args": {"amount": amount}}) for amount in (1.5, "0.10", "a lot", None)] == [True, True, False, False]
