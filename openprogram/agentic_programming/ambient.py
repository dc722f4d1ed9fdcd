"""The runtime of the surroundings, for what is called without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openprogram.context.scope import _current_runtime  # pyright: ignore[reportPrivateUsage] - the name is documented

if TYPE_CHECKING:
    from openprogram.agentic_programming.runtime import Runtime


def runtime_for(caller: str, given: Any = None) -> Runtime:
    """The runtime that was given to ``caller``, else the ambient one. Raises RuntimeError when there is none, TypeError for what is no Runtime."""
    runtime = given if given is not None else _current_runtime.get()
    if runtime is None:
        raise RuntimeError(
            f"{caller} found no runtime: declare a parameter runtime=None on the @agentic_function around it (it fills itself), or pass runtime= explicitly; "
            "in a thread of your own, run the work with contextvars.copy_context().run"
        )
    from openprogram.agentic_programming.runtime import Runtime

    if not isinstance(runtime, Runtime):
        raise TypeError(f"runtime= of {caller} is a Runtime, not {runtime!r:.80}")
    return runtime
