"""What the documents name is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.project import FOLDERS, ROOT

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def paths(text: str) -> Iterator[str]:
    """Paths in backticks that begin in a folder of the project, and targets of links."""
    for quoted in re.findall(r"`([\w.-]+/[\w./-]*)`", text):
        if quoted.partition("/")[0] in (*FOLDERS, "docs", ".ci"):
            yield quoted
    yield from (link for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text) if link)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_paths_exist(document: Path) -> None:
    """A file or folder that a document names exists."""
    named = set(paths(document.read_text("utf-8")))
    assert [path for path in sorted(named) if not (ROOT / path).exists() and not (document.parent / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_make_targets_exist(document: Path) -> None:
    """A ``make`` command that a document names is a target."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", document.read_text("utf-8")))
    assert named - targets == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_within_a_document_have_a_heading(document: Path) -> None:
    """A link to ``#a-heading`` finds it."""
    text = document.read_text("utf-8")
    headings = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) - headings == set()
