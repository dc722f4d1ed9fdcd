"""What is generated from the protocol is current, and says what the protocol says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.generate import FILES, main, markdown, outdated, typescript
from openprogram_protocol.methods import METHODS
from openprogram_protocol.schema import structs

from tests.architecture.project import ROOT

GENERATE = [sys.executable, "-m", "openprogram_protocol.generate"]


def test_generated_files_are_current() -> None:
    """The TypeScript types and docs/protocol.md are what the structs give; ``python -m openprogram_protocol.generate`` writes them."""
    assert outdated(ROOT) == []


def test_check_finds_what_writing_mends(tmp_path: Path) -> None:
    """``--check`` fails and names each missing or changed file, writes none, and passes once they were written."""
    missing = subprocess.run([*GENERATE, "--check", str(tmp_path)], capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert all(name in missing.stderr for name in FILES)
    assert list(tmp_path.iterdir()) == []
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    changed = tmp_path / "docs" / "protocol.md"
    changed.write_text(changed.read_text("utf-8") + "by hand\n", "utf-8")
    assert main(["--check", str(tmp_path)]) == 1
    assert outdated(tmp_path) == ["docs/protocol.md"]


@pytest.mark.parametrize("arguments", [["--no-such-option"], ["a", "b"]])
def test_a_wrong_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It exits with 2 and says how it is used."""
    assert main(arguments) == 2
    assert "usage:" in capsys.readouterr().err


def test_typescript_has_every_method_and_struct() -> None:
    """Each method is a row of one of the two maps, each struct an interface of its own, and no type is used that is not there."""
    text = typescript()
    assert set(re.findall(r'^  "([^"]+)": \{ params', text, re.MULTILINE)) == set(METHODS)
    interfaces = re.findall(r"^export interface (\w+)", text, re.MULTILINE)
    assert sorted(interfaces) == sorted([*(struct.__name__ for struct in structs()), "Requests", "Notifications"])
    types = [line.partition(": ")[2] for line in text.partition("as const;")[2].splitlines() if re.match(r'  (\w+\??|"[^"]+"): ', line)]
    used = set(re.findall(r"\b[A-Z][A-Za-z]+\b", "\n".join(types)))
    assert used - set(interfaces) - {"Record"} == set()


def test_optional_fields_are_optional_in_typescript() -> None:
    """A field with a default may be absent, a required one may not; unions in arrays keep their parentheses."""
    text = typescript()
    params = text[text.index("export interface RunParams") :].partition("\n}")[0]
    assert "  runId: string;" in params
    assert "  args?: Record<string, unknown>;" in params
    assert "  deadlineS?: number | null;" in params
    assert "  log?: [string, number][];" in text


def test_the_document_lists_every_method_and_code() -> None:
    """docs/protocol.md names each method, each error code and each type once, with a link that leads somewhere."""
    text = markdown()
    assert [name for name in METHODS if f"| {name} |" not in text] == []
    assert [code for code in ErrorCode if f"| {code.value} | {code.name} |" not in text] == []
    headings = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert sorted(headings) == sorted(struct.__name__ for struct in structs())
    assert set(re.findall(r"\(#(\w+)\)", text)) <= {heading.lower() for heading in headings}
