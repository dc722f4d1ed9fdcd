"""A lens above every agentic function: run it. Found in the text that the editor holds, saved or not; nothing is imported."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from openprogram_daemon.discovery.metadata import functions_of
from openprogram_daemon.discovery.workspace import module_name, root_of

COMMAND = "openprogram.run"


class Lens(NamedTuple):
    """``line`` counts from 0; ``arguments`` are what the command gets."""

    line: int
    title: str
    arguments: list[dict[str, str]]


def lenses(text: str, uri: str, path: str) -> list[Lens]:
    """The lenses of a document."""
    file = Path(path)
    module, is_package = module_name(root_of(file), file)
    found = functions_of(text, file.name, module=module, is_package=is_package)
    return [
        Lens(info.start_line - 1, f"▷ Run {info.name}", [{"uri": uri, "function": f"{path}:{info.qualname}"}]) for info in found.functions if not info.is_nested
    ]
