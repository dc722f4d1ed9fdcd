"""A command in an empty folder with an empty home, and one with functions to run."""

from __future__ import annotations

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
