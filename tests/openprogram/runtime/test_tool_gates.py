"""Which tools a call of `exec` offers, and which calls of the model run."""

# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

import pytest

from openprogram import Runtime, agentic_function, function, session
from openprogram.agentic_programming.asking import Ask, answering
from openprogram.errors import UserDeclined
from openprogram.providers.base import Profile
from openprogram.providers.scripted import ScriptedProvider
from openprogram.store.memory import MemoryStore
from tests.openprogram.tools import calling, names, result_of, results, scripted


def offered(**options: Any) -> list[str]:
    """The names that a call with these options offers."""
    runtime, provider = scripted("hm")
    runtime.exec("?", **options)
    return list(names(provider.requests[0]))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some registered tools."""
    monkeypatch.setenv("THERE", "1")

    @function
    def plain() -> None: ...

    @agentic_function(toolset=("web", "default"))
    def agentic(runtime: Any = None) -> None: ...

    @function(unsafe_in="phone")
    def unsafe() -> None: ...

    @function(requires_env=("THERE", "ABSENT"))
    def unset() -> None: ...

    @function(requires_env="THERE", can_use=lambda: True)
    def usable() -> None: ...

    @function(can_use=lambda: 1 / 0)
    def broken() -> None: ...

    @function
    def unfillable(thread: threading.Thread) -> None: ...

    @function(register_globally=False)
    def outside() -> None: ...


OFFERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["agentic", "plain", "unsafe", "usable"]),
    ({"toolset": "full"}, ["agentic", "plain", "unsafe", "usable"]),
    ({"toolset": "none"}, []),
    ({"tools": []}, []),
    ({"toolset": "web"}, ["agentic"]),
    ({"toolset": "default"}, ["agentic"]),
    ({"toolset": ["web"], "tools": ["plain"]}, ["plain", "agentic"]),
    ({"toolset": "none", "tools": ["plain"]}, ["plain"]),
    ({"tools_source": "phone"}, ["agentic", "plain", "usable"]),
    ({"tools_source": "desk"}, ["agentic", "plain", "unsafe", "usable"]),
    ({"tools_allow": ["plain", "unsafe"], "tools_deny": ["unsafe"]}, ["plain"]),
    ({"tools_allow": "plain"}, ["plain"]),
    ({"tools_deny": ("plain",)}, ["agentic", "unsafe", "usable"]),
]


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(("options", "wanted"), OFFERS)
def test_the_gates_let_through(options: dict[str, Any], wanted: list[str]) -> None:
    """Set, source, availability and lists, always in the same order; what no model can call is left out of what nobody named."""
    assert offered(**options) == wanted


@pytest.mark.usefixtures("program")
def test_what_was_named_and_cannot_be_called_is_an_error() -> None:
    """The error names the tool and the parameter; a set leaves such a tool out."""
    with pytest.raises(TypeError, match=r"tool unfillable: no model can supply 'thread'"):
        offered(tools=["unfillable"])


def test_an_unavailable_tool_that_was_named_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Why it is missing can be read."""

    @function(requires_env="ABSENT")
    def unset() -> None: ...

    with caplog.at_level(logging.WARNING):
        assert offered(tools=[unset]) == []
    assert "unset is not offered: the environment variable ABSENT is not set" in caplog.text


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"toolset": "wbe"}, ValueError, r"toolset 'wbe' is unknown; known: full, none, default"),
    ({"tools_allow": ["add_"]}, ValueError, r"tools_allow: there is no tool 'add_'; did you mean add\?"),
    ({"tools_deny": ["nope"]}, ValueError, r"tools_deny: there is no tool 'nope'; known: add"),
    ({"tool_choice": "requierd"}, ValueError, r"tool_choice does not know 'requierd'; allowed: 'auto', 'required', 'none'"),
    ({"tool_choice": {"type": "function", "name": "ad"}}, ValueError, r"names 'ad', which is no tool of this call; did you mean 'add'\?"),
    ({"tool_choice": {"name": "add"}}, ValueError, "tool_choice does not know"),
    ({"tool_choice": "required", "tools": []}, ValueError, "needs at least one tool"),
    ({"tools": [3]}, TypeError, "a tool is a function"),
    ({"tools": ["nope"]}, ValueError, "no tool called 'nope' is registered"),
    ({"max_iterations": "3"}, TypeError, "max_iterations"),
    ({"parallel_tool_calls": "no"}, TypeError, "parallel_tool_calls"),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD)
