"""How the body of an agentic function runs: its surroundings are set while it runs and only then, and its node closes however it ends.

There is one runner per kind of body (plain, coroutine, generator, async generator). A generator's surroundings are taken away at each ``yield``, so that its
consumer never runs inside the generator's frame.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

from openprogram.context import scope as scopes
from openprogram.context.scope import _current_runtime, system_override  # pyright: ignore[reportPrivateUsage] - the name is documented


class Function(Protocol):
    """What the runners need of an agentic function."""

    __wrapped__: Callable[..., Any]

    def activate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Activation, tuple[Any, ...], dict[str, Any]]:
        """Open the node; the body's surroundings and its arguments with the runtime filled in."""
        ...


class Activation:
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

    def __enter__(self) -> Activation:
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

    @property
    def is_recorded(self) -> bool:
        """Whether anybody will read what the body returned."""
        return self.opened.node is not None

    def completed(self, output: Any) -> None:
        """The body returned."""
        scopes.settle(lambda: self.opened.finish("completed", output, enters=True))
        self.release()

    def failed(self, error: BaseException) -> None:
        """The body raised."""
        scopes.settle(lambda: self.opened.fail(error, trace=_trace(error)))
        self.release()

    def release(self) -> None:
        """Close the runtime if it was made for this call."""
        if self.owned and self.runtime is not None:
            self.runtime.close()


def _trace(error: BaseException) -> str:
    import traceback

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return "".join(traceback.format_list(frames)[-20:])


def kind_of(fn: Callable[..., Any]) -> str:
    if inspect.isasyncgenfunction(fn):
        return "async generator"
    if inspect.iscoroutinefunction(fn):
        return "coroutine"
    return "generator" if inspect.isgeneratorfunction(fn) else "plain"


def _run_plain(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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


async def _run_coroutine(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    activation, args, kwargs = function.activate(args, kwargs)
    return await _finish_coroutine(activation, function.__wrapped__(*args, **kwargs))


async def _finish_coroutine(activation: Activation, body: Any) -> Any:
    try:
        with activation:
            result = await body
    except BaseException as error:
        activation.failed(error)
        raise
    activation.completed(result)
    return result


def _run_generator(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
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
            if activation.is_recorded:
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


async def _run_async_generator(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncIterator[Any]:
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
            if activation.is_recorded:
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


RUNNERS: dict[str, Callable[..., Any]] = {
    "plain": _run_plain,
    "coroutine": _run_coroutine,
    "generator": _run_generator,
    "async generator": _run_async_generator,
}
