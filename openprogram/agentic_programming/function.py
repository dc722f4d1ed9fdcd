"""``@agentic_function``: an ordinary Python function whose calls are nodes of the session DAG and whose runtime parameters fill themselves.

The decorated object is called like the function and looks like it to `inspect`, `pickle` and help(). Each call opens a node before the body runs and closes
it when the body ends, however it ends. What the body's calls see (scope, runtime, system text) is set while the body runs and only then: a generator's
consumer never runs inside the generator's frame.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from openprogram.agentic_programming.bodies import RUNNERS, Activation, kind_of
from openprogram.context import scope as scopes
from openprogram.context.scope import _current_runtime as _current_runtime  # noqa: PLC0414  # pyright: ignore[reportPrivateUsage] - documented to be found here

if TYPE_CHECKING:
    from openprogram.agentic_programming.runtime import Runtime

R = TypeVar("R", covariant=True)  # noqa: PLC0105 - the usual name of a return type

RUNTIME_PARAMETERS = ("runtime", "exec_runtime", "review_runtime")
EXPOSE = ("io", "llm", "full", "hidden")
WORKDIR_MODES = ("optional", "hidden", "required")
RENDER_RANGE = ("callers", "subcalls")
INPUT_FIELDS = ("description", "placeholder", "multiline", "options", "hidden", "source")
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


class AgenticFunction(Generic[R]):
    """A decorated function. Made by `agentic_function`; ``spec`` is its tool description, ``input_meta`` the metadata of its form."""

    __code__: CodeType
    __defaults__: tuple[Any, ...] | None
    __kwdefaults__: dict[str, Any] | None
    __annotations__: dict[str, Any]  # pyright: ignore[reportIncompatibleVariableOverride] - mirrors the function's own
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, fn: Callable[..., Any], options: dict[str, Any], bound: Any = None) -> None:
        functools.update_wrapper(self, fn)
        # With these four, `inspect` takes the object for a function, so that iscoroutinefunction() and friends answer for the body.
        for attribute in ("__code__", "__defaults__", "__kwdefaults__"):
            setattr(self, attribute, getattr(fn, attribute, None))
        self.__annotations__ = getattr(fn, "__annotations__", {})
        self._fn = fn
        self._options = options
        self._bound = bound
        self.input_meta: dict[str, Any] = options["input"] or {}
        self.tool_name: str = options["name"] or self.__name__
        self.expose: str = options["expose"]
        self._kind = kind_of(fn)

    @functools.cached_property
    def _own_signature(self) -> inspect.Signature:
        return inspect.signature(self._fn)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        signature = self._own_signature
        if self._bound is None:
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.cached_property
    def _runtime_parameters(self) -> tuple[str, ...]:
        return tuple(name for name in RUNTIME_PARAMETERS if name in self.__signature__.parameters)

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """``{"name", "description", "parameters"}``; parameters is the JSON Schema of what a model may pass."""
        from openprogram.functions.schema import parameters_schema

        description = self._options["description"] or inspect.getdoc(self._fn) or ""
        return {"name": self.tool_name, "description": description, "parameters": parameters_schema(self)}

    def execute(self, **arguments: Any) -> R:
        """Call with arguments as a model supplied them: checked and converted to the annotated types. Raises ArgumentError."""
        from openprogram.functions.schema import convert_arguments

        return self(**convert_arguments(self, arguments))

    def __get__(self, instance: Any, owner: type | None = None) -> AgenticFunction[R]:
        if instance is None:
            return self
        bound = AgenticFunction[R](self._fn, self._options, instance)
        bound.__dict__["_own_signature"] = self._own_signature  # a method is bound anew at each access
        return bound

    def __reduce__(self) -> Any:
        return self.__qualname__ if self._bound is None else (getattr, (self._bound, self.__name__))

    def __copy__(self) -> AgenticFunction[R]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> AgenticFunction[R]:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgenticFunction) and self._options is other._options and self._fn is other._fn and self._bound is other._bound

    def __hash__(self) -> int:
        return hash((id(self._fn), id(self._bound)))

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
        return Activation(opened, scope, runtime, owned, self._options["system"], depth), bound.args, bound.kwargs

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
        metadata = {"expose": self.expose, "doc": inspect.getdoc(self._fn), "module": self.__module__, "qualname": self.__qualname__}
        given: dict[str, int | None] = self._options["render_range"] or {}
        render_range = {name: count for name, count in given.items() if count is not None}
        if self.expose != "hidden":
            return scopes.open_function(self.tool_name, arguments, metadata=metadata, render_range=render_range)
        from openprogram.store.memory import MemoryStore

        return scopes.open_hidden(self.tool_name, arguments, metadata=metadata, render_range=render_range, store=MemoryStore())


def _check_options(name: str, options: dict[str, Any]) -> None:
    _one_of(name, "expose", options["expose"], EXPOSE)
    if options["workdir_mode"] is not None:
        _one_of(name, "workdir_mode", options["workdir_mode"], WORKDIR_MODES)
    render_range: dict[str, Any] = options["render_range"] or {}
    for key, count in render_range.items():
        _one_of(name, "render_range", key, RENDER_RANGE)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < -1):
            raise ValueError(f"@agentic_function on {name}: render_range[{key!r}] is a count of nodes, -1 or None for all, not {count!r}")
    form: dict[str, Any] = options["input"] or {}
    for parameter, fields in form.items():
        if not isinstance(fields, dict):
            raise TypeError(f"@agentic_function on {name}: input[{parameter!r}] is a dict of {', '.join(INPUT_FIELDS)}, not {fields!r}")
        for field in cast("dict[str, Any]", fields):
            _one_of(name, f"input[{parameter!r}]", field, INPUT_FIELDS)


def _one_of(name: str, parameter: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"@agentic_function on {name}: {parameter} does not know {value!r}; allowed: {', '.join(allowed)}")


def _decorate(fn: Any, options: dict[str, Any]) -> Any:
    if isinstance(fn, staticmethod | classmethod):
        method = cast("staticmethod[..., Any] | classmethod[Any, ..., Any]", fn)
        return type(method)(_decorate(method.__func__, options))
    if isinstance(fn, AgenticFunction):
        fn = fn.__wrapped__
    if not inspect.isroutine(fn):
        raise TypeError(f"@agentic_function decorates a function or method, not {fn!r}")
    _check_options(fn.__name__, options)
    return AgenticFunction[Any](cast("Callable[..., Any]", fn), options)


@overload
def agentic_function(fn: Callable[..., R], /) -> AgenticFunction[R]: ...
@overload
def agentic_function(
    *,
    expose: str = "io",
    render_range: dict[str, int | None] | None = None,
    input: dict[str, dict[str, Any]] | None = None,
    workdir_mode: str | None = None,
    system: str | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Callable[[Callable[..., R]], AgenticFunction[R]]: ...
def agentic_function(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    expose: str = "io",
    render_range: dict[str, int | None] | None = None,
    input: dict[str, dict[str, Any]] | None = None,
    workdir_mode: str | None = None,
    system: str | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Any:
    """Make a function agentic, bare or with arguments.

    ``expose`` says what others see of a call: ``io`` (the call and its result), ``llm`` (its model exchanges), ``full`` (both), ``hidden`` (nothing is
    written). ``render_range`` = ``{"callers": N, "subcalls": M}`` says how many entries before and inside the call its prompts show. ``input`` describes the
    parameters of its form: ``{parameter: {description, placeholder, multiline, options, hidden}}``. ``system`` is the system text of the calls inside.
    ``name`` and ``description`` replace the function's own. Raises ValueError or TypeError, naming the parameter and what is allowed, for anything else.

    Parameters called ``runtime``, ``exec_runtime`` or ``review_runtime`` are filled when the caller passes nothing or None: from the call around this one,
    else by `create_runtime`, closed again when the function returns.
    """
    options = {
        "expose": expose,
        "render_range": render_range,
        "input": input,
        "workdir_mode": workdir_mode,
        "system": system,
        "name": name,
        "description": description,
    }
    if fn is None:
        return lambda target: _decorate(target, options)  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
    return _decorate(fn, options)
