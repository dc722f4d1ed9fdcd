"""A real daemon for each test that asks for one; whatever it started ends with the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.support import FUNCTIONS, Daemon, Raw


@pytest.fixture
def start_daemon() -> Iterator[Callable[..., Daemon]]:
    """Start a daemon of this test's home; environment variables by keyword."""
    started: list[Daemon] = []

    def start(**environment: str) -> Daemon:
        started.append(Daemon(Path(os.environ["OPENPROGRAM_HOME"]), **environment))
        return started[-1]

    yield start
    for one in reversed(started):
        one.end()


@pytest.fixture
def daemon(start_daemon: Callable[..., Daemon]) -> Daemon:
    """A daemon that listens."""
    return start_daemon().ready()


@pytest.fixture
def raw() -> Iterator[Callable[..., Raw]]:
    """Open a connection to the daemon."""
    opened: list[Raw] = []

    def connect(path: str | None = None) -> Raw:
        opened.append(Raw(path))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


@pytest.fixture
def client(daemon: Daemon, raw: Callable[..., Raw]) -> Raw:
    """A connection past the gate."""
    return raw().connect()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with functions in ``work.py``."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "pyproject.toml").write_text("")
    (root / "work.py").write_text(FUNCTIONS)
    return root
