"""Branches and loops that a model decides."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from openprogram import DecisionError, OpenProgramError, Runtime, agentic_function, decision
from openprogram.agentic_programming.control_flow import CheckFailedError, conditional, route, validate_and_retry
from tests.openprogram.decision.scripts import scripted, shown


def refund(order: int) -> str:
    return f"refunded {order}"


async def later() -> str:
    return "later"


@pytest.mark.parametrize(
    ("options", "reply", "result"),
    [
        (["refund", "wait"], "wait", "wait"),
        ({"refund": refund, "wait": None}, '{"call": "refund", "args": {"order": 7}}', "refunded 7"),
        ({"refund": refund, "wait": None}, "wait", None),
        ({"later": later}, "later", "later"),
        ({"plan": ("Plan.", {"n": int})}, '{"call": "plan", "args": {"n": 1}}', {"decision": "plan", "n": 1}),
    ],
)
def test_route_returns_the_result_of_the_pick(options: Any, reply: str, result: Any) -> None:
    """The options are those of a decision; the prompt holds the context, the question and the menu."""
    runtime, provider = scripted(reply)
    assert route("What now?", options, "The lamp is broken.", runtime=runtime) == result
    text = shown(provider.prompts[0])
    assert text.index("The lamp is broken.") < text.index("What now?") < text.index("Options:")
    assert text.endswith(decision.render_options(options))


def test_route_takes_names_as_a_whole() -> None:
    """Prose that merely mentions an option is asked again; when nothing valid comes there is an error and no default."""
    runtime, provider = scripted("not refund but wait", "I would not refund")
    with pytest.raises(DecisionError):
        route("What now?", ["refund", "wait"], runtime=runtime)
    assert len(provider.requests) == 2
    runtime, provider = scripted("hm")
    with pytest.raises(DecisionError):
        route("What now?", ["refund", "wait"], runtime=runtime, max_retries=0)


YES, NO = '{"call": "yes", "args": {}}', "No."


BRANCHES: list[tuple[tuple[Any, ...], str, Any]] = [
    ((), YES, True),
    ((), NO, False),
    (("go", "stop"), YES, "go"),
    (("go", "stop"), NO, "stop"),
    ((lambda: "ran", None), YES, "ran"),
    ((lambda: "ran", None), NO, False),
    ((None, later), NO, "later"),
    ((refund, None), '{"call": "yes", "args": {"order": 3}}', "refunded 3"),
    ((decision.value(refund), None), YES, refund),
    ((("go", "When it holds."), None), YES, "go"),
    (([1, 2], {}), NO, {}),
    ((0, ""), YES, 0),
]


@pytest.mark.parametrize(("branches", "reply", "result"), BRANCHES)
def test_conditional_returns_the_result_of_its_branch(branches: tuple[Any, ...], reply: str, result: Any) -> None:
    """A function is run, a value returned as it is, and a branch that is left out gives the answer."""
    runtime, provider = scripted(reply)
    outcome = conditional("The lamp is broken.", "It does not shine.", *branches, runtime=runtime)
    assert outcome == result and type(outcome) is type(result)
    text = shown(provider.prompts[0])
    assert text.index("It does not shine.") < text.index("The lamp is broken.")


@pytest.mark.parametrize("reply", ["Maybe.", "yes and no", "Yes, no doubt", "true", "", '{"call": "perhaps"}'])
def test_conditional_has_no_default(reply: str) -> None:
    """Neither yes nor no is an error, and neither branch is run."""
    runtime, _ = scripted(reply, repeat=True)
    ran: list[str] = []
    with pytest.raises(DecisionError):
        conditional("It holds.", if_true=lambda: ran.append("yes"), if_false=lambda: ran.append("no"), runtime=runtime)
    assert ran == []


def test_they_run_below_a_function_without_passing_the_runtime() -> None:
    """All three take the ambient runtime."""

    @agentic_function
    def work(runtime: Runtime) -> list[Any]:
        made = validate_and_retry(lambda: "short", "It is long.", lambda: "long")
        return [made, conditional("It holds.", runtime=scripted("no")[0]), route("Which?", ["a", "b"])]

    runtime, _ = scripted("no", "yes", "b")
    assert work(runtime) == ["long", False, "b"]


@pytest.mark.parametrize(
    "attempt",
    [lambda: route("x", ["a"]), lambda: conditional("x"), lambda: validate_and_retry(lambda: 1, "x", lambda: 2)],
    ids=["route", "conditional", "validate_and_retry"],
)
def test_without_a_runtime_there_is_a_reason(attempt: Callable[[], Any]) -> None:
    """The error says what to declare or to pass."""
    with pytest.raises(RuntimeError, match="runtime=None"):
        attempt()


CHECKS: list[Callable[[int], Any]] = [lambda n: n >= 2, lambda n: "" if n >= 2 else "too small", lambda n: [1] * (n - 1)]


@pytest.mark.parametrize("checks", CHECKS)
def test_what_does_not_pass_is_tried_again(checks: Callable[[int], Any]) -> None:
    """Until the check is content: with a bool, any true value, or a text that says what is wrong."""
    tried: list[int] = []

    def retry(last: int) -> int:
        tried.append(last)
        return last + 1

    assert validate_and_retry(lambda: 0, checks, retry) == 2
    assert tried == [0, 1]


def both(last: int, problem: str) -> Any:
    return last, problem


def maybe(last: int, problem: str = "unset") -> Any:
    return last, problem


def anything(*given: Any) -> Any:
    return given


def keyword(last: int, *, more: int = 1) -> Any:
    return last, more


def one(last: int) -> Any:
    return [last]


@pytest.mark.parametrize(
    ("retry", "given"),
    [(both, (0, "too small")), (maybe, (0, "too small")), (anything, (0, "too small")), (one, [0]), (keyword, (0, 1)), (lambda: "nothing", "nothing")],
)
def test_retry_is_told_as_much_as_it_takes(retry: Callable[..., Any], given: Any) -> None:
    """The result and what was wrong, the result, or nothing."""
    assert validate_and_retry(lambda: 0, lambda result: "too small" if result == 0 else "", retry) == given


@pytest.mark.parametrize("retries", [0, 1, 2, 5])
def test_when_nothing_passes_there_is_an_error(retries: int) -> None:
    """max_retries counts calls of retry; the error holds the last result and what was wrong, pickles, and no result is passed off as good."""
    calls: list[int] = []

    def retry(last: int) -> int:
        calls.append(last)
        return last + 1

    with pytest.raises(CheckFailedError, match=f"{retries + 1} attempt.*too small") as caught:
        validate_and_retry(lambda: 0, lambda _: "too small", retry, retries)
    assert len(calls) == retries
    for error in (caught.value, copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert (error.result, error.problem) == (retries, "too small")
    assert isinstance(caught.value, OpenProgramError) and isinstance(caught.value, ValueError)


def test_the_model_can_be_the_check() -> None:
    """A text as check is a statement about each result that the model judges; what it says is false reaches retry."""
    runtime, provider = scripted("no", "yes")
    problems: list[str] = []

    def retry(last: str, problem: str) -> str:
        problems.append(problem)
        return f"{last} of 3 EUR"

    assert validate_and_retry(lambda: "a price", "It names an amount.", retry, runtime=runtime) == "a price of 3 EUR"
    assert len(problems) == 1 and "It names an amount." in problems[0]
    assert ["a price of 3 EUR" in shown(prompt) for prompt in provider.prompts] == [False, True]


def test_async_parts_are_awaited() -> None:
    """Action, check and retry."""

    async def action() -> int:
        return 0

    async def check(result: int) -> bool:
        return result == 1

    async def retry(last: int) -> int:
        return last + 1

    assert validate_and_retry(action, check, retry) == 1


def test_what_the_parts_raise_is_passed_on() -> None:
    """An error of action, check or retry is no failed check."""

    def burn(*_: Any) -> Any:
        raise KeyError("smoke")

    for parts in ((burn, bool, bool), (lambda: 1, burn, bool), (lambda: 0, bool, burn)):
        with pytest.raises(KeyError, match="smoke"):
            validate_and_retry(*parts)


def three(a: Any, b: Any, c: Any) -> None: ...


BAD: dict[str, tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]] = {
    "no question": (route, ("", ["a"]), TypeError, "question"),
    "a question that is no text": (route, (3, ["a"]), TypeError, "question"),
    "no options": (route, ("x", []), ValueError, "empty"),
    "a context that is no text": (route, ("x", ["a"], {"a": 1}), TypeError, "context of route"),
    "no condition": (conditional, ("  ",), TypeError, "condition"),
    "a condition's context": (conditional, ("x", ["a"]), TypeError, "context of conditional"),
    "a branch that is a class": (conditional, ("x", "", dict), TypeError, "'yes'"),
    "a branch with a bad schema": (conditional, ("x", "", ("d", {"x": [str, int]})), TypeError, "'yes'"),
    "an action that is none": (validate_and_retry, (1, bool, bool), TypeError, "action"),
    "a check that is none": (validate_and_retry, (bool, 1, bool), TypeError, "check"),
    "a retry that is none": (validate_and_retry, (bool, bool, None), TypeError, "retry"),
    "a retry of three": (validate_and_retry, (bool, bool, three), TypeError, "retry takes"),
    "retries below none": (validate_and_retry, (bool, bool, bool, -1), ValueError, "max_retries"),
    "retries that are no count": (validate_and_retry, (bool, bool, bool, True), ValueError, "max_retries"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_any_request(case: str) -> None:
    """The error names the parameter and what it should be."""
    function, arguments, kind, reason = BAD[case]
    runtime, provider = scripted()
    with pytest.raises(kind, match=reason):
        function(*arguments, runtime=runtime)
    assert provider.requests == []
