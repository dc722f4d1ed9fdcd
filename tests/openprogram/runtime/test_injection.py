"""Runtime parameters fill themselves: from the call around, else with a runtime made for this call and closed after it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openprogram import Runtime, agentic_function
from openprogram.agentic_programming.function import _current_runtime  # pyright: ignore[reportPrivateUsage] - the name is documented
from openprogram.errors import NoModelError
from openprogram.providers.scripted import ScriptedProvider


def runtime(*replies: str) -> Runtime:
    """A runtime on a script."""
    return Runtime(provider=ScriptedProvider(replies))


@agentic_function
def required(x: str, runtime: Runtime) -> Runtime:
    """Takes a runtime."""
    return runtime


@agentic_function
def optional(x: str, runtime: Runtime | None = None) -> Runtime | None:
    """Takes a runtime or none."""
    return runtime


@agentic_function
def several(exec_runtime: Runtime, review_runtime: Runtime | None = None, runtime: Runtime | None = None) -> tuple[Any, ...]:
    """Takes three."""
    return exec_runtime, review_runtime, runtime


@agentic_function
async def awaited(runtime: Runtime) -> Runtime:
    """Takes a runtime."""
    return runtime


@agentic_function
def iterated(runtime: Runtime) -> Iterator[Runtime]:
    """Takes a runtime."""
    yield runtime


INJECTED: dict[str, Callable[[], Any]] = {
    "required": lambda: required("x"),
    "optional": lambda: optional("x"),
    "None given": lambda: required("x", None),
    "None by keyword": lambda: required("x", runtime=None),
    "coroutine": lambda: asyncio.run(awaited()),
    "generator": lambda: next(iter(iterated())),
}


@pytest.mark.parametrize("call", INJECTED)
def test_the_runtime_of_the_call_around_is_filled_in(call: str) -> None:
    """Required and optional parameters alike, when the caller passes nothing or None."""
    outer = runtime()

    @agentic_function
    def around(runtime: Runtime) -> Any:
        return INJECTED[call]()

    assert around(runtime=outer) is outer


def test_several_runtime_parameters_get_the_same_one() -> None:
    """The one that was given fills the others; each that was given stays."""
    one, two = runtime(), runtime()
    assert several(one) == (one, one, one)
    assert several(None, two) == (two, two, two)
    assert several(one, two) == (one, two, one)


def test_a_nested_calls_own_runtime_is_the_ambient_one_inside_it_only() -> None:
    """An explicit runtime holds below its call; after it the outer one is back."""
    outer, inner = runtime(), runtime()

    @agentic_function
    def leaf(runtime: Runtime) -> Runtime:
        return runtime

    @agentic_function
    def middle(runtime: Runtime) -> Runtime:
        return leaf()

    @agentic_function
    def around(runtime: Runtime) -> tuple[Runtime, Runtime, Runtime]:
        return leaf(), middle(inner), leaf()

    assert around(outer) == (outer, inner, outer)
    assert _current_runtime.get() is None


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(2)], ids=lambda error: type(error).__name__)
def test_nothing_stays_behind_after_an_error(error: BaseException) -> None:
    """However the body ends, and also when its arguments were wrong, the ambient runtime is what it was before."""

    @agentic_function
    def failing(x: int, runtime: Runtime) -> None:
        raise error

    with pytest.raises(type(error)):
        failing(1, runtime=runtime())
    assert _current_runtime.get() is None
    with pytest.raises(TypeError):
        failing(runtime=runtime())
    assert _current_runtime.get() is None


def test_without_a_runtime_parameter_there_is_no_ambient_runtime() -> None:
    """Only a function that declares one makes a runtime ambient."""

    @agentic_function
    def undeclared() -> Any:
        return _current_runtime.get()

    assert undeclared() is None


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Runtime]:
    """Runtimes that entry calls made for themselves, each on a script of its own."""
    found: list[Runtime] = []

    def create() -> Runtime:
        found.append(runtime("hello"))
        return found[-1]

    monkeypatch.setattr("openprogram.agentic_programming.runtime.create_runtime", create)
    return found


def is_closed(runtime: Runtime) -> bool:
    """Whether exec refuses to work."""
    try:
        runtime.exec("x")
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("call", [name for name in INJECTED if name != "generator"])
def test_an_entry_call_owns_its_runtime(call: str, made: list[Runtime]) -> None:
    """With no call around it a runtime is made, and closed when the function returns."""
    result = INJECTED[call]()
    assert made == [result]
    assert is_closed(result)


def test_an_entry_call_closes_its_runtime_after_an_error(made: list[Runtime]) -> None:
    """Also when the body raises; the error comes through."""

    @agentic_function
    def failing(runtime: Runtime) -> None:
        assert runtime.exec("x") == "hello"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()
    assert is_closed(made[0])


def test_a_given_runtime_stays_open(made: list[Runtime]) -> None:
    """Whoever made it closes it."""
    given = runtime("still here")
    assert required("x", given) is given
    assert made == []
    assert given.exec("x") == "still here"


def test_a_generator_keeps_its_runtime_until_it_ends(made: list[Runtime]) -> None:
    """Open between its values, closed when it is exhausted or dropped."""
    running: Any = iterated()
    own = next(running)
    assert own.exec("x") == "hello"
    assert list(running) == []
    assert is_closed(own)


def test_nothing_to_run_on_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An entry call where no model is configured or installed raises NoModelError before the body runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(NoModelError, match="models install"):
        required("x")
