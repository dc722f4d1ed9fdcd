"""From a file and a qualified name to the value of the call: the function found, its arguments converted, its result awaited and collected."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from openprogram_protocol.functions import FunctionInfo
from openprogram_protocol.runs import Word

from openprogram.context.scope import is_cancellation
from openprogram.errors import OpenProgramError
from openprogram.functions.schema import convert_arguments
from openprogram.providers.base import ModelEvent, ModelRequest, Profile
from openprogram.tracebacks import users_traceback
from openprogram_daemon.hosts.interrupts import Interrupts


def info_of(function: Any, file: str, qualname: str) -> FunctionInfo:
    """A function that only the import of its file shows, as discovery would describe it; where it stands in the file is not known."""
    inner = getattr(function, "__func__", function)
    doc = inspect.getdoc(inner) or ""
    summary, options = doc.partition("\n")[0], {"expose": inner.expose}
    return FunctionInfo(
        name=inner.tool_name, qualname=qualname, file=file, start_line=1, line=1, end_line=1, summary=summary, doc=doc, options=options, dynamic=["**"]
    )


def arguments(function: Any, words: Sequence[Word], command: str) -> dict[str, Any]:
    """Words as the arguments that `call` takes. Raises ArgumentError."""
    from openprogram.functions.words import read_words

    return {name: argument.as_json for name, argument in read_words(function, words, command=command).items()}


def call(function: Any, arguments: dict[str, Any], interrupts: Interrupts) -> Any:
    """Call with arguments as JSON gave them, and complete what comes back: a coroutine is awaited, the items of a generator become a list.

    Raises ArgumentError for arguments that do not fit, and whatever the function raises.
    """
    keywords = convert_arguments(function, arguments, hidden=True)
    positional: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY or parameter.name not in keywords:
            break
        positional.append(keywords.pop(parameter.name))
    value = function(*positional, **keywords)
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        return _run(value, interrupts)
    return list(value) if inspect.isgenerator(value) else value


def _run(value: Any, interrupts: Interrupts) -> Any:
    import asyncio
    import contextvars

    async def complete() -> Any:
        task = asyncio.current_task()
        assert task is not None
        interrupts.entered_loop(asyncio.get_running_loop(), task)
        if inspect.isasyncgen(value):
            return [item async for item in value]
        return await value

    with asyncio.Runner() as runner:
        return runner.run(complete(), context=contextvars.copy_context())


def error_of(error: BaseException) -> tuple[str, dict[str, Any]]:
    """How a call ended that raised: its status, and ``{type, kinds, message, trace}``. ``kinds`` names the library's classes that the error belongs to."""
    if isinstance(error, SystemExit):
        return "error", {"type": "SystemExit", "kinds": [], "message": f"the function called sys.exit({error.code!r})", "trace": _trace(error)}
    status = "cancelled" if is_cancellation(error) else "error"
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == OpenProgramError.__module__]
    return status, {"type": type(error).__name__, "kinds": kinds, "message": _message(error), "trace": _trace(error)}


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the user's own __str__
        return "<the error cannot be printed>"


def _trace(error: BaseException) -> str:
    try:
        return users_traceback(error)
    except Exception:  # the user's own __repr__, or no stack left
        return ""


def position_of(error: BaseException, root: str) -> tuple[str, int]:
    """The user's file and line that an import failed at: of a syntax error the one it names, else of the innermost frame below ``root``; empty if none."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 1
    found = ("", 0)
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(root + os.sep):
            found = (file, trace.tb_lineno)
        trace = trace.tb_next
    return found


class HostProvider:
    """The daemon's model connections, asked for at first use: a function that needs no model runs where there is none."""

    def __init__(self, connection: Any, model: str) -> None:
        self._connection = connection
        self._model = model
        self._real: Any = None

    def _provider(self) -> Any:
        if self._real is None:
            from openprogram.remote import RemoteProvider

            self._real = RemoteProvider(self._connection, model=self._model)
        return self._real

    @property
    def model(self) -> str:
        """The ``"provider:model"`` that the daemon chose."""
        return self._provider().model

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._provider().name

    def profile(self, model: str) -> Profile:
        """What the model can do."""
        return self._provider().profile(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Events of one reply; whoever stops taking them stops the model."""
        async with aclosing(self._provider().stream(request)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """The connections are the daemon's."""


def make_runtime(connection: Any, model: str) -> Any:
    """The runtime that functions of this worker are given; ``model`` is a ``"provider:model"``, empty for what the daemon chooses."""
    from openprogram.agentic_programming.runtime import Runtime

    return Runtime(provider=HostProvider(connection, model), model=model or "default")
