"""Reported situations about signatures, methods, wrappers and names of functions as tools. Each test carries the id of its case."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Optional

import pytest
from pydantic import BaseModel

from openprogram import agentic_function, decision, function
from openprogram.errors import ArgumentError
from tests.openprogram.tools import calling, names, result_of, results, scripted


def test_b01_postponed_annotations_give_the_same_schema_and_values() -> None:
    """b01: this module postpones its annotations; a function compiled without gives the same schema, and both convert alike."""
    source = "def f(n: int, tags: list[str], when: Optional[dt.date] = None) -> dict:\n    return {'n': n, 'tags': tags, 'when': when}\n"
    specs: list[Any] = []
    for head in ("", "from __future__ import annotations\n"):
        scope: dict[str, Any] = {"Optional": Optional, "dt": dt, "__name__": "made"}
        exec(compile(head + source, "made.py", "exec", dont_inherit=True), scope)
        made = agentic_function(scope["f"])
        specs.append(made.spec)
        assert made.execute(n="3", tags=["a"], when="2024-02-29") == {"n": 3, "tags": ["a"], "when": dt.date(2024, 2, 29)}
    assert specs[0] == specs[1]
    properties = specs[0]["parameters"]["properties"]
    assert properties["n"]["type"] == "integer"
    assert properties["tags"]["items"] == {"type": "string"}
    assert {branch.get("type") for branch in properties["when"]["anyOf"]} == {"string", "null"}


def test_b02_a_type_of_the_enclosing_function_degrades_alone_or_is_found() -> None:
    """b02: a name that only the enclosing function knows costs at most its own parameter; decorating never raises."""

    class Item(BaseModel):
        x: int

    @agentic_function
    def lost(item: Item, n: int) -> Any:
        return item, n

    @agentic_function
    def found(item: Item, n: int) -> Any:
        return isinstance(item, Item), n

    assert lost.spec["parameters"]["properties"]["n"] == {"type": "integer"}
    assert lost.execute(item={"x": 1}, n="2")[1] == 2
    assert found.execute(item={"x": 1}, n="2") == (True, 2)


class Bot:
    def __init__(self, name: str) -> None:
        self.name = name

    @agentic_function(cache=True)
    def say(self, text: str) -> str:
        """Say something."""
        return f"{self.name}: {text}"


def test_b05_a_bound_method_is_a_tool_of_its_instance() -> None:
    """b05: the schema has no self, the right instance is called as method, tool and option, and instances share no results."""
    first, second = Bot("a"), Bot("b")
    assert list(first.say.spec["parameters"]["properties"]) == ["text"]
    assert list(Bot.say.spec["parameters"]["properties"]) == ["text"]
    assert (first.say(text="x"), first.say.execute(text="x")) == ("a: x", "a: x")
    assert [result_of(bot.say, {"text": "x"})["text"] for bot in (first, second, first)] == ["a: x", "b: x", "a: x"]
    runtime, _ = scripted('{"call": "say", "args": {"text": "y"}}')
    assert decision.make("?", {"say": second.say}, runtime=runtime) == "b: y"
    with pytest.raises(ValueError, match="pass it bound"):
        runtime.exec("?", tools=[Bot.say])


class Kinds:
    @staticmethod
    @agentic_function
    def a(x: int) -> Any:
        return x

    @agentic_function
    @staticmethod
    def b(x: int) -> Any:
        return x

    @classmethod
    @agentic_function
    def c(cls, x: int) -> Any:
        return cls, x

    @agentic_function
    @classmethod
    def d(cls, x: int) -> Any:
        return cls, x


@pytest.mark.parametrize("name", "abcd")
@pytest.mark.parametrize("owner", [Kinds, Kinds()], ids=["class", "instance"])
def test_b06_static_and_class_methods_in_either_order(name: str, owner: Any) -> None:
    """b06: all four are called on class and instance, and their schema has only x."""
    method = getattr(owner, name)
    assert method(3) == method.execute(x="3") == (3 if name in "ab" else (Kinds, 3))
    assert list(method.spec["parameters"]["properties"]) == ["x"]


def test_b07_a_partial_keeps_its_name_and_hides_what_it_binds() -> None:
    """b07: the inner name, only the open parameter, and the bound value passed once."""

    def send(channel: str, text: str) -> str:
        """Send."""
        return f"{channel}: {text}"

    ops = functools.partial(send, channel="ops")
    runtime, provider = scripted(calling(("send", {"text": "hi", "channel": "evil"})), "done")
    runtime.exec("?", tools=[ops])
    (tool,) = provider.requests[0].tools
    assert (tool.name, tool.description, tool.parameters["required"]) == ("send", "Send.", ["text"])
    assert results(provider.requests[1])[0]["text"] == "ops: hi"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"x": 1, "y": 2, "kw": {"x": 5}}, "[1, 2, {}]"),
        ({"x": 1, "kw": {"y": 9}, "z": 3}, '[1, 0, {"z": 3}]'),
    ],
)
def test_b09_a_key_of_kwargs_never_collides(arguments: dict[str, Any], wanted: str) -> None:
    """b09: a declared name is its parameter, the name of ``**kw`` itself is nothing, and no call fails for the machinery."""

    def f(x: int, /, y: int = 0, **kw: Any) -> Any:
        return [x, y, kw]

    assert json.loads(result_of(f, arguments)["text"]) == json.loads(wanted)


def test_b10_positional_only_parameters_are_bound_by_name() -> None:
    """b10: with one left out, those after it keep their places."""

    @agentic_function
    def f(a: int, b: int = 2, /, c: int = 3) -> Any:
        return [a, b, c]

    assert f.execute(a=1, c=5) == [1, 2, 5]
    assert result_of(f, {"a": 1, "c": 5})["text"] == "[1,2,5]"


def with_db(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that supplies a parameter itself."""

    @functools.wraps(fn)
    def wrapper(q: str) -> Any:
        return fn(q, db="DB")

    return wrapper


