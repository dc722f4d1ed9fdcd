"""What is shipped."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.architecture.project import PACKAGES, ROOT, settings


def shipped() -> set[str]:
    """The files of a wheel that are ours, as they are named in it."""
    return {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def build(source: Path, target: Path, kind: str) -> Path:
    """Build one distribution with the real backend, without isolation: it is in the dev extra."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel without its own records."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_a_wheel_holds_the_packages_and_nothing_else(tmp_path: Path) -> None:
    """Every file of the five packages is in the wheel under its import name; tests, examples and benchmarks are not; the licence goes along."""
    wheel = build(ROOT, tmp_path, "wheel")
    assert set(contents(wheel)) == shipped()
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert b"Apache License" in archive.read(licence)


def test_an_sdist_builds_the_same_wheel(tmp_path: Path) -> None:
    """The source distribution has no tests and needs nothing else to become the same wheel."""
    source = build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(source) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames()}
        if hasattr(tarfile, "data_filter"):  # Python before 3.11.4 has none
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    own = {"openprogram", "daemon", "clients", "protocol", "README.md", "CHANGELOG.md", "LICENSE"}
    assert tops == own | {"pyproject.toml", "PKG-INFO", ".gitignore"}
    from_sdist = build(tmp_path / source.name.removesuffix(".tar.gz"), tmp_path / "wheel", "wheel")
    assert set(contents(from_sdist)) == shipped()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    """Type checkers of users read our annotations."""
    assert (PACKAGES[package] / "py.typed").is_file()
    assert (PACKAGES[package] / "__init__.py").is_file()


@pytest.mark.parametrize("folder", ["clients", "daemon", "protocol"])
def test_outer_folders_are_no_packages(folder: str) -> None:
    """They would be importable under names that other distributions own."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_the_changelog_begins_with_this_version() -> None:
    """What is built has an entry."""
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines() if line.startswith("## ")]
    assert headings[0].split()[1] == settings()["project"]["version"]
