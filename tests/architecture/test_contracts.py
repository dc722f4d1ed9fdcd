"""Who may import whom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

import grimp
import pytest

from tests.architecture.project import PACKAGES, ROOT, python_files, settings

FACES = {"openprogram", "openprogram.agentic_programming", "openprogram.agentic_programming.contract", "openprogram.agentic_programming.decision"}

ALLOWED = {
    "clients/openprogram_clients": {"msgspec", "openprogram_clients", "openprogram_protocol"},
    "protocol/openprogram_protocol": {"msgspec", "platformdirs", "openprogram_protocol"},
}


def test_imports_go_one_way() -> None:
    """The contracts of [tool.importlinter] hold."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_of_the_library_stands_in_a_layer() -> None:
    """A module that no layer names would be checked by nothing: it goes into one, in pyproject.toml."""
    contract = next(contract for contract in settings()["tool"]["importlinter"]["contracts"] if contract["name"] == "Inside the library, too")
    layers = [layer for line in contract["layers"] for layer in re.findall(r"[\w.]+", line)]
    modules = grimp.build_graph("openprogram", cache_dir=None).modules
    outside = {module for module in modules if not any(module == layer or module.startswith(f"{layer}.") for layer in layers)}
    assert outside - FACES == set()


def imported(source: str) -> Iterator[str]:
    """The top-level names of the packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("package", ALLOWED)
def test_what_clients_load_stays_small(package: str) -> None:
    """Clients and protocol import the standard library and msgspec, so that they start at once and fit into any program."""
    files = python_files(package)
    assert files
    found = {name for file in files for name in imported(file.read_text("utf-8"))}
    assert found - sys.stdlib_module_names - ALLOWED[package] == set()


def test_the_dependencies_are_those_that_are_imported() -> None:
    """Each package that is imported is declared (or optional), and each that is declared is explained in CONTRIBUTING."""
    project = settings()["project"]
    declared = {re.split(r"[\[<>=!~ ]", line)[0] for line in project["dependencies"] + project["optional-dependencies"]["local"]}
    found = {name.replace("_", "-") for file in python_files("openprogram", "daemon", "clients", "protocol") for name in imported(file.read_text("utf-8"))}
    ours = {name.replace("_", "-") for name in PACKAGES}
    standard = {name.replace("_", "-") for name in sys.stdlib_module_names}
    assert found - standard - ours - declared - {"pydantic-core"} == set()  # the half of pydantic that comes with it
    explained = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [name for name in sorted(declared) if f"`{name}`" not in explained] == []
