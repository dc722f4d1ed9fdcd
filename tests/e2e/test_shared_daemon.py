"""A second script and a terminal share one daemon, one loaded model and one session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from openprogram.providers import weights
from tests.clients.cli.command import TIMEOUT_S, Command, Done, wait_for

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")]

SCRIPT = """
import openprogram, openprogram_clients

with openprogram_clients.connect() as client, client.subscribe("dag", session="ours") as events:
    with openprogram.connect(session="ours") as runtime:
        print("answered", bool(runtime.exec("Say hello.")), flush=True)
        own = ""
        for event in events:
            node = event.node
            own = own or node.id
            if node.role == "llm" and node.id != own:
                print("seen", node.status, flush=True)
            if node.role == "code" and node.status == "completed":
                print("run", node.name, flush=True)
                break
"""

WAITS = """
import pathlib, time
from openprogram import agentic_function


@agentic_function
def waits(name: str) -> str:
    pathlib.Path(f"{name}-begun").touch()
    while not pathlib.Path(name).exists():
        time.sleep(0.01)
    return name
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Generator[Command]:
    """A terminal in a folder with one function, and the daemon that its first command starts; models come from this machine."""
    folder = tmp_path / "work"
    folder.mkdir()
    command = Command(folder, tmp_path / "home", local=False, models=True)
    command.write({"pyproject.toml": "", "script.py": SCRIPT})
    command.write({"add.py": "from openprogram import agentic_function\n\n\n@agentic_function\ndef add(a: int, b: int = 2) -> int:\n    return a + b\n"})
    try:
        yield command
    finally:
        command.stop()


def test_a_script_and_a_terminal_share_daemon_model_and_session(terminal: Command) -> None:
    """Each sees the other's nodes as they appear; the model is loaded once, by one daemon that both are clients of."""
    weights.install()
    script = subprocess.Popen(
        [sys.executable, "script.py"], cwd=terminal.folder, env=terminal.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    try:
        assert script.stdout.readline() == "answered True\n"
        said = terminal("exec", "Say hello from the terminal.", "--session", "ours", "--json")
        assert said.code == 0, said.err
        assert script.stdout.readline() == "seen running\n"
        assert script.stdout.readline() == "seen completed\n"
        status = terminal("daemon", "status", "--json").json
        assert [model["provider"] for model in status["models"]] == ["local"]
        assert script.pid in [client["pid"] for client in status["clients"]]
        assert hosts_of(status["pid"]) == 1
        assert terminal("run", "add.py:add", "a=1", "--session", "ours").out == "3\n"
        assert script.stdout.readline() == "run add\n"
        assert script.wait(TIMEOUT_S) == 0
    finally:
        script.kill()
        script.communicate()
    nodes = terminal("dag", "ours", "--json").json["nodes"]
    assert [(node["role"], node["status"]) for node in nodes] == [("llm", "completed"), ("llm", "completed"), ("code", "completed")]
    assert "Say hello." in json.dumps(nodes[0]["input"])
    prompt = terminal("dag", "ours", "--prompt", nodes[1]["id"]).out
    assert "Say hello." in prompt, "the terminal's turn goes on where the script's had ended"


def hosts_of(daemon: int) -> int:
    """How many model hosts a daemon has started."""
    found = 0
    for entry in Path("/proc").glob("[0-9]*/stat") if sys.platform == "linux" else ():
        try:
            parent = int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
            found += parent == daemon and b"model_host" in (entry.parent / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
    return found if sys.platform == "linux" else 1


def test_a_daemon_killed_during_an_answer_is_one_line(terminal: Command) -> None:
    """kill -9 of the daemon in the middle of `exec` is exit code 3 and one line; nothing of it is left, and the next command answers."""
    weights.install()
    process = terminal.start("exec", "Tell a very long story about the sea, with many chapters.")
    assert process.stdout is not None
    assert process.stdout.read(1)
    status = terminal("daemon", "status", "--json").json
    os.kill(status["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    told = Done(3, "", err.decode()).told
    assert told.startswith("openprogram: the daemon ended")
    assert len(told.splitlines()) == 1
    wait_for(lambda: hosts_of(status["pid"]) == 0, "the model host to end")
    assert terminal("exec", "Say hello.").code == 0


def test_five_commands_at_once_start_one_daemon(terminal: Command) -> None:
    """Whoever comes first starts it, and the others find it."""
    processes = [terminal.start("run", "add.py:add", f"a={number}") for number in range(5)]
    results = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    assert sorted(out for out, _ in results) == [b"2\n", b"3\n", b"4\n", b"5\n", b"6\n"]
    assert terminal("daemon", "logs", "-n", "1000").out.count("listening at") == 1
    assert len(terminal("runs", "--json").json["runs"]) == 5


def test_what_one_client_does_is_not_felt_by_another(terminal: Command) -> None:
    """While a run of one terminal goes on, others run, leave and are killed; its result arrives all the same."""
    terminal.write({"waits.py": WAITS})
    first, second = (terminal.start("run", "waits.py:waits", f"name={name}") for name in ("a", "b"))
    try:
        for name in ("a-begun", "b-begun"):
            wait_for((terminal.folder / name).exists, f"{name}")
        second.kill()
        second.communicate()
        assert terminal("run", "add.py:add", "a=1").out == "3\n"
        assert len(terminal("runs", "--active", "--json").json["runs"]) == 2
        (terminal.folder / "a").touch()
        assert first.communicate(timeout=TIMEOUT_S)[0] == b"a\n"
        left = terminal("runs", "--active", "--json").json["runs"]
        (terminal.folder / "b").touch()
        assert terminal("result", left[0]["runId"]).out == "b\n"
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
