"""The examples of README.md and docs/ run as they stand there.

The blocks of a document run in order, in one empty folder. A ``python`` block whose first line is ``# NAME.py`` is kept there under that name, for those after
it. Of a ``console`` block the lines that begin with ``$ openprogram`` run. Whatever ends with another exit code than 0 fails the document.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from openprogram.providers import weights
from tests.architecture.project import ROOT

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\w+\.py)\n")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Example(NamedTuple):
    """A block of a document and the line it begins at."""

    line: int
    kind: str
    source: str


def examples(document: str) -> Iterator[Example]:
    """The blocks of a document that run."""
    for found in BLOCK.finditer(document):
        yield Example(document.count("\n", 0, found.start()) + 2, found[1], found[2])


def commands(example: Example, folder: Path) -> Iterator[list[str]]:
    """What to run for a block."""
    if example.kind == "console":
        lines = [line.removeprefix("$ openprogram ") for line in example.source.splitlines() if line.startswith("$ openprogram ")]
        yield from ([sys.executable, "-m", "openprogram_cli", *shlex.split(line, comments=True)] for line in lines)
        return
    name = NAME.match(example.source)
    file = folder / (name[1] if name else f"line_{example.line}.py")
    file.write_text(example.source, "utf-8")
    yield [sys.executable, str(file)]


def test_blocks_are_found_with_their_lines() -> None:
    """A block is found by its language, with the line its text begins at; other languages are left alone."""
    document = "# A\n\n```python\nx = 1\n```\n\n```\nprose\n```\n\n```console\n$ openprogram doctor\n```\n"
    assert list(examples(document)) == [Example(4, "python", "x = 1\n"), Example(12, "console", "$ openprogram doctor\n")]


@pytest.fixture(autouse=True)
def stop_the_daemon() -> Iterator[None]:
    """What an example starts ends with the test."""
    yield
    subprocess.run([sys.executable, "-m", "openprogram_cli", "daemon", "stop"], env=dict(os.environ), capture_output=True, check=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_examples_of_a_document_run(document: Path, tmp_path: Path) -> None:
    """Every example ends well on the local model."""
    if weights.path_of() is None:
        pytest.skip("the examples ask the local model, which is not installed: openprogram models install")
    (tmp_path / "pyproject.toml").touch()  # the examples are a workspace of their own
    for example in examples(document.read_text("utf-8")):
        for command in commands(example, tmp_path):
            done = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{document.name}:{example.line}: {shlex.join(command[1:])}\n{done.stdout}{done.stderr}"
