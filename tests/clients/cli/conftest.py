"""A command in an empty folder with an empty home, and one with functions to run."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.clients.cli.command import Command
from tests.clients.cli.samples import AGENTS


@pytest.fixture
def openprogram(tmp_path: Path) -> Command:
    folder = tmp_path / "work"
    folder.mkdir()
    return Command(folder, tmp_path / "home")


@pytest.fixture
def agents(openprogram: Command) -> Command:
    """A workspace with the functions of `samples` in agents.py."""
    openprogram.write({"agents.py": AGENTS, "pyproject.toml": ""})
    return openprogram


@pytest.fixture
def shared(tmp_path: Path) -> Generator[Command]:
    """The same workspace, with a daemon of its own that starts with the first command."""
    with _daemon_of(tmp_path) as command:
        yield command


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Generator[Command]:
    """The same for tests that share a daemon, since they leave nothing behind that the others mind."""
    with _daemon_of(tmp_path_factory.mktemp("serving")) as command:
        yield command


@pytest.fixture(params=["in process", "daemon"])
def either(request: pytest.FixtureRequest) -> Command:
    """Both ways, which must agree."""
    return request.getfixturevalue("agents" if request.param == "in process" else "serving")


@contextlib.contextmanager
def _daemon_of(place: Path) -> Generator[Command]:
    folder = place / "work"
    folder.mkdir()
    command = Command(folder, place / "home", local=False)
    command.write({"agents.py": AGENTS, "pyproject.toml": ""})
    try:
        yield command
    finally:
        command.stop()
