"""`agentic_function`: what the decorator keeps of a function, what it fills in, and what it refuses."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

from openprogram import agentic_function, session
from openprogram.agentic_programming.function import (
    MAX_REENTRY,
    AgenticFunction,
    CancelledError,
    add_pre_invocation_hook,
    remove_pre_invocation_hook,
)
from openprogram.store.memory import MemoryStore


def plain(x: int, *, factor: int = 2) -> int:
    """Multiply."""
    return x * factor


@agentic_function
def bare(x: int, *, factor: int = 2) -> int:
    """Multiply."""
    return x * factor


@agentic_function()
def empty_parentheses(x: int, *, factor: int = 2) -> int:
    """Multiply."""
    return x * factor


@agentic_function(name="times", description="Multiplies.", expose="full", render_range={"callers": 1, "subcalls": None}, system="Be exact.")
def with_arguments(x: int, *, factor: int = 2) -> int:
    """Multiply."""
    return x * factor


@agentic_function
async def coroutine(x: int, *, factor: int = 2) -> int:
    """Multiply."""
    await asyncio.sleep(0)
    return x * factor


@agentic_function
def generator(x: int) -> Generator[int, int | None, int]:
    """Count, and say what was sent."""
    for number in range(x):
        sent = yield number
        if sent is not None:
            yield sent
    return x


@agentic_function
async def async_generator(x: int) -> AsyncIterator[int]:
    """Count."""
    for number in range(x):
        await asyncio.sleep(0)
        yield number


class Shop:
    """Methods of every kind, the decorator above and below `classmethod` and `staticmethod`."""

    def __init__(self, rate: int = 3) -> None:
        self.rate = rate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shop) and other.rate == self.rate

    __hash__ = None  # pyright: ignore[reportAssignmentType] - a mutable object, as most are

    @agentic_function
    def price(self, x: int) -> int:
        """Per instance."""
        return x * self.rate

    @agentic_function
    async def slow_price(self, x: int) -> int:
        """Per instance."""
        return x * self.rate

    @classmethod
    @agentic_function
    def inner_class(cls, x: int) -> str:
        """Per class."""
        return f"{cls.__name__} {x}"

    @agentic_function
    @classmethod
    def outer_class(cls, x: int) -> str:
        """Per class."""
        return f"{cls.__name__} {x}"

    @staticmethod
    @agentic_function
    def inner_static(x: int) -> int:
        """Alone."""
        return x + 1

    @agentic_function
    @staticmethod
    def outer_static(x: int) -> int:
        """Alone."""
        return x + 1


@pytest.mark.parametrize("function", [bare, empty_parentheses, with_arguments])
def test_it_is_called_like_the_function(function: Callable[..., int]) -> None:
    """Bare, with empty parentheses and with arguments: the same calls give the same results."""
    assert function(3) == 6
    assert function(x=3, factor=5) == 15


def test_a_coroutine_function_is_awaited() -> None:
    """Its call is a coroutine with the function's result."""
    assert asyncio.run(coroutine(3, factor=3)) == 9


def test_a_generator_yields_receives_and_returns() -> None:
    """``send`` reaches the body and the return value comes out of ``yield from``."""

    def delegate() -> Generator[Any, Any]:
        result = yield from generator(2)
        yield ("returned", result)

    assert list(delegate()) == [0, 1, ("returned", 2)]
    running: Any = generator(3)
    assert next(running) == 0
    assert running.send("echo") == "echo"
    assert next(running) == 1


def test_an_exception_thrown_into_a_generator_reaches_its_body() -> None:
    """``throw`` arrives at the ``yield``, as without the decorator."""

    @agentic_function
    def resilient() -> Iterator[str]:
        try:
            yield "first"
        except KeyError as error:
            yield f"caught {error.args[0]}"

    running: Any = resilient()
    next(running)
    assert running.throw(KeyError("k")) == "caught k"


