"""A function as a model may call it: a name, a description, a JSON Schema of its arguments, and the way from a model's arguments to a call.

Whatever an author passes for a tool (a decorated function, any callable, ``{"spec", "execute"}``) becomes a `Tool`; whoever offers or runs one sees nothing
else.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from openprogram.errors import ArgumentError
from openprogram.functions.decorated import Decorated, as_decorated
from openprogram.functions.fit import Misfit, fit
from openprogram.functions.options import ToolOptions, Where, check_parameters
from openprogram.functions.schema import Further, Parameter, Schema, fitted_values, further_of, object_schema, parameters_of, placed

_WIRE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class Arguments:
    """A model's arguments: ``as_json`` as they are shown and stored, ``values`` as the annotated types."""

    def __init__(self, as_json: dict[str, Any], values: dict[str, Any]) -> None:
        self.as_json = as_json
        self.values = values


class Tool:
    """One tool. ``function`` is what a call runs; ``options`` its registration parameters."""

    def __init__(
        self,
        name: str,
        description: str,
        function: Callable[..., Any],
        *,
        options: ToolOptions | None = None,
        parameters: tuple[Parameter, ...] | None = None,
        further: Further | None = None,
        schema: Schema | None = None,
        decorated: Decorated[Any] | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.function = function
        self.options = options or ToolOptions()
        self.parameters = parameters
        self.further = further
        self.decorated = decorated
        self._schema = schema
        self.is_checked = schema is not None

    @classmethod
    def of_function(cls, function: Callable[..., Any]) -> Tool:
        """Any callable. Raises TypeError or ValueError for one that has no name or signature."""
        inner = _innermost(function)
        decorated = as_decorated(inner)
        parameters = parameters_of(function)
        if decorated is not None and decorated.is_unbound_method:
            parameters = parameters[1:]
        options = decorated.options if decorated else ToolOptions()
        described = decorated.description if decorated else _described(inner)
        schema = options.parameters
        further = further_of(function)
        if schema is not None and decorated is not None:
            _check_override(decorated, schema, parameters, further)
        name = _name_of(function)
        return cls(name, described, function, options=options, parameters=parameters, further=further, schema=schema, decorated=decorated)

    @classmethod
    def of_spec(cls, spec: Any, execute: Any) -> Tool:
        """What an author wrote as ``{"name", "description", "parameters"}`` and a function. Raises TypeError or ValueError."""
        if not isinstance(spec, Mapping) or not isinstance(cast("Mapping[str, Any]", spec).get("name"), str) or not callable(execute):
            raise TypeError(f'a tool written as a dict is {{"spec": {{"name", "description", "parameters"}}, "execute": function}}, not spec={spec!r:.200}')
        fields = cast("Mapping[str, Any]", spec)
        schema: Schema = fields.get("parameters") or {"type": "object", "properties": {}}
        check_parameters(Where("tool", fields["name"]), schema)
        return cls(fields["name"], str(fields.get("description") or ""), execute, schema=schema)

    @functools.cached_property
    def parameters_schema(self) -> Schema:
        """The JSON Schema (2020-12, strict JSON) of the arguments. Raises ValueError for an author's schema that is none."""
        if self._schema is None:
            return object_schema(self.parameters or (), self.further)
        import jsonschema

        try:
            jsonschema.Draft202012Validator.check_schema(self._schema)
        except jsonschema.SchemaError as error:
            raise ValueError(f"tool {self.name}: its parameters are no JSON Schema: {error.message} at {error.json_path}") from None
        return {"type": "object", **self._schema}

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """``{"name", "description", "parameters"}``; the description says what the tool is not for."""
        lines = [self.description, *(f"Not for: {text}" for text in self.options.not_for)]
        return {"name": self.name, "description": "\n".join(line for line in lines if line), "parameters": self.parameters_schema}

    @functools.cached_property
    def wire_name(self) -> str:
        """The name as every provider takes it: up to 64 letters, digits, ``_`` and ``-``. Any other name gets a form with a hash, always the same."""
        if _WIRE_NAME.fullmatch(self.name):
            return self.name
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", self.name).strip("_") or "tool"
        digest = hashlib.sha256(self.name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{plain[:55]}_{digest}"

    @property
    def record(self) -> dict[str, Any]:
        """What the node of a call says of the tool."""
        if self.decorated is not None:
            return self.decorated.record
        return {"expose": "io", "doc": self.description or None}

    @property
    def unfillable(self) -> str:
        """Why no model can call it: the parameter that JSON cannot carry, or that nobody fills; empty when it can be called."""
        for item in self.parameters or ():
            if item.unfillable and not self.is_checked:
                return f"no model can supply {item.name!r}, a {item.annotation!r} ({item.unfillable}); give it a default or another type"
            if item.required and item.source == "context":
                return f"nobody fills {item.name!r}, which models do not see; give it a default"
        return ""

    def read(self, arguments: Mapping[str, Any]) -> Arguments:
        """A model's arguments, fitted to the schema and converted. Raises Misfit."""
        schema = self.parameters_schema
        if self.parameters is None:
            fitted = cast("dict[str, Any]", fit(dict(arguments), schema))
            values = dict(fitted)
        else:
            fitted, values = fitted_values(arguments, schema, self.parameters, self.further)
        if self.is_checked:
            self._validate(fitted)
        return Arguments(fitted, values)

    def _validate(self, fitted: dict[str, Any]) -> None:
        """What `fit` does not look at in a schema that an author wrote: bounds, patterns, conditions."""
        import jsonschema

        validator = jsonschema.Draft202012Validator(self.parameters_schema)
        error = next(iter(validator.iter_errors(fitted)), None)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType]
        if error is not None:
            raise Misfit("bad_args", error.json_path, f"{error.json_path} is not valid: {error.message[:200]}")

    def read_or_raise(self, arguments: Mapping[str, Any]) -> Arguments:
        """`read` for callers who are no model. Raises ArgumentError naming the parameter."""
        try:
            return self.read(arguments)
        except Misfit as error:
            raise ArgumentError(f"{self.name}: {error}", parameter=error.path.removeprefix("$.")) from None

    def call(self, arguments: Arguments, *, runtime: Any = None) -> Any:
        """Run it: parameters for a runtime are filled with ``runtime``. What comes back may be an awaitable or a generator."""
        parameters = self.parameters or ()
        values = dict(arguments.values)
        if runtime is not None:
            values |= {item.name: runtime for item in parameters if item.source == "runtime"}
        positional, keywords = placed(parameters, values)
        return self.function(*positional, **keywords)


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = cast("Any", function.func)
    return function


def _name_of(function: Any) -> str:
    inner = _innermost(function)
    name = getattr(inner, "tool_name", None) or getattr(inner, "__name__", None)
    if name == "<lambda>":
        raise ValueError(f"{inner!r} has no name that a model could say; give it one: function(name=…)(lambda …)")
    return name or type(inner).__name__


def _described(inner: Any) -> str:
    if hasattr(inner, "__name__"):
        return inspect.getdoc(inner) or ""
    return inspect.getdoc(inner.__call__) or inspect.getdoc(inner) or ""


def _check_override(decorated: Decorated[Any], schema: Schema, parameters: tuple[Parameter, ...], further: Further | None) -> None:
    known = [item.name for item in parameters if item.source != "runtime"]
    unknown = [name for name in schema.get("properties", {}) if name not in known]
    if unknown and further is None:
        raise ValueError(f"{decorated.tool_name}: parameters= describes {unknown[0]!r}, which is no parameter; it has: {', '.join(known) or 'none'}")


def tool_of(item: Any) -> Tool:
    """A tool as an author passes it: a decorated function, any callable, ``{"spec", "execute"}`` or an object with these. Raises TypeError or ValueError."""
    if isinstance(item, Tool):
        return item
    if (function := as_decorated(_innermost(item))) is not None:
        _check_usable(function)
        return function.tool if function is item else Tool.of_function(item)
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, Any]", item)
        return Tool.of_spec(fields.get("spec"), fields.get("execute"))
    if not inspect.isclass(item) and hasattr(item, "spec") and hasattr(item, "execute"):
        return Tool.of_spec(item.spec, item.execute)
    if inspect.isclass(item) or not callable(item):
        allowed = 'a function, the name of a registered one, {"spec": …, "execute": …} or an object with .spec and .execute'
        raise TypeError(f"a tool is {allowed}, not {item!r:.200}")
    return Tool.of_function(item)


def _check_usable(function: Decorated[Any]) -> None:
    if not function.options.as_tool:
        raise ValueError(f"{function.tool_name} was decorated with as_tool=False: it is called from Python only and cannot be a tool")
    if function.is_unbound_method:
        raise ValueError(f"{function.__qualname__} is a method and needs its object: pass it bound, as in tools=[thing.{function.__name__}]")
