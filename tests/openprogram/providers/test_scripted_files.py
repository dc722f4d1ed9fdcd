"""Replies from a file: ``scripted:FILE``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from openprogram import NoModelError, create_runtime


def test_the_replies_of_a_file_come_in_order_and_again(tmp_path: Path) -> None:
    """A JSON list of texts answers one request each, from the start again at its end; a changed file starts over with what it holds then."""
    script = tmp_path / "replies.json"
    script.write_text(json.dumps(["one", "zwei 😀"]), "utf-8")
    with create_runtime("scripted", str(script)) as runtime:
        assert [runtime.exec("?") for _ in range(3)] == ["one", "zwei 😀", "one"]
        script.write_text(json.dumps(["new"]), "utf-8")
        os.utime(script, ns=(0, 1))
        assert runtime.exec("?") == "new"


@pytest.mark.parametrize("text", ["{", "[1]", None])
def test_a_file_that_is_no_script_is_named(tmp_path: Path, text: str | None) -> None:
    """A missing or wrong file is told by its path, with the form that is wanted."""
    script = tmp_path / "replies.json"
    if text is not None:
        script.write_text(text, "utf-8")
    with create_runtime(model=f"scripted:{script}") as runtime, pytest.raises(NoModelError, match=r"replies\.json needs a JSON file with a list of replies"):
        runtime.exec("?")
