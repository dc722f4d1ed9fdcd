"""``@function`` and the registry: what a decorated function keeps, what is refused at decoration, which tools a name or set stands for."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from openprogram import agentic_function, function
from openprogram.functions import isolated, registered, unregister
from openprogram.functions.gates import tools_of
from openprogram.functions.tool import tool_of


@function
def double(x: int, *, by: int = 2) -> int:
    """Multiply."""
    return x * by


class Shop:
    @function
    def price(self, x: int) -> int:
        """Price."""
        return x


BOTH: list[Any] = [agentic_function, function]


def test_a_plain_tool_is_called_like_the_function() -> None:
    """Name, signature, docstring, pickling and methods are the function's own; it has a spec and an execute besides."""
    assert double(3) == double.execute(x="3") == 6
    assert (double.__name__, double.__doc__, str(inspect.signature(double))) == ("double", "Multiply.", "(x: 'int', *, by: 'int' = 2) -> 'int'")
    assert pickle.loads(pickle.dumps(double)) is double
    assert Shop().price(3) == 3
    assert Shop().price.spec["parameters"]["required"] == ["x"]
    assert repr(double) == f"<function {__name__}.double>"


BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"toolset": 3}, TypeError, ["toolset", "3"]),
    ({"toolset": ("full",)}, ValueError, ["toolset 'full'", "another name"]),
    ({"unsafe_in": [1]}, TypeError, ["unsafe_in"]),
    ({"check_fn": "no"}, TypeError, ["check_fn", "'no'"]),
    ({"can_use": 1}, TypeError, ["can_use"]),
    ({"available_if": 1}, TypeError, ["available_if"]),
    ({"requires_env": {"A": 1}}, TypeError, ["requires_env"]),
    ({"max_result_chars": 0}, ValueError, ["max_result_chars", "0"]),
    ({"max_result_chars": "9"}, TypeError, ["max_result_chars", "'9'"]),
    ({"head_ratio": 1.5}, ValueError, ["head_ratio", "0 to 1", "1.5"]),
    ({"requires_approval": "yes"}, TypeError, ["requires_approval", "'yes'"]),
    ({"cache": "yes"}, TypeError, ["cache", "'yes'"]),
    ({"cache_ttl": -1}, ValueError, ["cache_ttl", "-1"]),
    ({"timeout": 0}, ValueError, ["timeout", "0"]),
    ({"timeout": True}, TypeError, ["timeout", "True"]),
    ({"defer": None}, TypeError, ["defer", "None"]),
    ({"name": ""}, ValueError, ["name", "''"]),
    ({"name": 3}, TypeError, ["name", "3"]),
    ({"description": 3}, TypeError, ["description"]),
    ({"label": 3}, TypeError, ["label"]),
    ({"parameters": []}, TypeError, ["parameters"]),
    ({"parameters": {"type": "array"}}, ValueError, ["parameters", "'array'"]),
    ({"parameters": {"properties": {"x": 1}}}, ValueError, ["properties"]),
    ({"parameters": {"required": ["x"]}}, ValueError, ["required", "x"]),
    ({"parameters": {"properties": {"x": {"default": float("nan")}}}}, ValueError, ["JSON"]),
    ({"input": {"z": {}}}, ValueError, ["'z'", "x, by"]),
    ({"input": {"x": {"hint": "?"}}}, ValueError, ["'hint'", "description"]),
    ({"input": {"x": {"options": []}}}, ValueError, ["options", "empty"]),
    ({"input": {"x": {"options": [object()]}}}, ValueError, ["options", "JSON"]),
    ({"input": {"x": {"hidden": "yes"}}}, TypeError, ["hidden", "'yes'"]),
    ({"input": {"x": {"source": "user"}}}, ValueError, ["source", "'user'", "llm, context"]),
    ({"not_for": 3}, TypeError, ["not_for"]),
]


@pytest.mark.parametrize("decorate", BOTH)
@pytest.mark.parametrize(("options", "kind", "named"), BAD)
def test_a_bad_option_is_refused_at_decoration(decorate: Any, options: dict[str, Any], kind: type[Exception], named: list[str]) -> None:
    """f29: the error names the decorator, the function, the parameter and what is allowed; nothing is registered."""

    def target(x: int, by: int = 2) -> None: ...

    with pytest.raises(kind) as caught:
        decorate(**options)(target)
    assert type(caught.value) is kind
    assert all(text in str(caught.value) for text in [*named, f"@{decorate.__name__} on target"])
    assert registered() == []


