"""What the local provider adds to a constraint."""

from __future__ import annotations

from typing import Any

import pytest

from openprogram.providers.base import Constraint, ModelRequest
from openprogram.providers.local import LocalProvider, with_defaults


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"type": "string"}, {"type": "string", "maxLength": 160}),
        ({"type": "string", "maxLength": 900}, {"type": "string", "maxLength": 900}),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "string", "maxLength": 160}, "maxItems": 12}),
        ({"type": "object", "properties": {"type": {"type": "string"}}}, {"type": "object", "properties": {"type": {"type": "string", "maxLength": 160}}}),
        ({"default": {"type": "string"}}, {"default": {"type": "string"}}),
    ],
)
def test_constrained_texts_and_lists_end(given: dict[str, Any], sent: dict[str, Any]) -> None:
    """A schema without limits gets some, so that a small model's JSON is finished before the token limit; the author's own limits stand."""
    request = ModelRequest(model="smollm2-135m", new=(), constraint=Constraint(schema=given))
    constraint = with_defaults(request).constraint
    assert constraint is not None
    assert constraint.schema == sent
    assert LocalProvider().profile("smollm2-135m").schema
