"""A home whose daemons end with the test, and a workspace with functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openprogram_clients
import pytest
from openprogram_clients import Client

from tests.clients.support import Home
from tests.daemon.support import FUNCTIONS


@pytest.fixture
def home() -> Iterator[Home]:
    """This test's home."""
    found = Home(Path(os.environ["OPENPROGRAM_HOME"]))
    yield found
    found.end()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with functions in ``work.py``."""
    root = tmp_path / "work ünïcode"
    root.mkdir()
    (root / "pyproject.toml").write_text("")
    (root / "work.py").write_text(FUNCTIONS + MORE, "utf-8")
    return root


@pytest.fixture
def connect(home: Home, work: Path) -> Iterator[Callable[..., Client]]:
    """Connects, trusting the workspace, and closes at the end."""
    made: list[Client] = []
    # What pytest says of its progress there would make every connection's workspace another one.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}

    def make(**options: Any) -> Client:
        made.append(openprogram_clients.connect(work, trust=True, env=env, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """A client of a daemon that it started."""
    return connect()


MORE = '''

@agentic_function
def echo(value):
    """Give back what came."""
    return value


@agentic_function
def größe(text: str) -> int:
    return len(text)


@agentic_function
def chatter(times: int) -> str:
    """Print lines, slowly enough for them to be events of their own."""
    for number in range(times):
        print(f"line {number} 😀", flush=True)
        time.sleep(0.1)
    return "said"
'''
