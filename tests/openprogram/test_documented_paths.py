"""Programs written for the documented import paths, as they are written there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "a package": """
from openprogram import agentic_function, Runtime, decision

@agentic_function
def f(x: str, runtime) -> str:
    '''One line.'''
    return runtime.exec(content=[{"type": "text", "text": f"...{x}..."}])

rt = Runtime(call=lambda content, model, response_format: content[-1]["text"].upper())
assert f("a", rt) == "...A..."
assert decision.make("?", ["done"], runtime=Runtime(call=lambda content, model, response_format: '{"call": "done"}')) == "done"
""",
    "modules": """
from openprogram.agentic_programming.function import (
    CancelledError, _current_runtime, add_pre_invocation_hook, agentic_function, remove_pre_invocation_hook,
)
from openprogram.agentic_programming.runtime import Runtime
from openprogram.agentic_programming import decision
from openprogram.agentic_programming.decision import DECISION_FINISH_INSTRUCTION, DecisionError, make, parse_args, render_options, resolve_decision

class Own(Runtime):
    def _call(self, content, model="default", response_format=None):
        return f"{model}: {content[-1]['text']}"

@agentic_function
def f(runtime=None):
    assert _current_runtime.get() is runtime
    return runtime.exec("x")

def stop(function, arguments):
    raise CancelledError("stopped")

assert f(Own(model="m")) == "m: x"
assert _current_runtime.get() is None
add_pre_invocation_hook(stop)
try:
    f(Own())
except CancelledError:
    pass
else:
    raise SystemExit("not stopped")
finally:
    remove_pre_invocation_hook(stop)
assert issubclass(CancelledError, BaseException) and not issubclass(CancelledError, Exception)
assert issubclass(DecisionError, ValueError)
""",
    "tools": """
from openprogram import function, agentic_function
from openprogram.functions import DEFAULT_HEAD_RATIO, DEFAULT_MAX_RESULT_CHARS, function as same

assert function is same
assert (DEFAULT_MAX_RESULT_CHARS, DEFAULT_HEAD_RATIO) == (30_000, 0.7)

@agentic_function(input={"city": {"description": "which", "options": ["Oslo"]}}, toolset=("web",), unsafe_in=("wechat",), max_result_chars=10, defer=False)
def weather(city: str, runtime=None) -> str:
    '''The weather.'''
    return f"{city}: sunny"

assert weather.spec["parameters"]["properties"] == {"city": {"type": "string", "enum": ["Oslo"], "description": "which"}}
assert weather.input_meta["city"]["options"] == ["Oslo"]
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_documented_program_runs_unchanged(program: str, tmp_path: Path) -> None:
    """In an interpreter of its own, without a daemon, a store or a model."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAMS[program]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