def test_an_author_s_schema_that_is_none_is_told_when_it_is_asked_for() -> None:
    """It is checked against the meta schema, and the error names tool and place."""

    @function(parameters={"type": "object", "properties": {"x": {"type": "intager"}}})
    def f(x: int) -> None: ...

    with pytest.raises(ValueError, match=r"tool f: .*intager"):
        _ = f.spec

    @function(parameters={"type": "object", "properties": {"y": {}}})
    def g(x: int) -> None: ...

    with pytest.raises(ValueError, match="'y', which is no parameter; it has: x"):
        _ = g.spec


@pytest.mark.parametrize("decorate", BOTH)
@pytest.mark.parametrize("says", [lambda: False, lambda: 1 / 0])
def test_available_if_leaves_the_function_alone(decorate: Any, says: Callable[[], Any]) -> None:
    """A false answer or an exception: the name stays the plain function, and nothing is registered."""

    def target() -> None: ...

    assert decorate(available_if=says)(target) is target
    assert registered() == []
    assert decorate(available_if=lambda: True)(target) is not target
    assert len(registered()) == 1


def test_both_decorators_share_one_registry() -> None:
    """``full`` holds both kinds by name; what is kept out is not there; methods are not."""

    @agentic_function
    def b() -> None: ...

    @function(toolset="web")
    def a() -> None: ...

    @function(register_globally=False)
    def c() -> None: ...

    @agentic_function(as_tool=False)
    def d() -> None: ...

    scope: dict[str, Any] = {"function": function, "__name__": __name__}
    exec("class Held:\n    @function\n    def method(self): ...\n", scope)
    assert registered() == [a, b]
    assert [tool.name for tool in tools_of(None, "full").tools] == ["a", "b"]
    assert [tool.name for tool in tools_of(None, "web").tools] == ["a"]
    assert tools_of(None, "none") == ([], 0, True)
    assert tools_of(None, "default").tools == []
    assert [tool.name for tool in tools_of([c, "b"], ("web",)).tools] == ["c", "b", "a"]
    with pytest.raises(ValueError, match="as_tool=False"):
        tools_of([d], None)
    with pytest.raises(ValueError, match=r"'wbe' is unknown; known: full, none, default, web"):
        tools_of(None, "wbe")
    with pytest.raises(ValueError, match=r"no tool called 'aa'.*did you mean a"):
        tools_of(["aa"], None)
    unregister(a)
    unregister(a)
    assert registered() == [b]
    with isolated():
        assert registered() == []
    assert registered() == [b]


def defined(source: str, module: str = "cell") -> Any:
    """The function f of a source, defined as a notebook's cell or a reload defines it."""
    scope: dict[str, Any] = {"__name__": module, "function": function}
    exec(source, scope)
    return scope.get("f")


def test_the_same_function_defined_again_replaces_itself() -> None:
    """A cell that is run again, also under another tool name; another module's function of that name stays beside it."""
    defined("@function\ndef f(): return 1")
    second = defined("@function\ndef f(): return 2")
    assert registered() == [second]
    third = defined("@function(name='g')\ndef f(): return 3")
    assert registered() == [third]
    other = defined("@function(name='g')\ndef f(): return 4", module="other")
    assert registered() == [third, other]
    with pytest.raises(ValueError, match=r"2 tools are called 'g': cell\.f and other\.f"):
        tools_of(["g"], None)


def test_a_factory_makes_several_tools() -> None:
    """One source, several names: all are registered; the same name again replaces its former self."""

    def make(name: str) -> Any:
        @function(name=name)
        def made() -> str:
            return name

        return made

    first, second = make("one"), make("two")
    again = make("one")
    assert [item.tool_name for item in registered()] == ["one", "two"]
    assert again in registered()
    assert second in registered()
    assert not any(item is first for item in registered())


class Holder:
    spec = {"name": "held", "description": "Held.", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}

    def execute(self, x: int) -> int:
        return x + 1


@pytest.mark.parametrize("item", [Holder(), {"spec": Holder.spec, "execute": Holder().execute}])
def test_a_tool_may_be_a_spec_and_a_function(item: Any) -> None:
    """An object or a dict; arguments are checked against its schema."""
    tool = tool_of(item)
    assert tool.spec == Holder.spec
    assert tool.call(tool.read_or_raise({"x": "2"})) == 3
    with pytest.raises(ValueError, match="held: missing x"):
        tool.read_or_raise({})


@pytest.mark.parametrize("item", [3, None, Holder, {"spec": {}}, {"spec": {"name": "x"}}, {"name": "x"}])
def test_what_is_no_tool_is_refused(item: Any) -> None:
    """A TypeError that shows it and says what is one."""
    with pytest.raises(TypeError, match="a tool"):
        tool_of(item)


@pytest.mark.parametrize("tools", [double, "double", {"spec": Holder.spec, "execute": double}])
def test_tools_is_a_list(tools: Any) -> None:
    """One tool without its list is a mistake that the error mends."""
    with pytest.raises(TypeError, match="list"):
        tools_of(tools, None)
