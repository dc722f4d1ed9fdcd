"""Ways to measure that a busy machine does not mislead."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping


def interleaved(subjects: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each subject in each round; all take turns, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(rounds + 1):
        for name, subject in subjects.items():
            start = time.perf_counter()
            subject()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def python(program: str) -> Callable[[], object]:
    """A fresh interpreter that runs the program, outside the source folder; raises CalledProcessError when that fails."""
    return lambda: subprocess.run([sys.executable, "-c", program], cwd=tempfile.gettempdir(), check=True, stdin=subprocess.DEVNULL)
