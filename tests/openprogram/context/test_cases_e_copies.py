"""Reported situations of area e: errors, functions, runtimes and stores that are copied, pickled or forked. Each test carries the id of its case."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from openprogram import agentic_function
from openprogram.errors import (
    ArgumentError,
    CheckFailedError,
    DecisionError,
    LLMError,
    OpenProgramError,
    Reason,
    StructuredOutputValidationError,
    UnknownSessionError,
    UnknownTargetError,
)
from tests.openprogram.context.support import echoing


@agentic_function
def inner(x: int) -> int:
    """Inner."""
    return x


ERRORS: list[OpenProgramError] = [
    LLMError("no", reason=Reason.RATE_LIMIT, retryable=True, http_status=429, retry_after_s=2.5, attempts=3),
    DecisionError("no", kind="bad_args", path="$.x", reply="{}", attempts=2, node_ids=("a",)),
    StructuredOutputValidationError("no", code="invalid_json", issues=("one",)),
    ArgumentError("no", parameter="x"),
    UnknownTargetError("no", near=("f",)),
    CheckFailedError("no", result=1, problem="two"),
    UnknownSessionError("no session"),
]


WAYS: dict[str, Callable[[Any], Any]] = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda error: pickle.loads(pickle.dumps(error))}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("way", WAYS)
def test_e09_errors_travel_whole(error: OpenProgramError, way: str) -> None:
    """e09: pickled or copied, an error has the same type, text and fields."""
    again = WAYS[way](error)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def fail_in_a_process() -> None:
    """Raise what a worker of a process pool raises."""
    raise ERRORS[0]


def test_e09_errors_come_out_of_a_process_pool() -> None:
    """e09: the caller of a pool gets the worker's error with its fields, not a hang or another error."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(LLMError) as raised:
        pool.submit(fail_in_a_process).result(timeout=60)
    assert (raised.value.reason, raised.value.http_status, raised.value.attempts) == (Reason.RATE_LIMIT, 429, 3)


FORKED = """
import os, sqlite3, sys
from openprogram import Runtime, session
from openprogram.store.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
runtime = Runtime(call=lambda content, **_: content[-1]["text"])
with session("s", store=store) as recorded:
    assert runtime.exec("before") == "before"
    child = os.fork()
    who = "parent" if child else "child"
    for number in range(50):
        assert runtime.exec(f"{who} {number}") == f"{who} {number}"
    if not child:
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
nodes = recorded.nodes()
assert len(nodes) == 101 and all(node.status == "completed" for node in nodes), len(nodes)
assert sorted(node.seq for node in nodes) == list(range(1, 102))
store.close()
assert sqlite3.connect(sys.argv[1]).execute("PRAGMA integrity_check").fetchone() == ("ok",)
print("done")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_e10_parent_and_child_of_a_fork_both_go_on(tmp_path: Path) -> None:
    """e10: after a fork in an open session both ask and write 50 times: nothing is lost, mixed or locked."""
    done = subprocess.run([sys.executable, "-c", FORKED, str(tmp_path / "store.sqlite3")], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_e11_functions_copy_by_reference_and_a_runtime_does_not() -> None:
    """e11: decorated functions copy and pickle like plain ones; a Runtime is refused with a TypeError that says why."""
    assert copy.deepcopy({"tool": inner})["tool"] is inner
    assert copy.copy(inner) is inner
    assert pickle.loads(pickle.dumps(inner)) is inner
    runtime, _ = echoing()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a Runtime holds connections"):
            attempt({"runtime": runtime} if attempt is copy.deepcopy else runtime)
