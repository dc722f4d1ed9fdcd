"""``@function``: a plain function as a tool of the shared registry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast, overload

from openprogram.functions import registry
from openprogram.functions.decorated import PlainFunction, as_decorated
from openprogram.functions.options import DEFAULT_CACHE_TTL_S, ToolOptions, Where, check_input, check_runtime_names, tool_options

R = TypeVar("R")


def is_left_out(options: ToolOptions) -> bool:
    """Whether ``available_if`` says no: the function then stays as it was written."""
    if options.available_if is None:
        return False
    try:
        return not options.available_if()
    except Exception:  # the author's predicate; that it fails means no, as documented
        return True


def decorated(fn: Any, decorator: str, again: Callable[[Any], Any], make: Callable[[Callable[..., Any], Where], Any]) -> Any:
    """What both decorators do with what they are given: see through class and static methods, undo a former decoration, refuse what is no function."""
    if isinstance(fn, staticmethod | classmethod):
        method = cast("staticmethod[..., Any] | classmethod[Any, ..., Any]", fn)
        return type(method)(again(method.__func__))
    if inspect.ismethod(fn):
        raise TypeError(f"@{decorator} decorates a function, not the bound method {fn!r}; decorate it in its class")
    if (former := as_decorated(fn)) is not None:
        fn = former.__wrapped__
    if not inspect.isroutine(fn):
        raise TypeError(f"@{decorator} decorates a function or method, not {fn!r}")
    where = Where(decorator, fn.__name__)
    check_runtime_names(where, fn)
    return make(cast("Callable[..., Any]", fn), where)


def _decorate(fn: Any, given: dict[str, Any]) -> Any:
    def make(target: Callable[..., Any], where: Where) -> Any:
        options = tool_options(where, {name: value for name, value in given.items() if name != "input"})
        form = check_input(where, given["input"], target) if given["input"] is not None else {}
        if is_left_out(options):
            return target
        tool = PlainFunction[Any](target, options, form)
        registry.register(tool)
        return tool

    return decorated(fn, "function", lambda inner: _decorate(inner, given), make)


@overload
def function(fn: Callable[..., R], /) -> PlainFunction[R]: ...
@overload
def function(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    input: dict[str, dict[str, Any]] | None = None,
    label: str | None = None,
    toolset: str | Iterable[str] = (),
    unsafe_in: str | Iterable[str] = (),
    check_fn: Callable[..., Any] | None = None,
    requires_env: str | Iterable[str] = (),
    can_use: Callable[[], Any] | None = None,
    max_result_chars: int | None = None,
    persist_full: bool = False,
    head_ratio: float | None = None,
    requires_approval: bool | Callable[..., Any] | None = None,
    cache: bool = False,
    cache_ttl: float = DEFAULT_CACHE_TTL_S,
    timeout: float | None = None,
    available_if: Callable[[], Any] | None = None,
    defer: bool = False,
    register_globally: bool = True,
    not_for: str | Iterable[str] = (),
) -> Callable[[Callable[..., R]], PlainFunction[R]]: ...
def function(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    input: dict[str, dict[str, Any]] | None = None,
    label: str | None = None,
    toolset: str | Iterable[str] = (),
    unsafe_in: str | Iterable[str] = (),
    check_fn: Callable[..., Any] | None = None,
    requires_env: str | Iterable[str] = (),
    can_use: Callable[[], Any] | None = None,
    max_result_chars: int | None = None,
    persist_full: bool = False,
    head_ratio: float | None = None,
    requires_approval: bool | Callable[..., Any] | None = None,
    cache: bool = False,
    cache_ttl: float = DEFAULT_CACHE_TTL_S,
    timeout: float | None = None,
    available_if: Callable[[], Any] | None = None,
    defer: bool = False,
    register_globally: bool = True,
    not_for: str | Iterable[str] = (),
) -> Any:
    """Make a function a tool that models may call, bare or with arguments. Called from Python it is the function it was.

    ``name``, ``description`` and ``parameters`` (a JSON Schema of an object) replace what is read from the function; ``input`` describes its parameters,
    ``label`` is for people, ``not_for`` says what the tool is not for. ``toolset`` are the sets that hold it beside ``full``; ``register_globally=False``
    keeps it out of all. ``available_if`` is asked once, here: a false answer, or an exception, leaves the function undecorated. ``unsafe_in`` are sources
    that never get the tool, ``requires_env`` and ``can_use`` say when it can be used, ``defer`` shows it only after a search. ``check_fn`` and
    ``requires_approval`` judge each call. ``timeout`` (seconds), ``cache`` for ``cache_ttl`` seconds, and ``max_result_chars``, ``head_ratio`` and
    ``persist_full`` are about results. Raises ValueError or TypeError, naming the parameter and what is allowed.
    """
    given = dict(locals())
    target = given.pop("fn")
    if target is None:
        return lambda inner: _decorate(inner, given)  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
    return _decorate(target, given)
