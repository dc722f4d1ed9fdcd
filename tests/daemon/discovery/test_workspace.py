"""Which files a workspace has, and names followed between them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from openprogram_daemon.discovery.workspace import Workspace, root_of

from openprogram.loading import module_name
from openprogram.settings import Settings, settings_of

FUNCTION = "from openprogram import agentic_function\n@agentic_function\ndef {name}(): ...\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def found(root: Path, files: list[Path] | None = None) -> list[str]:
    return [f"{info.file}:{info.qualname}" for info in Workspace(root).scan(files).functions]


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


@pytest.mark.parametrize("marker", ["pyproject.toml", ".git"])
def test_the_root_is_the_nearest_marked_folder(tmp_path: Path, marker: str) -> None:
    """A file's workspace is the nearest folder upward with pyproject.toml or .git."""
    write(tmp_path, {f"{marker}/HEAD" if marker == ".git" else marker: "", "a/b/c.py": ""})
    assert root_of(tmp_path / "a" / "b" / "c.py") == tmp_path.resolve()
    assert root_of(tmp_path / "a") == tmp_path.resolve()


def test_without_a_marker_the_root_is_the_folder_itself(tmp_path: Path) -> None:
    """A file with no marked folder around it is a workspace of its own folder."""
    write(tmp_path, {"a/b/c.py": ""})
    assert root_of(tmp_path / "a" / "b" / "c.py") == (tmp_path / "a" / "b").resolve()


SKIPPED = ["node_modules/x.py", ".hidden/x.py", "__pycache__/x.py", "env/x.py", "lib/site-packages/x.py", "notes.txt"]


@pytest.mark.parametrize("repository", [False, True], ids=["plain", "git"])
def test_environments_and_hidden_folders_are_left_out(tmp_path: Path, repository: bool) -> None:
    """Virtual environments, node_modules, hidden folders and files that are no Python are not scanned, with git and without."""
    write(tmp_path, {name: FUNCTION.format(name="hidden") for name in SKIPPED})
    write(tmp_path, {"env/pyvenv.cfg": "", "a.py": FUNCTION.format(name="f"), "deep/er/b.py": FUNCTION.format(name="g")})
    if repository:
        git(tmp_path, "init", "-q")
    assert found(tmp_path) == ["a.py:f", "deep/er/b.py:g"]


def test_what_git_ignores_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    """An ignored path is not scanned, an untracked one is, and a deleted tracked one is no error."""
    git(tmp_path, "init", "-q")
    write(tmp_path, {".gitignore": "build/\n*_gen.py\n", "build/x.py": FUNCTION.format(name="x"), "a_gen.py": FUNCTION.format(name="y")})
    write(tmp_path, {"new.py": FUNCTION.format(name="new"), "gone.py": FUNCTION.format(name="gone")})
    git(tmp_path, "add", "gone.py")
    (tmp_path / "gone.py").unlink()
    assert found(tmp_path) == ["new.py:new"]
    assert found(tmp_path, [tmp_path / "build" / "x.py"]) == ["build/x.py:x"]


def test_looking_at_a_repository_runs_none_of_its_programs(tmp_path: Path) -> None:
    """A program that the repository's own configuration names is not started by a scan."""
    git(tmp_path, "init", "-q")
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(trap))
    write(tmp_path, {"a.py": FUNCTION.format(name="f")})
    assert found(tmp_path) == ["a.py:f"]
    assert not (tmp_path / "sprung").exists()


def test_a_repository_inside_the_workspace_is_scanned(tmp_path: Path) -> None:
    """Git lists a repository inside another by its folder only; its files still count."""
    git(tmp_path, "init", "-q")
    write(tmp_path, {"sub/a.py": FUNCTION.format(name="f")})
    git(tmp_path / "sub", "init", "-q")
    assert found(tmp_path) == ["sub/a.py:f"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["."], ["a.py:f", "sub/b.py:g", "sub/c.py:h"]),
        (["sub"], ["sub/b.py:g", "sub/c.py:h"]),
        (["sub/b.py", "sub/b*.py"], ["sub/b.py:g"]),
        (["**/c.py"], ["sub/c.py:h"]),
        (["nothing.py", "/absolute/*.py", ""], ["a.py:f", "sub/b.py:g", "sub/c.py:h"]),
        ([], []),
    ],
)
def test_the_settings_say_what_is_scanned(tmp_path: Path, patterns: list[str], expected: list[str]) -> None:
    """``functions`` in [tool.openprogram] takes files, folders and globs; a pattern that names nothing below the root is no error."""
    write(tmp_path, {"a.py": FUNCTION.format(name="f"), "sub/b.py": FUNCTION.format(name="g"), "sub/c.py": FUNCTION.format(name="h")})
    write(tmp_path, {"pyproject.toml": f"[tool.openprogram]\nfunctions = {patterns}\nmodel = 'local:x'\n"})
    assert settings_of(tmp_path) == Settings("local:x", tuple(patterns))
    assert found(tmp_path) == expected