def test_an_async_generator_yields() -> None:
    """``async for`` works as without the decorator."""

    async def collect() -> list[int]:
        return [number async for number in async_generator(3)]

    assert asyncio.run(collect()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda: Shop().price(2), 6),
        (lambda: Shop.price(Shop(4), 2), 8),
        (lambda: asyncio.run(Shop(5).slow_price(2)), 10),
        (lambda: Shop.inner_class(1), "Shop 1"),
        (lambda: Shop().inner_class(1), "Shop 1"),
        (lambda: Shop.outer_class(1), "Shop 1"),
        (lambda: Shop().outer_class(1), "Shop 1"),
        (lambda: Shop.inner_static(1), 2),
        (lambda: Shop().outer_static(1), 2),
    ],
)
def test_methods_bind(call: Callable[[], Any], result: Any) -> None:
    """Instance, class and static methods, the decorator on either side of the standard ones."""
    assert call() == result


@pytest.mark.parametrize(
    ("function", "tests"),
    [
        (bare, {"iscoroutinefunction": False, "isgeneratorfunction": False, "isasyncgenfunction": False}),
        (coroutine, {"iscoroutinefunction": True, "isgeneratorfunction": False, "isasyncgenfunction": False}),
        (generator, {"iscoroutinefunction": False, "isgeneratorfunction": True, "isasyncgenfunction": False}),
        (async_generator, {"iscoroutinefunction": False, "isgeneratorfunction": False, "isasyncgenfunction": True}),
        (Shop().slow_price, {"iscoroutinefunction": True, "isgeneratorfunction": False}),
    ],
)
def test_inspect_sees_the_kind_of_the_body(function: Any, tests: dict[str, bool]) -> None:
    """Frameworks that ask `inspect` what to await or iterate get the answer for the body."""
    assert {name: getattr(inspect, name)(function) for name in tests} == tests


def test_signature_name_and_docstring_are_the_functions_own() -> None:
    """What help(), editors and other decorators read is unchanged; a method's signature has no ``self``."""
    assert inspect.signature(bare) == inspect.signature(plain)
    assert list(inspect.signature(Shop().price).parameters) == ["x"]
    assert list(inspect.signature(Shop.price).parameters) == ["self", "x"]
    assert (bare.__name__, bare.__qualname__, bare.__module__, bare.__doc__) == ("bare", "bare", __name__, "Multiply.")
    assert inspect.getdoc(Shop().price) == "Per instance."
    assert bare.__wrapped__(4) == 8


def test_the_spec_honours_name_and_description() -> None:
    """A tool description has the name and the description given to the decorator, else the function's own."""
    assert with_arguments.spec["name"] == "times"
    assert with_arguments.spec["description"] == "Multiplies."
    assert (bare.spec["name"], bare.spec["description"]) == ("bare", "Multiply.")
    assert bare.spec["parameters"]["required"] == ["x"]


@pytest.mark.parametrize("function", [bare, coroutine, Shop(7).price, Shop.price, Shop.inner_class])
def test_it_survives_pickling(function: Any) -> None:
    """A process pool can be handed a decorated function or a method."""
    again = pickle.loads(pickle.dumps(function))
    assert again.__qualname__ == function.__qualname__
    assert type(again) is type(function)


def test_a_pickled_method_keeps_its_instance() -> None:
    """The bound object travels along."""
    assert pickle.loads(pickle.dumps(Shop(7).price))(2) == 14


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_a_copy_is_the_function_itself(make: Callable[[Any], Any]) -> None:
    """As for plain functions."""
    assert make(bare) is bare


