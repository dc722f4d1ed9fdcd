"""The real `openprogram` command in a process of its own, with a home and a working folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_S = 60

SIGNS_OF_LIFE = ("still running…", "waiting for the model…", "openprogram: waiting for the daemon")

UNSET = (
    "OPENPROGRAM_MODEL",
    "OPENPROGRAM_PROVIDER",
    "AGENTIC_MODEL",
    "AGENTIC_PROVIDER",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
)


# Root may enter and read everything; a process without these two rights (DAC_OVERRIDE, DAC_READ_SEARCH) is like any other user. Others keep what they have.
WITHOUT_RIGHTS = """
import ctypes, os, sys
if os.geteuid() == 0:
    for right in (1, 2):
        assert ctypes.CDLL(None).prctl(24, right, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Done(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def told(self) -> str:
        """stderr without the signs of life, which a slow machine sees more of."""
        return "".join(line for line in self.err.splitlines(keepends=True) if not line.startswith(SIGNS_OF_LIFE))

    @property
    def whole(self) -> tuple[int, str, str]:
        """Exit code, stdout and what was told."""
        return self.code, self.out, self.told


# The subcommands that work through the daemon unless they are told not to.
THROUGH_THE_DAEMON = ("run", "exec", "functions", "sessions", "dag", "runs")


class Command:
    """Runs `openprogram` in ``folder``; ``environment`` is added to what it inherits. ``local``: without a daemon. `stop` ends the daemon of its home.

    ``models``: with the models that are installed on this machine.
    """

    def __init__(self, folder: Path, home: Path, *, local: bool = True, models: bool = False) -> None:
        self.folder = folder
        self.home = home
        self.local = local
        self.models = models

    def line(self, *arguments: str | bytes) -> list[str | bytes]:
        """What follows the interpreter."""
        here = ("--local",) if self.local and arguments and arguments[0] in THROUGH_THE_DAEMON else ()
        return ["-m", "openprogram_cli", *arguments, *here]

    def stop(self) -> None:
        """End the daemon, if there is one."""
        if (self.home / "daemon.json").exists():
            assert self("daemon", "stop").code == 0

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Put files into the working folder."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def environment(self, added: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a command inherits: this process's environment, without what would choose a model or an encoding."""
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        own = {"OPENPROGRAM_HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        cache = {} if self.models else {"OPENPROGRAM_CACHE": str(self.home / "cache")}
        return {**kept, **own, **cache, **(added or {})}

    def __call__(
        self, *arguments: str | bytes, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: bytes = b"", as_root: bool = True
    ) -> Done:
        """Run to the end; without ``as_root`` permissions hold for root, too."""
        before = () if as_root else ("-c", WITHOUT_RIGHTS)
        done = subprocess.run(
            [sys.executable, *before, *self.line(*arguments)],
            cwd=cwd or self.folder,
            env=self.environment(env),
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    def on_terminal(self, *command: str | bytes, env: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Exit code and everything that a terminal received when it is both stdout and stderr; ``command`` is what comes after the interpreter."""
        import pty

        here, there = pty.openpty()
        line = [sys.executable, *command]
        process = subprocess.Popen(line, cwd=self.folder, env=self.environment(env), stdin=subprocess.DEVNULL, stdout=there, stderr=there)
        os.close(there)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends on Linux
            while piece := os.read(here, 4096):
                shown += piece
        os.close(here)
        return process.wait(TIMEOUT_S), shown

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A command that goes on running."""
        return subprocess.Popen(
            [sys.executable, *self.line(*arguments)],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Return as soon as the condition holds."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit_s} s for {what}")
        time.sleep(0.01)


def ended(process: subprocess.Popen[bytes], number: signal.Signals) -> Done:
    """Send a signal and wait for the end."""
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Done(process.returncode, out.decode(), err.decode())
