"""`openprogram.connect()` when the daemon goes away in the middle: the block goes on with the next one."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import openprogram
from openprogram.errors import LLMError
from tests.daemon.support import lives, until
from tests.support.daemons import daemon_client


@pytest.mark.parametrize("text", ["hello", "half a pair: \ud800"])
def test_a_block_outlives_the_daemon(tmp_path: Path, text: str) -> None:
    """After kill -9 the next exec starts a daemon and is recorded in the same session; what was acknowledged before is there."""
    script = tmp_path / "replies.json"
    script.write_text(json.dumps(["one", "two"]))
    (tmp_path / "pyproject.toml").touch()
    with daemon_client(tmp_path) as watching, openprogram.connect(tmp_path, session="s", model=f"scripted:{script}") as runtime:
        assert runtime.exec("first") == "one"
        pid = watching.connection.call("openprogram/status", {}).pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not lives(pid))
        # The new daemon begins the script anew.
        assert runtime.exec(text) == "one"
        assert [(node.status, node.output) for node in watching.nodes("s")] == [("completed", "one")] * 2


def test_no_new_daemon_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none comes up the error is the model call's, and says so."""
    script = tmp_path / "replies.json"
    script.write_text(json.dumps(["one"]))
    (tmp_path / "pyproject.toml").touch()
    with daemon_client(tmp_path) as watching, openprogram.connect(tmp_path, session="s", model=f"scripted:{script}") as runtime:
        pid = watching.connection.call("openprogram/status", {}).pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not lives(pid))
        monkeypatch.setenv("OPENPROGRAM_IDLE_S", "nonsense")
        with pytest.raises(LLMError, match="nonsense"):
            runtime.exec("again", timeout_s=3)
        monkeypatch.delenv("OPENPROGRAM_IDLE_S")
        assert runtime.exec("again") == "one"
