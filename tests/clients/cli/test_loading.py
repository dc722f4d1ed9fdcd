"""Modules are imported as Python itself would, from the source as it is now."""

from __future__ import annotations

import os

import pytest

from tests.clients.cli.command import Command

LAYOUTS: dict[str, tuple[dict[str, str], str, str]] = {
    "package": ({"p/__init__.py": "", "p/x.py": "Y = 1\n", "p/m.py": "from .x import Y\nfrom p.x import Y as Z\n{f}"}, "p/m.py:f", "p.m"),
    "deep package": ({"a/__init__.py": "", "a/b/__init__.py": "", "a/b/m.py": "from ..  import b\n{f}"}, "a/b/m.py:f", "a.b.m"),
    "package itself": ({"p/__init__.py": "from . import x\n{f}", "p/x.py": ""}, "p/__init__.py:f", "p"),
    "src layout": ({"pyproject.toml": "", "src/p/__init__.py": "", "src/p/m.py": "import p\n{f}"}, "src/p/m.py:f", "p.m"),
    "module in src": ({"pyproject.toml": "", "src/p/__init__.py": "", "src/p/m.py": "{f}"}, "p.m:f", "p.m"),
    "namespace package": ({"pyproject.toml": "", "n/x.py": "Y = 1\n", "n/m.py": "from .x import Y\n{f}"}, "n/m.py:f", "n.m"),
    "namespace in src": ({"pyproject.toml": "", "src/n/x.py": "Y = 1\n", "src/n/m.py": "from .x import Y\n{f}"}, "src/n/m.py:f", "n.m"),
    "script with a sibling": ({"s/x.py": "Y = 1\n", "s/m.py": "from x import Y\n{f}"}, "s/m.py:f", "m"),
    "script that imports from the root": ({"pyproject.toml": "", "lib.py": "Y = 1\n", "s/m.py": "from lib import Y\n{f}"}, "s/m.py:f", "m"),
    "called like a standard module": ({"json.py": "{f}"}, "json.py:f", "json__file"),
    "called like no identifier": ({"my-agent.py": "{f}"}, "my-agent.py:f", "my-agent"),
    "the only function of a file": ({"one.py": "{f}"}, "one.py", "one"),
}


@pytest.mark.parametrize(("files", "target", "module"), LAYOUTS.values(), ids=LAYOUTS)
def test_modules_are_imported_as_python_would(openprogram: Command, files: dict[str, str], target: str, module: str) -> None:
    """Relative imports, src layouts, namespace packages and scripts load under their right name (case p33), registered in sys.modules."""
    function = (
        "import sys\nfrom openprogram import agentic_function\n@agentic_function\ndef f():\n"
        "    assert sys.modules[__name__].f is f\n    return __name__\n"
    )  # fmt: skip
    openprogram.write({name: text.replace("{f}", function) for name, text in files.items()})
    assert openprogram("run", target) == (0, f"{module}\n", "")


def test_the_source_as_it_is_now_runs(openprogram: Command) -> None:
    """Two saves of the same size within one second run the second, in the file itself and in a module it imports."""
    source = "from openprogram import agentic_function\nimport helper\n@agentic_function\ndef f():\n    return helper.VALUE + {own}\n"
    moment = (1_000_000_000, 1_000_000_000)
    for helper, own in ((1, 1), (2, 2)):
        openprogram.write({"f.py": source.format(own=own), "helper.py": f"VALUE = {helper}0\n"})
        for name in ("f.py", "helper.py"):
            os.utime(openprogram.folder / name, moment)
        done = openprogram("run", "f.py:f", env={"PYTHONDONTWRITEBYTECODE": ""})
        assert done.out == f"{helper}{own}\n"