@pytest.mark.parametrize("text", ["[tool", "[tool.openprogram]\nmodel = 3", "[tool.openprogram]\nfunctions = [1]", "tool = 1\n[tool.openprogram]"])
def test_broken_settings_are_an_error_and_hide_nothing(tmp_path: Path, text: str) -> None:
    """A pyproject.toml that cannot be used is reported, and the functions are listed all the same."""
    write(tmp_path, {"pyproject.toml": text, "a.py": FUNCTION.format(name="f")})
    result = Workspace(tmp_path).scan()
    assert [error.file for error in result.errors] == ["pyproject.toml"]
    assert [info.qualname for info in result.functions] == ["f"]


def test_a_broken_file_among_many_hides_only_itself(tmp_path: Path) -> None:
    """Fifty files, one of them broken: forty-nine functions and one error with its line."""
    write(tmp_path, {f"m{number:02}.py": FUNCTION.format(name="f") for number in range(49)})
    write(tmp_path, {"broken.py": "x = 1\n\ndef f(:\n"})
    result = Workspace(tmp_path).scan()
    assert len(result.functions) == 49
    assert [(error.file, error.line) for error in result.errors] == [("broken.py", 3)]


def test_re_exports_within_the_workspace_are_followed(tmp_path: Path) -> None:
    """A decorator that another module of the workspace passes on is still the decorator: by name, relative, star, through packages."""
    write(
        tmp_path,
        {
            "pyproject.toml": "",
            "tools/__init__.py": "from .base import tool as exported\nfrom .base import *\n",
            "tools/base.py": "from openprogram import agentic_function\ntool = agentic_function(expose='full')\n",
            "direct.py": "from tools.base import tool\n@tool\ndef a(): ...\n",
            "package.py": "import tools\n@tools.exported\ndef b(): ...\n",
            "star.py": "from tools import *\n@agentic_function\ndef c(): ...\n",
            "tools/inside.py": "from . import exported\nfrom .base import tool as t\n@exported\ndef d(): ...\n@t\ndef e(): ...\n",
            "src/lib/deco.py": "from openprogram import agentic_function as af\n",
            "src/lib/use.py": "from lib.deco import af\n@af\ndef g(): ...\n",
            "circle.py": "from circle2 import x\n@x\ndef no(): ...\n",
            "circle2.py": "from circle import x\n",
        },
    )
    result = Workspace(tmp_path).scan()
    assert {info.qualname: info.options.get("expose") for info in result.functions} == {
        "a": "full",
        "b": "full",
        "c": None,
        "d": "full",
        "e": "full",
        "g": None,
    }
    assert result.errors == []


@pytest.mark.parametrize(
    ("file", "name"),
    [("a.py", ("a", False)), ("p/a.py", ("p.a", False)), ("p/__init__.py", ("p", True)), ("src/p/a.py", ("p.a", False)), ("src.py", ("src", False))],
)
def test_module_names_follow_the_folders(tmp_path: Path, file: str, name: tuple[str, bool]) -> None:
    """A file's dotted name is its path below the root, the src folder left out."""
    assert module_name(tmp_path, tmp_path / file) == name


def test_what_is_no_regular_file_is_an_error(tmp_path: Path) -> None:
    """A dangling link named explicitly is reported instead of blocking or raising."""
    (tmp_path / "link.py").symlink_to(tmp_path / "nowhere.py")
    result = Workspace(tmp_path).scan([tmp_path / "link.py"])
    assert [(error.file, error.message) for error in result.errors] == [("link.py", "this is no regular file")]
