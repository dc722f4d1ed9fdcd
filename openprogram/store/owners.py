"""Who is writing a node: boot, process id and the moment the process started, so that a recycled process id is never taken for the process that died.

An owner counts as dead only when that is certain. A process of another pid namespace (a container), or on a platform without these facts, counts as alive.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

_ENDED = "ended"


def this_process() -> str:
    """The owner string of this process: ``boot/pid/start``."""
    return _owner(os.getpid())


@functools.cache
def _owner(pid: int) -> str:
    return f"{_boot()}/{pid}/{_started(pid) or ''}"


def is_dead(owner: str | None) -> bool:
    """Whether the process of that owner string is certainly gone."""
    if not owner or owner == this_process():
        return False
    boot, _, rest = owner.partition("/")
    pid, _, start = rest.partition("/")
    if not pid.isdigit():
        return False
    now, there = _boot().partition(":"), boot.partition(":")
    if now[0] != there[0]:
        return bool(now[0] and there[0])
    if now[2] != there[2]:
        return False
    return not _runs(int(pid), start)


def _runs(pid: int, start: str) -> bool:
    if sys.platform == "win32":  # os.kill(pid, 0) would send Ctrl-C there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    found = _started(pid)
    return found is None or (found != _ENDED and (not start or found == start))


@functools.cache
def _boot() -> str:
    """The boot's id and, on Linux, the pid namespace, joined by a colon; empty where neither is known."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink()).partition("[")[2].rstrip("]")
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='utf-8').strip()}:{namespace}"
    except OSError:
        return _asked("sysctl", "-n", "kern.bootsessionuuid") if sys.platform == "darwin" else ""


def _started(pid: int) -> str | None:
    """When a process started, as the system says it; `_ENDED` for one that is only waiting to be reaped, None where that is not known."""
    if sys.platform.startswith("linux"):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # The second field is the program's name in parentheses and may hold anything.
        fields = stat.rpartition(")")[2].split()
        return _ENDED if fields[0] in "ZX" else fields[19]
    if sys.platform == "darwin":
        return _asked("ps", "-o", "lstart=", "-p", str(pid)).replace("/", "-") or None
    return None


def _asked(*command: str) -> str:
    surroundings = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}  # two terminals may differ in both; what is compared must not
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=surroundings).stdout.strip()  # noqa: S603 - fixed commands
    except (OSError, subprocess.SubprocessError):
        return ""