@pytest.mark.parametrize("profile", [Profile(), Profile(tools=False)], ids=["tools", "no tools"])
def test_a_bad_option_is_refused_before_any_request(options: dict[str, Any], kind: type[Exception], message: str, profile: Profile) -> None:
    """f29: a misspelt name is an error that lists what is allowed, also on a model without tools."""

    @function
    def add(a: int) -> int:
        return a

    runtime, provider = scripted("never", profile=profile)
    given: dict[str, Any] = {"tools": [add], **options} if "tool_choice" in options else options
    with pytest.raises(kind, match=message):
        runtime.exec("?", **given)
    assert provider.requests == []


def test_two_registered_tools_of_one_name_are_an_error_where_one_set_holds_both() -> None:
    """f29: neither shadows the other; naming one of them works."""

    def one() -> Any:
        @function(name="search")
        def first() -> str:
            return "a"

        return first

    @function(name="search")
    def second() -> str:
        return "b"

    first = one()
    with pytest.raises(ValueError, match=r"two tools are called 'search': .*first.* and .*second"):
        offered()
    assert offered(tools=[first]) == ["search"]
    assert offered(toolset="none") == []


def test_a_function_is_not_offered_to_the_model_inside_it() -> None:
    """What the model is asked within is not implicitly itself; named, it is a tool like any other."""

    @agentic_function
    def outer(names: list[str] | None = None, runtime: Any = None) -> Any:
        return runtime.exec("?", tools=names)

    @function
    def other() -> None: ...

    provider = ScriptedProvider(["hm"], repeat=True)
    runtime = Runtime(provider=provider)
    outer(runtime=runtime)
    outer(["outer"], runtime=runtime)
    assert [list(names(request)) for request in provider.requests] == [["other"], ["outer"]]


def test_a_choice_that_forces_a_call_holds_for_the_first_request() -> None:
    """Forced again, the model could never answer; the name is given as the provider knows it."""

    @function(name="a.b", register_globally=False)
    def tool() -> None: ...

    runtime, provider = scripted(calling((tool.tool.wire_name, {})), "done")
    runtime.exec("?", tools=[tool], tool_choice={"type": "function", "name": "a.b"})
    assert [request.tool_choice for request in provider.requests] == [{"type": "function", "name": tool.tool.wire_name}, "auto"]


CHECKS: list[tuple[Any, bool]] = [
    (lambda: True, True),
    (lambda: False, False),
    (lambda n: n > 1, True),
    (lambda n, by: n == by, False),
    (lambda arguments: arguments == {"n": 2}, True),
    (lambda **arguments: arguments["n"] == 2, True),
    (lambda: 1 / 0, False),
]


async def _slow_check(n: int) -> bool:
    await asyncio.sleep(0)
    return n == 2


@pytest.mark.parametrize(("check", "runs"), [*CHECKS, (_slow_check, True)])
def test_check_fn_judges_each_call(check: Any, runs: bool) -> None:
    """It gets the arguments that it declares, defaults too, or all as a dict; no, or an exception, and the call does not run."""
    ran: list[int] = []

    @function(check_fn=check, register_globally=False)
    def tool(n: int, by: int = 3) -> str:
        ran.append(n)
        return "ran"

    block = result_of(tool, {"n": 2})
    assert (ran, block["is_error"]) == (([2], False) if runs else ([], True))
    assert runs or "tool was not run: its check" in block["text"]


def _decline(ask: Ask) -> Any:
    raise UserDeclined("no")


def _reads(ask: Ask) -> bool:
    return "it costs money" in ask.prompt


PEOPLE: list[tuple[Any, Any, str]] = [
    (True, lambda ask: True, "ran"),
    (True, lambda ask: False, "did not allow it"),
    (True, _decline, "did not allow it"),
    (True, None, "nobody is there"),
    (lambda n: n > 5, None, "ran"),
    (lambda n: "it costs money", _reads, "ran"),
]


@pytest.mark.parametrize(("wanted", "person", "text"), PEOPLE)
def test_a_person_approves(wanted: Any, person: Any, text: str) -> None:
    """The person sees tool and arguments, secrets hidden; a no, a refusal or nobody there mean that nothing runs."""
    asked: list[Ask] = []

    def answer(ask: Ask) -> Any:
        asked.append(ask)
        return person(ask)

    @function(requires_approval=wanted, label="Pay the bill", register_globally=False)
    def pay(n: int, api_key: str = "") -> str:
        return "ran"

    with answering(None if person is None else answer):
        block = result_of(pay, {"n": 2, "api_key": "hunter2"})
    assert text in block["text"]
    assert block["is_error"] is (text != "ran")
    assert [ask.kind for ask in asked] == ([] if person is None else ["confirm"])
    assert all("Pay the bill(n=2" in ask.prompt and "hunter2" not in ask.prompt for ask in asked)