def test_b11_a_wrapper_counts_by_what_it_declares() -> None:
    """b11: what the wrapper supplies is not shown; a model's value for it changes nothing; name, docstring and annotations survive."""

    @agentic_function
    @with_db
    def f(q: int, db: str) -> Any:
        """Look up."""
        return [q, db]

    assert f.spec == {
        "name": "f",
        "description": "Look up.",
        "parameters": {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"], "additionalProperties": False},
    }
    assert f("1") == ["1", "DB"]
    assert f.execute(q="1", db="evil") == [1, "DB"]


async def fetch(url: str) -> str:
    """Fetch."""
    await asyncio.sleep(0)
    return f"page {url}"


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A plain wrapper, which does not know that it wraps an async function."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


_unnamed: Callable[[str], Any] = lambda url="u": fetch(url)  # noqa: E731 - a lambda is what is tested


class Fetcher:
    async def __call__(self, url: str) -> str:
        """Fetch."""
        return await fetch(url)


@pytest.mark.parametrize("how", ["exec", "async_exec"])
@pytest.mark.parametrize(
    "tool",
    [
        logged(fetch),
        function(register_globally=False)(logged(fetch)),
        agentic_function(register_globally=False)(logged(fetch)),
        functools.partial(fetch),
        function(name="anonymous", register_globally=False)(_unnamed),
        Fetcher(),
    ],
    ids=["wrapper", "function", "agentic function", "partial", "lambda", "callable object"],
)
def test_b12_an_awaitable_is_awaited_whatever_returned_it(tool: Any, how: str) -> None:
    """b12: the model sees the text; warnings are errors here, so nothing was left unawaited."""
    from openprogram.functions.tool import tool_of

    runtime, provider = scripted(calling((tool_of(tool).wire_name, {"url": "u"})), "done")
    if how == "exec":
        runtime.exec("?", tools=[tool])
    else:
        asyncio.run(runtime.async_exec("?", tools=[tool]))
    assert results(provider.requests[1])[0]["text"] == "page u"


@agentic_function(register_globally=False)
def letters(n: int) -> Iterator[str]:
    """Letters."""
    yield from "abc"[:n]


@agentic_function(register_globally=False)
async def numbers(n: int) -> AsyncIterator[int]:
    """Numbers."""
    for number in range(n):
        yield number


@pytest.mark.parametrize(("tool", "text"), [(letters, "ab"), (numbers, "[0,1]")])
def test_b13_a_generator_as_a_tool_is_collected(tool: Any, text: str) -> None:
    """b13: pieces of text are joined, other items a list."""
    assert result_of(tool, {"n": 2})["text"] == text


def test_b22_any_name_becomes_one_that_providers_take() -> None:
    """b22: the same name always gives the same, no two collide, and the call finds its tool; a lambda without a name is refused with the way out."""
    long = "n" * 80
    tools = [function(name=name, register_globally=False)(lambda: "ok") for name in ("查天气", "my tool", "my_tool", "a.b", "a-b", long, f"{long}!")]
    runtime, provider = scripted("hm", "hm")
    runtime.exec("?", tools=tools)
    runtime.exec("?", tools=tools)
    sent = names(provider.requests[0])
    assert sent == names(provider.requests[1])
    assert len(set(sent)) == len(tools)
    assert all(len(name) <= 64 and name.replace("_", "a").replace("-", "a").isalnum() and name.isascii() for name in sent)
    assert sent[2] == "my_tool"
    assert result_of(tools[0], {}, name=sent[0])["text"] == "ok"
    assert result_of(tools[0], {}, name="查天气")["text"] == "ok"
    with pytest.raises(ValueError, match="has no name"):
        runtime.exec("?", tools=[lambda x: x])  # pyright: ignore[reportUnknownLambdaType]


def test_b23_two_tools_of_one_name_are_refused_before_any_request() -> None:
    """b23: the error names both places."""

    def first() -> Callable[[], str]:
        def search() -> str:
            return "a"

        return search

    def second() -> Callable[[], str]:
        def search() -> str:
            return "b"

        return search

    runtime, provider = scripted("never")
    with pytest.raises(ValueError, match=r"'search'.*first.*second"):
        runtime.exec("?", tools=[first(), second()])
    assert provider.requests == []


def test_b24_parameters_may_have_any_name_but_the_injected_ones() -> None:
    """b24: all values arrive by execute, tool call and decision; a runtime that is a text is refused at decoration."""

    @agentic_function
    def f(config: str, name: str, args: list[str], call: str, timeout: int, content: str, self_: str = "", arguments: str = "", tool: str = "") -> Any:
        return [config, name, args, call, timeout, content, arguments, tool]

    given: dict[str, Any] = {"config": "c", "name": "n", "args": ["a"], "call": "k", "timeout": 1, "content": "t", "arguments": "g", "tool": "h"}
    wanted = ["c", "n", ["a"], "k", 1, "t", "g", "h"]
    assert f.execute(**given) == wanted
    assert json.loads(result_of(f, given)["text"]) == wanted
    runtime, _ = scripted(json.dumps({"call": "f", "args": given}))
    assert decision.make("?", [f], runtime=runtime) == wanted

    def clash(runtime: str) -> None: ...

    for decorate in (agentic_function, function):
        with pytest.raises(TypeError, match="runtime is filled with the Runtime"):
            decorate(clash)


def plain(x: int) -> int:
    """Plain."""
    return x


def test_b25_decorating_twice_leaves_the_function_and_the_first_alone() -> None:
    """b25: each has its own name, and the function stays as it was."""
    before = dict(vars(plain))
    a, b = agentic_function(name="a")(plain), agentic_function(name="b")(plain)
    assert (a.spec["name"], b.spec["name"], plain(1), a(1), b(1)) == ("a", "b", 1, 1, 1)
    assert vars(plain) == before
    assert (a.__name__, a.__doc__, a.__module__) == ("plain", "Plain.", __name__)
    again = agentic_function(name="c")(a)
    assert (again.spec["name"], a.spec["name"], again(1)) == ("c", "a", 1)
    with pytest.raises(TypeError, match="bound method"):
        agentic_function(Bot("x").__init__)


def test_f28_a_spec_honours_what_was_said_and_leaves_out_what_models_cannot_fill() -> None:
    """f28: name, description and parameters; no self, no ``*args``, no runtime; valid JSON Schema."""
    own = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 3}}, "required": ["x"]}

    @agentic_function(name="nick", description="Said.", parameters=own, not_for="anything else")
    def f(x: Any, *args: Any, runtime: Any = None) -> Any:
        return x

    assert f.spec == {"name": "nick", "description": "Said.\nNot for: anything else", "parameters": own}
    assert f.execute(x="4") == 4
    with pytest.raises(ArgumentError, match="minimum"):
        f.execute(x=1)
    assert inspect.signature(f).parameters.keys() == {"x", "args", "runtime"}
