"""Where the project's own files are."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "openprogram_cli": ROOT / "clients" / "openprogram_cli",
    "openprogram_clients": ROOT / "clients" / "openprogram_clients",
    "openprogram_daemon": ROOT / "daemon" / "openprogram_daemon",
    "openprogram": ROOT / "openprogram",
    "openprogram_protocol": ROOT / "protocol" / "openprogram_protocol",
}
FOLDERS = ("openprogram", "daemon", "clients", "protocol", "tests", "benchmarks", "examples")


def settings() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def python_files(*folders: str) -> list[Path]:
    """Every Python file below these folders (by default all of ours), sorted."""
    return sorted(path for folder in folders or FOLDERS for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)