def test_an_approval_is_recorded_beneath_its_call() -> None:
    """Question and answer are nodes, and do not enter the log of the frame while the exec is open."""

    @function(requires_approval=True, register_globally=False)
    def pay() -> str:
        return "paid"

    runtime, _ = scripted(calling(("pay", {})), "done", "hm")
    runtime.on_ask = lambda ask: True
    with session("s", store=MemoryStore()) as recorded:
        runtime.exec("?", tools=[pay])
    model, tool, question, answer = recorded.nodes()
    assert (tool.caller, question.caller, answer.caller) == (model.id, tool.id, question.id)
    assert (question.name, question.output, answer.role, answer.input) == ("confirm", True, "user", True)


def test_results_are_remembered_for_a_while() -> None:
    """The same arguments give the same result without a run, until the time is over; other arguments and failures run."""
    runs: list[int] = []

    @function(cache=True, register_globally=False)
    def look(n: int) -> int:
        runs.append(n)
        if n < 0:
            raise ValueError("negative")
        return n

    assert [result_of(look, {"n": n})["text"] for n in (1, 1, 2, "1")] == ["1", "1", "2", "1"]
    for _ in range(2):
        assert result_of(look, {"n": -1})["is_error"]
    assert runs == [1, 2, -1, -1]
    assert look(1) == 1
    assert runs[-1] == 1

    @function(cache=True, cache_ttl=1e-9, register_globally=False)
    def brief(n: int) -> int:
        runs.append(n)
        return n

    runs.clear()
    assert [result_of(brief, {"n": 1})["text"] for _ in range(2)] == ["1", "1"]
    assert runs == [1, 1]


def test_a_deferred_tool_is_found_loaded_last_and_called() -> None:
    """It is not shown at first; a search loads what fits; its schema then comes behind all others."""

    @function
    def always(x: int) -> None: ...

    @function(defer=True)
    def weather_report(city: str) -> str:
        """Say how the weather is in a city."""
        return f"sunny in {city}"

    @function(defer=True)
    def other() -> None:
        """Nothing to do with it."""

    search = calling(("tool_search", {"query": "weather"}))
    runtime, provider = scripted(search, calling(("weather_report", {"city": "Oslo"})), calling(("tool_search", {"query": "zzz"})), "done")
    runtime.exec("?")
    assert [list(names(request)) for request in provider.requests] == [
        ["always", "tool_search"],
        *[["always", "tool_search", "weather_report"]] * 3,
    ]
    assert "- weather_report: Say how the weather is" in results(provider.requests[1])[0]["text"]
    assert results(provider.requests[2])[0]["text"] == "sunny in Oslo"
    assert "Nothing fits 'zzz'. There are: other" in results(provider.requests[3])[0]["text"]


def test_a_long_result_is_cut_and_can_be_read_back() -> None:
    """c11: with persist_full the whole is kept under the id that the mark names; in a session, later calls read it too."""
    whole = "".join(f"{number:06d}\n" for number in range(1000))

    @function(persist_full=True, max_result_chars=1000, register_globally=False)
    def dump() -> str:
        return whole

    def read_on(request: Any) -> Any:
        cut = results(request)[0]["text"]
        name = cut.partition("read_result(id='")[2].partition("'")[0]
        return calling(("read_result", {"id": name, "start": 700, "length": 14}), ("read_result", {"id": "code-none"}))

    with session("s", store=MemoryStore()) as recorded:
        runtime, provider = scripted(calling(("dump", {})), read_on, "done")
        runtime.exec("?", tools=[dump])
        shown = results(provider.requests[1])[0]["text"]
        assert shown.startswith(whole[:700])
        assert shown.endswith(whole[-300:])
        piece, missing = results(provider.requests[2])
        assert piece["text"] == f"{whole[700:714]}\n[characters 700 to 714 of 7000]"
        assert "there is no result" in missing["text"]
        (node,) = [node for node in recorded.nodes() if node.name == "dump"]
        assert node.output == whole
        runtime, provider = scripted(calling(("read_result", {"id": node.id, "start": 0, "length": 7})), "done")
        runtime.exec("?", tools=[dump])
        assert results(provider.requests[1])[0]["text"].startswith("000000\n")
    runtime, provider = scripted(calling(("dump", {})), read_on, "done")
    runtime.exec("?", tools=[dump])
    assert results(provider.requests[2])[0]["text"].startswith(whole[700:714])


def test_the_stored_arguments_hide_secrets() -> None:
    """f11: a node of a tool call is redacted like that of a function."""

    def login(user: str, password: str) -> str:
        return f"hello {user}"

    runtime, _ = scripted(calling(("login", {"user": "ada", "password": "hunter2"})), "done")
    with session("s", store=MemoryStore()) as recorded:
        runtime.exec("?", tools=[login])
    (node,) = [node for node in recorded.nodes() if node.name == "login"]
    assert json.dumps(node.input) == '{"user": "ada", "password": "[redacted]"}'
