"""What stands in where a system lacks what Linux has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from openprogram_clients import places

REAPS = """
import os, subprocess, sys, time
from openprogram_clients.places import process_start
from openprogram_daemon.hosts.zygote import next_dead

if sys.argv[1] == "blind":
    vars(os).pop("waitid", None)
program = "import os, subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read(); os._exit(7)"
leader = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
child = int(leader.stdout.readline())
assert next_dead({leader.pid}) is None
leader.stdin.close()
while (dead := next_dead({leader.pid})) is None:
    time.sleep(0.001)
assert (dead[0], os.waitstatus_to_exitcode(dead[1])) == (leader.pid, 7)
while process_start(child):
    time.sleep(0.001)
try:
    next_dead({leader.pid})
except ChildProcessError:
    print("none left")
"""


@pytest.mark.parametrize("sight", ["seeing", "blind"])
def test_the_dead_are_reaped_with_their_groups(sight: str) -> None:
    """With a look at who is dead before it is reaped, and without (macOS), a worker's status is told and what is left of its group is ended."""
    # In a process of its own, since it reaps every child there is.
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", REAPS, sight], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("none left\n", "")


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
def test_a_process_is_known_by_ps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a start reads the same in every language and time zone; the dead and those that only wait to be reaped have none."""
    with subprocess.Popen(["sleep", "60"]) as process:
        seen: set[str] = set()
        for zone, language in (("UTC", "C"), ("Asia/Tokyo", "fr_FR.UTF-8"), ("America/New_York", "de_DE")):
            monkeypatch.setenv("TZ", zone)
            monkeypatch.setenv("LC_ALL", language)
            seen.add(places.start_by_ps(process.pid))
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert places.start_by_ps(process.pid) == ""
    assert places.start_by_ps(process.pid) == ""
    assert len(seen) == 1
    assert seen != {""}
