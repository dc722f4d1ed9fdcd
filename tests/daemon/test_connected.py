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


@pytest.mark.parametrize("model", ["scripted:replies.json", "scripted:./replies.json"])
def test_a_model_that_is_a_file_is_found_from_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """The daemon's own folder is some other one."""
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "replies.json").write_text(json.dumps(["one"]))
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(folder)
    with daemon_client(tmp_path), openprogram.connect(tmp_path, model=model) as runtime:
        assert runtime.exec("hi") == "one"
