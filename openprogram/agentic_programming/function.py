"""``@agentic_function``: an ordinary Python function whose calls are nodes of the session DAG and whose runtime parameters fill themselves.

The decorated object is called like the function and looks like it to `inspect`, `pickle` and help(). Each call opens a node before the body runs and closes
it when the body ends, however it ends. What the body's calls see (scope, runtime, system text) is set while the body runs and only then: a generator's
consumer never runs inside the generator's frame.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

import msgspec

from openprogram.agentic_programming.bodies import RUNNERS, Activation, kind_of
from openprogram.context import scope as scopes
from openprogram.context.scope import _current_runtime as _current_runtime  # noqa: PLC0414  # pyright: ignore[reportPrivateUsage] - documented to be found here
from openprogram.functions import registry
from openprogram.functions.decorated import Decorated
from openprogram.functions.options import DEFAULT_CACHE_TTL_S, RUNTIME_NAMES, ToolOptions, Where, check_input, tool_options
from openprogram.functions.plain import decorated, is_left_out

if TYPE_CHECKING:
    from openprogram.agentic_programming.runtime import Runtime

R = TypeVar("R", covariant=True)  # noqa: PLC0105 - the usual name of a return type
T = TypeVar("T")

EXPOSE = ("io", "llm", "full", "hidden")
WORKDIR_MODES = ("optional", "hidden", "required")
RENDER_RANGE = ("callers", "subcalls")
MAX_REENTRY = 5

_hooks: list[Callable[..., Any]] = []


class CancelledError(BaseException):
    """Raised by a pre-invocation hook, or into a running function, to end the call. A BaseException, so that ``except Exception`` does not swallow it."""


def add_pre_invocation_hook(hook: Callable[..., Any]) -> None:
    """Call ``hook(function, arguments)`` at the start of every call; it may raise CancelledError."""
    _hooks.append(hook)


def remove_pre_invocation_hook(hook: Callable[..., Any]) -> None:
    """Take a hook away again; one that is not installed is ignored."""
    if hook in _hooks:
        _hooks.remove(hook)


class Settings(msgspec.Struct, frozen=True):
    """The parameters that only agentic functions have."""

    expose: str = "io"
    render_range: dict[str, int | None] | None = None
    workdir_mode: str | None = None
    system: str | None = None


class AgenticFunction(Decorated[R]):
    """A decorated function. Made by `agentic_function`; ``spec`` is its tool description, ``input_meta`` the metadata of its form."""

    records_itself = True

    def __init__(self, fn: Callable[..., Any], options: ToolOptions, input_meta: dict[str, Any], bound: Any = None, *, settings: Settings) -> None:
        super().__init__(fn, options, input_meta, bound)
        self.settings = settings
        self.expose = settings.expose
        self._kind = kind_of(fn)

    @cached_property
    def _runtime_parameters(self) -> tuple[str, ...]:
        return tuple(name for name in RUNTIME_NAMES if name in self.__signature__.parameters)

    @property
    def render_range(self) -> dict[str, int]:
        """How many entries before and inside a call its prompts show, where that is limited."""
        return {name: count for name, count in (self.settings.render_range or {}).items() if count is not None}

    @property
    def record(self) -> dict[str, Any]:
        return {**super().record, "expose": self.expose}

    def _bind_to(self, instance: Any) -> Self:
        return type(self)(self._fn, self.options, self.input_meta, instance, settings=self.settings)

    def _same(self, other: Any) -> bool:
        return super()._same(other) and self.settings is other.settings

    def __repr__(self) -> str:
        return f"<agentic function {self.__module__}.{self.__qualname__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        if self._bound is not None:
            args = (self._bound, *args)
        return cast("R", RUNNERS[self._kind](self, args, kwargs))

    def activate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Activation, tuple[Any, ...], dict[str, Any]]:
        """Bind, inject, record the entry; the body then runs inside the activation."""
        for hook in tuple(_hooks):
            hook(self, {"args": args, "kwargs": kwargs})
        depth = self._deeper()
        bound = self._bind(args, kwargs)
        runtime, owned = self._inject(bound)
        try:
            opened, scope = self._open(bound)
        except BaseException:
            if owned and runtime is not None:
                runtime.close()
            raise
        return Activation(opened, scope, runtime, owned, self.settings.system, depth), bound.args, bound.kwargs

    def _deeper(self) -> dict[int, int]:
        depth = scopes.depth.get()
        now = depth.get(id(self._fn), 0) + 1
        if now > MAX_REENTRY:
            raise RecursionError(f"{self.tool_name} re-entered itself more than {MAX_REENTRY} times; a model that is asked inside it should not call it again")
        return {**depth, id(self._fn): now}

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        signature = self._own_signature
        missing: dict[str, Any] = dict.fromkeys(name for name in self._runtime_parameters if name not in kwargs)
        try:
            bound = signature.bind_partial(*args, **kwargs)
            missing = {name: None for name in missing if name not in bound.arguments}
            return signature.bind(*args, **kwargs, **missing)
        except TypeError as error:
            raise TypeError(f"{self.tool_name}() {error}") from None

    def _inject(self, bound: inspect.BoundArguments) -> tuple[Runtime | None, bool]:
        names = self._runtime_parameters
        if not names:
            return None, False
        given = next((bound.arguments[name] for name in names if bound.arguments.get(name) is not None), None)
        runtime = given or _current_runtime.get() or scopes.host_runtime.get()
        owned = runtime is None
        if runtime is None:
            from openprogram.agentic_programming.runtime import create_runtime

            runtime = create_runtime()
        for name in names:
            if bound.arguments.get(name) is None:
                bound.arguments[name] = runtime
        return runtime, owned

    def _open(self, bound: inspect.BoundArguments) -> tuple[scopes.OpenCall, scopes.Scope | None]:
        if scopes.current.get() is None:
            return scopes.OpenCall(None, None), None
        from openprogram.store.values import redact, snapshot

        first = next(iter(bound.signature.parameters), "")
        # The instance of a method says nothing in a prompt, and its repr holds an address.
        is_method = self._bound is not None or first in ("self", "cls")
        skipped = {*self._runtime_parameters, *((first,) if is_method else ())}
        arguments = snapshot(redact({name: value for name, value in bound.arguments.items() if name not in skipped}))
        metadata, render_range = self.record, self.render_range
        if self.expose != "hidden":
            return scopes.open_function(self.tool_name, arguments, metadata=metadata, render_range=render_range)
        from openprogram.store.memory import MemoryStore

        return scopes.open_hidden(self.tool_name, arguments, metadata=metadata, render_range=render_range, store=MemoryStore())


def _check(where: Where, settings: Settings) -> None:
    where.one_of("expose", settings.expose, EXPOSE)
    if settings.workdir_mode is not None:
        where.one_of("workdir_mode", settings.workdir_mode, WORKDIR_MODES)
    if settings.system is not None:
        where.expect("system", settings.system, str, "a text")
    if settings.render_range is None:
        return
    where.expect("render_range", settings.render_range, dict, "a dict {'callers': N, 'subcalls': M}")
    for key, count in settings.render_range.items():
        where.one_of("render_range", key, RENDER_RANGE)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < -1):
            raise where.wrong(f"render_range[{key!r}] is a count of nodes, -1 or None for all, not {count!r}")


_SETTINGS = Settings.__struct_fields__


def _decorate(fn: Any, given: dict[str, Any]) -> Any:
    def make(target: Callable[..., Any], where: Where) -> Any:
        settings = Settings(**{name: given[name] for name in _SETTINGS})
        _check(where, settings)
        options = tool_options(where, {name: value for name, value in given.items() if name not in _SETTINGS and name != "input"})
        form = check_input(where, given["input"], target) if given["input"] is not None else {}
        if is_left_out(options):
            return target
        function = AgenticFunction[Any](target, options, form, settings=settings)
        registry.register(function)
        return function

    return decorated(fn, "agentic_function", lambda inner: _decorate(inner, given), make)


@overload
def agentic_function(fn: Callable[..., T], /) -> AgenticFunction[T]: ...
@overload
def agentic_function(
    *,
    expose: str = "io",
    render_range: dict[str, int | None] | None = None,
    input: dict[str, dict[str, Any]] | None = None,
    workdir_mode: str | None = None,
    system: str | None = None,
    as_tool: bool = True,
    name: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
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
) -> Callable[[Callable[..., T]], AgenticFunction[T]]: ...
def agentic_function(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    expose: str = "io",
    render_range: dict[str, int | None] | None = None,
    input: dict[str, dict[str, Any]] | None = None,
    workdir_mode: str | None = None,
    system: str | None = None,
    as_tool: bool = True,
    name: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
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
    """Make a function agentic, bare or with arguments.

    ``expose`` says what others see of a call: ``io`` (the call and its result), ``llm`` (its model exchanges), ``full`` (both), ``hidden`` (nothing is
    written). ``render_range`` = ``{"callers": N, "subcalls": M}`` says how many entries before and inside the call its prompts show. ``input`` describes the
    parameters of its form: ``{parameter: {description, placeholder, multiline, options, hidden}}``. ``system`` is the system text of the calls inside.
    ``as_tool=False`` keeps it from models; the other parameters say how they may use it, as those of `openprogram.functions.function` do. Raises ValueError
    or TypeError, naming the parameter and what is allowed, for anything else.

    Parameters called ``runtime``, ``exec_runtime`` or ``review_runtime`` are filled when the caller passes nothing or None: from the call around this one,
    else by `create_runtime`, closed again when the function returns.
    """
    given = dict(locals())
    target = given.pop("fn")
    if target is None:
        return lambda inner: _decorate(inner, given)  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
    return _decorate(target, given)
