"""What may not be read or entered is one line that says what and how to mend it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.cli.command import Command

pytestmark = pytest.mark.skipif(sys.platform == "win32" or (os.geteuid() == 0 and sys.platform != "linux"), reason="permissions that hold for this user")


@pytest.fixture
def closed_home(openprogram: Command) -> Iterator[Path]:
    """A home that nobody may enter."""
    openprogram.home.mkdir(mode=0)
    yield openprogram.home
    openprogram.home.chmod(0o700)


@pytest.mark.parametrize("command", ["sessions", "dag"])
def test_a_home_without_permission_is_named(openprogram: Command, closed_home: Path, command: str) -> None:
    """Looking into a home that may not be entered is one line with the folder and the way out, and exit code 1."""
    done = openprogram(command, as_root=False)
    assert done.code == 1
    assert done.out == ""
    assert f"you may not enter {closed_home}; give yourself the permission (chmod u+rwx {closed_home}) or set OPENPROGRAM_HOME" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("inner", ["", "deeper"])
def test_doctor_names_a_home_without_permission(openprogram: Command, closed_home: Path, inner: str) -> None:
    """For doctor that is a problem of home and store with a way to mend it, not a failed check."""
    checks = openprogram("doctor", "--json", as_root=False, env={"OPENPROGRAM_HOME": str(closed_home / inner)}).json["checks"]
    problems = {check["name"]: check for check in checks if check["state"] == "problem"}
    assert {"home", "store"} <= set(problems)
    assert not any("check failed" in check["detail"] for check in problems.values())
    assert f"you may not enter {closed_home}" in problems["store"]["detail"]
    assert "OPENPROGRAM_HOME" in problems["home"]["fix"]


@pytest.mark.parametrize("command", ["sessions", "dag"])
@pytest.mark.parametrize("inner", ["", "deeper/still"])
def test_a_home_that_is_a_file_is_an_error(openprogram: Command, command: str, inner: str) -> None:
    """A home that names a file, or something below one, is an error that says so, not an empty home."""
    openprogram.home.write_text("a file")
    done = openprogram(command, env={"OPENPROGRAM_HOME": str(openprogram.home / inner)})
    assert (done.code, done.out) == (1, "")
    assert f"{openprogram.home} is no folder" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("run", "f.py:f"), ("run", "f.py:f", "--local"), ("exec", "hi"), ("exec", "hi", "--local")], ids=" ".join)
@pytest.mark.parametrize("session", ["", "  ", "../x"])
def test_what_is_no_session_id_is_refused(openprogram: Command, arguments: tuple[str, ...], session: str) -> None:
    """A blank id or a path is a usage error before anything starts."""
    openprogram.write({"f.py": "from openprogram import agentic_function\n\n@agentic_function\ndef f() -> int:\n    return 1\n"})
    done = openprogram(*arguments, "--session", session)
    assert (done.code, done.err.startswith("openprogram: --session")) == (2, True)


def test_what_is_no_python_file_is_refused(openprogram: Command) -> None:
    """`functions` of some other file says so, instead of that there are no functions."""
    openprogram.write({"a.txt": "x"})
    assert (openprogram("functions", "a.txt").code, "no Python file" in openprogram("functions", "a.txt").err) == (2, True)


def test_a_home_that_only_seems_writable_is_a_problem(openprogram: Command) -> None:
    """The doctor tries to write: some places say that they may be written and cannot be."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux has /proc")
    done = openprogram("doctor", env={"OPENPROGRAM_HOME": "/proc/nope"})
    assert done.code != 0
    assert "/proc/nope cannot be written" in done.out
