"""The contracts of the library's seams, run inside a worker of a real daemon: its main thread, its channel, its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemons import IN_WORKER, daemon_client

ROOT = Path(__file__).parents[2]
LIBRARY = "tests/openprogram"
FUNCTION = '''
import os

from openprogram import agentic_function


@agentic_function
def check(tests: list[str]) -> int:
    """Run these tests here."""
    import pytest

    os.chdir({root!r})
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
'''

STORE = [
    "test_it_is_a_store",
    "test_a_session_is_made_once",
    "test_a_node_is_read_as_it_was_written",
    "test_open_edges_are_filled_from_the_log",
    "test_nested_frames_freeze_what_they_see",
    "test_pages_follow_seq",
    "test_what_is_stored_is_a_snapshot",
    "test_any_value_comes_back",
    "test_an_unknown_session_is_named",
    "test_f07_any_thread_may_call",
    "test_f07_a_closed_store_says_so",
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "tests",
    [[f"{LIBRARY}/runtime/test_contract.py"], [f"{LIBRARY}/providers/test_contract.py"], *([f"{LIBRARY}/store/test_contract.py::{name}"] for name in STORE)],
    ids=["runtime", "provider", *STORE],
)
def test_the_contract_holds_in_a_worker(tests: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every promise that holds in process holds in a worker, over the daemon's store and models."""
    (tmp_path / "contracts.py").write_text(FUNCTION.format(root=str(ROOT)), "utf-8")
    monkeypatch.setenv(IN_WORKER, "1")
    with daemon_client(tmp_path, trust=True) as client:
        info = client.start("contracts.py:check", {"tests": tests}).info()
    assert (info.state, info.result) == ("completed", 0), f"{info.error}\n{info.output}"
    assert " passed" in info.output
