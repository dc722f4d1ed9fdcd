"""What importing loads. How long it takes is measured by `make bench AREA=imports`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = {"asyncio", "httpx", "jsonschema", "keyring", "lsprotocol", "pydantic", "pygls", "rich", "sqlite3", "typer", "watchfiles", "xllamacpp"}

PROGRAMS = {
    "the names of a script": "from openprogram import agentic_function, Runtime, decision",
    "a decorated function": "from openprogram import agentic_function\n@agentic_function\ndef f(x: str, runtime=None) -> str: ...",
    "the clients": "from openprogram_clients import connect",
    "the command": "import openprogram_cli.app",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_heavy_packages_are_loaded_at_first_use(program: str, tmp_path: Path) -> None:
    """A program that has not asked a model yet has loaded none of the slow packages."""
    report = "\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", PROGRAMS[program] + report], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert any(name.startswith("openprogram") for name in loaded)
    assert SLOW & loaded == set()


def test_public_names_are_sorted_and_exist(tmp_path: Path) -> None:
    """``openprogram.__all__`` is sorted, everything in it can be had, and a name that is not in it is an AttributeError."""
    program = (
        "import openprogram, json\n"
        "names = openprogram.__all__\n"
        "print(json.dumps([list(names), [name for name in names if getattr(openprogram, name, None) is None], hasattr(openprogram, 'no_such_name')]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names, missing, has_unknown = json.loads(done.stdout)
    assert names == sorted(names)
    assert {"Runtime", "agentic_function", "create_runtime", "decision", "session"} <= set(names)
    assert missing == []
    assert has_unknown is False
