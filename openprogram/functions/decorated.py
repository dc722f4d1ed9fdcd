"""A decorated function: called like the function it wraps, looking like it to `inspect`, `pickle` and help(), and known to models as a tool.

What a subclass adds is what happens around a call. Nothing is computed when a function is decorated that can wait until its schema is asked for.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from openprogram.context.scope import _current_runtime  # pyright: ignore[reportPrivateUsage] - the name is documented
from openprogram.functions.options import ToolOptions
from openprogram.functions.signatures import signature_of

if TYPE_CHECKING:
    from openprogram.functions.tool import Tool

R = TypeVar("R", covariant=True)  # noqa: PLC0105 - the usual name of a return type


class Decorated(Generic[R]):
    """A function with its tool description: ``spec``, ``execute``, ``input_meta``, ``tool_name`` and ``options``."""

    __code__: CodeType
    __defaults__: tuple[Any, ...] | None
    __kwdefaults__: dict[str, Any] | None
    __annotations__: dict[str, Any]  # pyright: ignore[reportIncompatibleVariableOverride] - mirrors the function's own
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    records_itself = False
    """Whether a call of it opens its own node."""

    def __init__(self, fn: Callable[..., Any], options: ToolOptions, input_meta: dict[str, Any], bound: Any = None) -> None:
        functools.update_wrapper(self, fn)
        # With these, `inspect` takes the object for a function, so that iscoroutinefunction() and friends answer for the body.
        for attribute in ("__code__", "__defaults__", "__kwdefaults__"):
            setattr(self, attribute, getattr(fn, attribute, None))
        self.__annotations__ = getattr(fn, "__annotations__", {})
        self._fn = fn
        self._bound = bound
        self.options = options
        self.input_meta = input_meta
        self.tool_name: str = options.name or self.__name__

    @functools.cached_property
    def _own_signature(self) -> inspect.Signature:
        return signature_of(self._fn)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        signature = self._own_signature
        if self._bound is None:
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @property
    def description(self) -> str:
        """What models read about it."""
        return self.options.description or inspect.getdoc(self._fn) or ""

    @property
    def is_unbound_method(self) -> bool:
        """Whether a call needs an instance (or class) first."""
        owner, _, _ = self.__qualname__.rpartition(".")
        if self._bound is not None or not owner or owner.endswith("<locals>"):
            return False
        return next(iter(self._own_signature.parameters), "") in ("self", "cls")

    @functools.cached_property
    def tool(self) -> Tool:
        """The function as a tool."""
        from openprogram.functions.tool import Tool

        return Tool.of_function(self)

    @property
    def spec(self) -> dict[str, Any]:
        """``{"name", "description", "parameters"}``; parameters is the JSON Schema of what a model may pass."""
        return self.tool.spec

    def execute(self, **arguments: Any) -> R:
        """Call with arguments as a model supplied them: checked and converted to the annotated types. Raises ArgumentError."""
        return self.tool.call(self.tool.read_or_raise(arguments), runtime=_current_runtime.get())

    @property
    def record(self) -> dict[str, Any]:
        """What its node says of it."""
        return {"expose": "io", "doc": inspect.getdoc(self._fn), "module": self.__module__, "qualname": self.__qualname__}

    def _bind_to(self, instance: Any) -> Self:
        return type(self)(self._fn, self.options, self.input_meta, instance)

    def __get__(self, instance: Any, owner: type | None = None) -> Self:
        if instance is None:
            return self
        bound = self._bind_to(instance)
        bound.__dict__["_own_signature"] = self._own_signature  # a method is bound anew at each access
        bound.__dict__["_root"] = self
        return bound

    @property
    def root(self) -> Decorated[R]:
        """The function as it was decorated, whatever it is bound to."""
        return self.__dict__.get("_root", self)

    @property
    def bound_to(self) -> Any:
        """The instance or class of a method, None otherwise."""
        return self._bound

    def __reduce__(self) -> Any:
        return self.__qualname__ if self._bound is None else (getattr, (self._bound, self.__name__))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decorated) and self.options is other.options and self._fn is other._fn and self._bound is other._bound and self._same(other)

    def _same(self, other: Any) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash((id(self._fn), id(self._bound)))

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self._fn(*args, **kwargs) if self._bound is None else self._fn(self._bound, *args, **kwargs)


def as_decorated(item: Any) -> Decorated[Any] | None:
    """The item, when it is a decorated function."""
    return cast("Decorated[Any]", item) if isinstance(item, Decorated) else None


class PlainFunction(Decorated[R]):
    """A function decorated with ``@function``: a call of it is a call of the function."""

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__qualname__}>"
