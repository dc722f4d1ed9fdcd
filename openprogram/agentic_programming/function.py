"""``@agentic_function``: an ordinary Python function whose calls are nodes of the session DAG and whose runtime parameters fill themselves.

The decorated object is called like the function and looks like it to `inspect`, `pickle` and help(). Each call opens a node before the body runs and closes it
when the body ends, however it ends. What the body's calls see (scope, runtime, system text) is set while the body runs and only then: a generator's consumer never runs
inside the generator's frame.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from openprogram.context import scope as scopes
from openprogram.context.scope import _current_runtime as _current_runtime  # the documented place to find it
from openprogram.context.scope import system_override

if TYPE_CHECKING:
    from openprogram.agentic_programming.runtime import Runtime

R = TypeVar("R", covariant=True)

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


class _Activation:
    """The surroundings of one body: set while it runs, restored when it pauses or ends.

    Values are restored by setting them, not by ContextVar tokens, since an async generator may be closed in another context than it was started in.
    """

    def __init__(self, opened: scopes.OpenCall, scope: scopes.Scope | None, runtime: Any, owned: bool, system: str | None, depth: dict[int, int]) -> None:
        self.opened = opened
        self.scope = scope
        self.runtime = runtime
        self.owned = owned
        self.system = system
        self.depth = depth
        self._outer: tuple[Any, ...] = ()

    def __enter__(self) -> _Activation:
        self._outer = (scopes.current.get(), _current_runtime.get(), system_override.get(), scopes.depth.get())
        scopes.current.set(self.scope)
        scopes.depth.set(self.depth)
        if self.runtime is not None:
            _current_runtime.set(self.runtime)
        if self.system is not None:
            system_override.set(self.system)
        return self

    def __exit__(self, *_: object) -> None:
        scope, runtime, system, depth = self._outer
        scopes.current.set(scope)
        _current_runtime.set(runtime)
        system_override.set(system)
        scopes.depth.set(depth)

    def completed(self, output: Any) -> None:
        self.opened.finish("completed", output, enters=True)
        self.release()

    def failed(self, error: BaseException) -> None:
        self.opened.fail(error, trace=_trace(error))
        self.release()

    def release(self) -> None:
        if self.owned and self.runtime is not None:
            self.runtime.close()


def _trace(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return "".join(traceback.format_list(frames)[-20:])


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
        self._kind = _kind_of(fn)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(self._fn)
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
        return self if instance is None else AgenticFunction(self._fn, self._options, instance)

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
        return cast("R", _RUNNERS[self._kind](self, args, kwargs))

    def activate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Activation, tuple[Any, ...], dict[str, Any]]:
        """Bind, inject, record the entry; the body then runs inside the activation."""
        for hook in tuple(_hooks):
            hook(self, {"args": args, "kwargs": kwargs})
        depth = self._deeper()
        bound = self._bind(args, kwargs)
        runtime, owned = self._inject(bound)
        try:
            opened, scope = self._open(bound)
        except BaseException:
            if owned:
                runtime.close()
            raise
        return _Activation(opened, scope, runtime, owned, self._options["system"], depth), bound.args, bound.kwargs

    def _deeper(self) -> dict[int, int]:
        depth = scopes.depth.get()
        now = depth.get(id(self._fn), 0) + 1
        if now > MAX_REENTRY:
            raise RecursionError(f"{self.tool_name} re-entered itself more than {MAX_REENTRY} times; a model that is asked inside it should not call it again")
        return {**depth, id(self._fn): now}

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        signature = inspect.signature(self._fn)
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
        runtime = given if given is not None else _current_runtime.get()
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

        skipped = {*self._runtime_parameters, *([next(iter(bound.signature.parameters))] if self._bound is not None else ())}
        arguments = snapshot(redact({name: value for name, value in bound.arguments.items() if name not in skipped}))
        metadata = {"expose": self.expose, "doc": inspect.getdoc(self._fn), "module": self.__module__, "qualname": self.__qualname__}
        render_range = {name: count for name, count in (self._options["render_range"] or {}).items() if count is not None}
        opener = scopes.open_hidden if self.expose == "hidden" else scopes.open_function
        return opener(self.tool_name, arguments, metadata=metadata, render_range=render_range)


def _kind_of(fn: Callable[..., Any]) -> str:
    if inspect.isasyncgenfunction(fn):
        return "async generator"
    if inspect.iscoroutinefunction(fn):
        return "coroutine"
    return "generator" if inspect.isgeneratorfunction(fn) else "plain"


def _run_plain(function: AgenticFunction[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    activation, args, kwargs = function.activate(args, kwargs)
    try:
        with activation:
            result = function.__wrapped__(*args, **kwargs)
    except BaseException as error:
        activation.failed(error)
        raise
    if inspect.iscoroutine(result):
        # A plain wrapper around an async function: the call ends when the coroutine does.
        return _finish_coroutine(activation, result)
    activation.completed(result)
    return result


async def _run_coroutine(function: AgenticFunction[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    activation, args, kwargs = function.activate(args, kwargs)
    return await _finish_coroutine(activation, function.__wrapped__(*args, **kwargs))


async def _finish_coroutine(activation: _Activation, body: Any) -> Any:
    try:
        with activation:
            result = await body
    except BaseException as error:
        activation.failed(error)
        raise
    activation.completed(result)
    return result


def _run_generator(function: AgenticFunction[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    activation, args, kwargs = function.activate(args, kwargs)
    body = function.__wrapped__(*args, **kwargs)
    yielded: list[Any] = []
    step: Callable[[], Any] = functools.partial(next, body)
    try:
        while True:
            with activation:
                try:
                    value = step()
                except StopIteration as stop:
                    result = stop.value
                    break
            yielded.append(value)
            try:
                step = functools.partial(body.send, (yield value))
            except GeneratorExit:
                with activation:
                    body.close()
                raise
            except BaseException as thrown:
                step = functools.partial(body.throw, thrown)
    except BaseException as error:
        activation.failed(error)
        raise
    activation.completed(yielded if result is None else result)
    return result


async def _run_async_generator(function: AgenticFunction[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncIterator[Any]:
    activation, args, kwargs = function.activate(args, kwargs)
    body = function.__wrapped__(*args, **kwargs)
    yielded: list[Any] = []
    step: Callable[[], Any] = body.__anext__
    try:
        while True:
            with activation:
                try:
                    value = await step()
                except StopAsyncIteration:
                    break
            yielded.append(value)
            try:
                step = functools.partial(body.asend, (yield value))
            except GeneratorExit:
                with activation:
                    await body.aclose()
                raise
            except BaseException as thrown:
                step = functools.partial(body.athrow, thrown)
    except BaseException as error:
        activation.failed(error)
        raise
    activation.completed(yielded)


_RUNNERS: dict[str, Callable[..., Any]] = {
    "plain": _run_plain,
    "coroutine": _run_coroutine,
    "generator": _run_generator,
    "async generator": _run_async_generator,
}


def _check_options(name: str, options: dict[str, Any]) -> None:
    _one_of(name, "expose", options["expose"], EXPOSE)
    if options["workdir_mode"] is not None:
        _one_of(name, "workdir_mode", options["workdir_mode"], WORKDIR_MODES)
    for key, count in (options["render_range"] or {}).items():
        _one_of(name, "render_range", key, RENDER_RANGE)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < -1):
            raise ValueError(f"@agentic_function on {name}: render_range[{key!r}] is a count of nodes, -1 or None for all, not {count!r}")
    for parameter, fields in (options["input"] or {}).items():
        if not isinstance(fields, dict):
            raise TypeError(f"@agentic_function on {name}: input[{parameter!r}] is a dict of {', '.join(INPUT_FIELDS)}, not {fields!r}")
        for field in cast("dict[str, Any]", fields):
            _one_of(name, f"input[{parameter!r}]", field, INPUT_FIELDS)


def _one_of(name: str, parameter: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"@agentic_function on {name}: {parameter} does not know {value!r}; allowed: {', '.join(allowed)}")


def _decorate(fn: Any, options: dict[str, Any]) -> Any:
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(cast("Any", _decorate(cast("Any", fn).__func__, options)))
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

    ``expose`` says what others see of a call: ``io`` (the call and its result), ``llm`` (its model exchanges), ``full`` (both), ``hidden`` (nothing is written).
    ``render_range`` = ``{"callers": N, "subcalls": M}`` says how many entries before and inside the call its prompts show. ``input`` describes the parameters of its form:
    ``{parameter: {description, placeholder, multiline, options, hidden}}``. ``system`` is the system text of the calls inside. ``name`` and ``description`` replace the
    function's own. Raises ValueError or TypeError, naming the parameter and what is allowed, for anything else.

    Parameters called ``runtime``, ``exec_runtime`` or ``review_runtime`` are filled when the caller passes nothing or None: from the call around this one, else by
    `create_runtime`, closed again when the function returns.
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