def test_methods_of_one_instance_are_equal() -> None:
    """As for plain methods, also when the instance cannot be hashed."""
    shop = Shop()
    assert shop.price == shop.price
    assert hash(shop.price) == hash(shop.price)
    assert shop.price != Shop(9).price
    assert shop.price != shop.slow_price


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"expose": "all"}, ValueError, ["expose", "'all'", "io, llm, full, hidden"]),
        ({"workdir_mode": "none"}, ValueError, ["workdir_mode", "'none'", "optional, hidden, required"]),
        ({"render_range": {"caller": 1}}, ValueError, ["render_range", "'caller'", "callers, subcalls"]),
        ({"render_range": {"callers": -2}}, ValueError, ["render_range['callers']", "-2"]),
        ({"render_range": {"callers": True}}, ValueError, ["render_range['callers']", "True"]),
        ({"render_range": {"subcalls": "3"}}, ValueError, ["render_range['subcalls']", "'3'"]),
        ({"input": {"x": {"descripton": "?"}}}, ValueError, ["input['x']", "'descripton'", "description"]),
        ({"input": {"x": "a text"}}, TypeError, ["input['x']", "'a text'"]),
        ({"exposes": "io"}, TypeError, ["exposes"]),
    ],
)
def test_a_bad_parameter_is_refused_at_decoration(options: dict[str, Any], kind: type[Exception], named: list[str]) -> None:
    """The error names the parameter, the value and what is allowed, before anything is called."""
    decorate: Any = agentic_function
    with pytest.raises(kind) as caught:
        decorate(**options)(plain)
    assert all(name in str(caught.value) for name in named)


@pytest.mark.parametrize("thing", [3, "text", Shop])
def test_only_functions_can_be_decorated(thing: Any) -> None:
    """Anything else is a TypeError that shows it."""
    with pytest.raises(TypeError, match="decorates a function or method"):
        agentic_function(thing)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"y": 2})])
def test_wrong_arguments_are_a_type_error_like_a_functions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A missing, superfluous or unknown argument is a TypeError that names the function."""
    with pytest.raises(TypeError, match=r"^bare\(\) "):
        bare(*args, **kwargs)


def recursive(limit: int) -> tuple[AgenticFunction[int], list[int]]:
    """A function that calls itself down to ``limit``, and the depths it reached."""
    reached: list[int] = []

    @agentic_function
    def down(depth: int = 1) -> int:
        reached.append(depth)
        return depth if depth >= limit else down(depth + 1)

    return down, reached


def test_a_function_may_reenter_itself_five_deep() -> None:
    """The sixth level is a RecursionError that names the function; the next call starts anew."""
    down, reached = recursive(MAX_REENTRY)
    assert down() == MAX_REENTRY
    down, reached = recursive(MAX_REENTRY + 1)
    for _ in range(2):
        reached.clear()
        with pytest.raises(RecursionError, match="down re-entered itself"):
            down()
        assert reached == [1, 2, 3, 4, 5]


def test_calls_side_by_side_do_not_count_as_reentry() -> None:
    """Depth counts what is inside each other, not how many run at once."""

    @agentic_function
    async def leaf(x: int) -> int:
        await asyncio.sleep(0)
        return x

    async def many() -> list[int]:
        return await asyncio.gather(*(leaf(x) for x in range(20)))

    assert asyncio.run(many()) == list(range(20))


def test_a_hook_sees_every_call_and_may_end_it() -> None:
    """Hooks run before the body with function and arguments; CancelledError from one means that the body never runs and nothing is recorded."""
    seen: list[tuple[str, Any]] = []

    def hook(function: Any, arguments: dict[str, Any]) -> None:
        seen.append((function.__name__, arguments["args"]))
        if arguments["args"] == (2,):
            raise CancelledError("stopped")

    store = MemoryStore()
    add_pre_invocation_hook(hook)
    try:
        with session("s", store=store) as recorded:
            assert bare(1) == 2
            with pytest.raises(CancelledError, match="stopped"):
                bare(2)
    finally:
        remove_pre_invocation_hook(hook)
    remove_pre_invocation_hook(hook)
    assert bare(2) == 4
    assert seen == [("bare", (1,)), ("bare", (2,))]
    assert [node.input for node in recorded.nodes()] == [{"x": 1}]


def test_cancelled_error_is_not_swallowed_by_except_exception() -> None:
    """A body that catches Exception is still ended."""
    assert not issubclass(CancelledError, Exception)
