"""What is wrong is said plainly: settings, files that may not be read, prompts that are too long, replies that were cut off, nodes of other sessions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from openprogram.providers import weights
from tests.clients.cli.command import Command

ASKS = "from openprogram import agentic_function\n@agentic_function\ndef say(runtime):\n    return runtime.exec('x')\n"

PICKS = """
from openprogram import agentic_function, decision


def refund(order_id: str) -> str:
    return order_id


@agentic_function
def route(message: str, runtime=None):
    return decision.make(message, {"refund": refund})
"""


@pytest.fixture
def talking(tmp_path: Path) -> Generator[Command]:
    """A folder and a daemon with this machine's models."""
    folder = tmp_path / "work"
    folder.mkdir()
    command = Command(folder, tmp_path / "home", local=False, models=True)
    command.write({"pyproject.toml": ""})
    weights.install()
    try:
        yield command
    finally:
        command.stop()


@pytest.mark.parametrize("arguments", [("exec", "hi"), ("run", "asks.py:say")])
def test_a_setting_of_the_wrong_kind_names_file_and_key(either: Command, arguments: tuple[str, ...]) -> None:
    """``model = 3`` is exit code 3 in one line."""
    either.write({"asks.py": ASKS, "pyproject.toml": "[tool.openprogram]\nmodel = 3\n"})
    done = either(*arguments)
    either.write({"pyproject.toml": ""})
    assert (done.code, done.out) == (3, "")
    assert done.told.startswith(f"openprogram: {either.folder.resolve() / 'pyproject.toml'}: [tool.openprogram] model = 3 must be a string")
    assert len(done.told.splitlines()) == 1


def test_a_misspelt_setting_is_named(either: Command) -> None:
    """A key that nothing reads is a line on stderr, and a note of doctor; the run goes on."""
    either.write({"pyproject.toml": "[tool.openprogram]\nmodle = 'm'\n"})
    done, doctor = either("run", "add", "a=1"), either("doctor", "--json")
    either.write({"pyproject.toml": ""})
    assert (done.code, done.out) == (0, "3\n")
    assert "no key 'modle' (did you mean 'model'?)" in done.told
    assert [check["state"] for check in doctor.json["checks"] if "modle" in check["detail"]] == ["note"]


@pytest.mark.skipif(sys.platform == "win32" or (os.geteuid() == 0 and sys.platform != "linux"), reason="permissions that hold for this user")
@pytest.mark.parametrize("local", [True, False])
def test_a_file_that_may_not_be_read_is_named(openprogram: Command, local: bool) -> None:
    """`functions` lists it with its error; running a function of it is a usage error that says why."""
    openprogram.local = local
    openprogram.write({"un.py": ASKS, "pyproject.toml": ""})
    (openprogram.folder / "un.py").chmod(0)
    try:
        assert "un.py\n  line 1: error: the file cannot be read: Permission denied" in openprogram("functions", as_root=False).out
        for target in ("un.py:say", "un:say"):
            done = openprogram("run", target, as_root=False)
            assert done.code == 2
            assert "Permission denied" in done.told
            assert "Traceback" not in done.told
    finally:
        openprogram.stop()


@pytest.mark.timeout(300)
def test_a_prompt_that_is_too_long_says_by_how_much(talking: Command) -> None:
    """The tokens of the prompt and those that the model takes, in one line."""
    done = talking("exec", "word " * 6000)
    assert done.code == 1
    found = re.fullmatch(r"openprogram: the prompt takes about (\d+) tokens and the model .* has room for (\d+), .*\n", done.told)
    assert found is not None, done.told
    assert int(found[1]) > int(found[2]) > 0


@pytest.mark.timeout(300)
def test_an_answer_that_was_cut_off_says_so(talking: Command) -> None:
    """The limit and how to raise it are on stderr; the answer is on stdout, and the exit code 0."""
    done = talking("exec", "Count to one hundred.", "--max-tokens", "4")
    assert done.code == 0
    assert done.out.strip()
    assert done.told == "openprogram: the answer was cut off at the limit of 4 tokens; --max-tokens N raises it\n"


@pytest.mark.timeout(300)
def test_every_request_of_a_pick_is_shown(talking: Command) -> None:
    """`dag --prompt` of a pick in two steps shows both requests, also by the id's beginning when another session is newer."""
    talking.write({"picks.py": PICKS})
    assert talking("run", "picks.py:route", "message=Order 3005 is broken, refund me.", "--session", "old").code == 0
    picked = next(node for node in talking("dag", "old", "--json").json["nodes"] if node["role"] == "llm")
    assert talking("exec", "Say hello.").code == 0
    shown = talking("dag", "--prompt", picked["id"][4:12]).out
    assert shown.startswith("This call made 2 requests. The first:\n")
    assert "Request 2, the same and behind it:\n\n[assistant]\nrefund\n" in shown
    added = talking("dag", "--prompt", picked["id"], "--json").json["added"]
    assert [[message["role"] for message in further] for further in added] == [["assistant", "user"]]
    assert talking("dag", "--node", picked["id"][:12]).code == 0
    assert talking("dag", "--node", "nosuch").told.startswith("openprogram: there is no node 'nosuch' in any session")
