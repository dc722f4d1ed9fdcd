"""Annotation → pydantic adapter and JSON Schema.

Adapters are kept, since building one costs milliseconds. An annotation that pydantic knows no JSON for is told apart from one that admits any value: the first
can never be filled by a model.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from typing import Any, cast

Schema = dict[str, Any]

_DIGITS = r"^[+-]?[0-9]+(\.[0-9]+)?$"


@functools.lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(modern(annotation))


def adapter_for(annotation: Any) -> Any:
    """A pydantic TypeAdapter. Raises what pydantic raises for a type that it has no schema for."""
    try:
        return _adapter(annotation)
    except TypeError:  # an unhashable annotation
        return _adapter.__wrapped__(annotation)


def is_any(annotation: Any) -> bool:
    """Whether the annotation admits every value."""
    return annotation is Any or annotation is object or annotation is inspect.Parameter.empty


def schema_or_reason(annotation: Any) -> tuple[Schema, str]:
    """The JSON Schema (2020-12) of an annotation, or ``{}`` and why JSON cannot carry it. ``{}`` and no reason stand for any value."""
    if is_any(annotation):
        return {}, ""
    from pydantic import PydanticUserError
    from pydantic_core import PydanticOmit

    try:
        try:
            return _json_schema(annotation), ""
        except TypeError:  # an unhashable annotation
            return _json_schema.__wrapped__(annotation), ""
    except (PydanticUserError, PydanticOmit, TypeError, NameError, AttributeError) as error:
        text = str(error)
        return {}, text.splitlines()[0] if text else type(error).__name__


@functools.lru_cache(maxsize=512)
def _json_schema(annotation: Any) -> Schema:
    """The schema, which is shared: nobody changes it in place. What raises is not kept, since a class may be completed later."""
    return cast("Schema", adapter_for(annotation).json_schema(schema_generator=_generator()))


@functools.cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        # A default that JSON cannot hold is left out of the schema, which is all that a model needs.
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

        def decimal_schema(self, schema: Any) -> Any:
            """A number, or its digits as a text: pydantic's own schema admits any text, or one that no grammar can check, depending on its version."""
            shown: Any = super().decimal_schema(schema)
            return {**shown, "anyOf": [{**item, "pattern": _DIGITS} if item.get("type") == "string" else item for item in shown.get("anyOf", ())]}

    return Quiet


def modern(annotation: Any) -> Any:
    """The annotation with `typing.TypedDict` classes, which pydantic refuses before Python 3.12, as types that validate to the same dicts."""
    return annotation if sys.version_info >= (3, 12) else _modern(annotation, ())


def _modern(annotation: Any, within: tuple[Any, ...]) -> Any:
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _as_model(annotation, within)
    arguments = typing.get_args(annotation)
    origin: Any = typing.get_origin(annotation)
    if not arguments or origin is typing.Literal:
        return annotation
    changed = tuple(_modern(item, within) for item in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return annotation
    if origin is typing.Annotated:
        return typing.Annotated[changed]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[changed]  # noqa: UP007 - the members are known at run time only
    return annotation.copy_with(changed) if hasattr(annotation, "copy_with") else origin[changed]


def _absent() -> None:
    """The value of a key that was not given; never read, and as a factory not shown in the schema."""


def _as_model(cls: Any, within: tuple[Any, ...]) -> Any:
    """A TypedDict class as a model whose instances become dicts of what was given. Its fields are numbered, since a model's own names may not be any text."""
    from pydantic import AfterValidator, ConfigDict, Field, create_model

    if cls in within:
        raise TypeError(f"{cls.__name__} refers to itself: declare it with typing_extensions.TypedDict")
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for number, (name, hint) in enumerate(typing.get_type_hints(cls, include_extras=True).items()):
        # A postponed Required or NotRequired is not in __required_keys__, which goes by the class's ``total`` then.
        marked = typing.get_origin(hint) in (typing.Required, typing.NotRequired)
        required = typing.get_origin(hint) is typing.Required if marked else name in cls.__required_keys__
        inner = _modern(typing.get_args(hint)[0] if marked else hint, (*within, cls))
        names[f"f{number}"] = name
        fields[f"f{number}"] = (inner, Field(alias=name) if required else Field(alias=name, default_factory=_absent))
    config = ConfigDict(title=cls.__name__)
    model: Any = create_model(cls.__name__, __config__=config, __module__=cls.__module__, __doc__=cls.__doc__, **fields)

    def as_dict(instance: Any) -> dict[str, Any]:
        return {name: getattr(instance, field) for field, name in names.items() if field in instance.model_fields_set}

    return typing.Annotated[model, AfterValidator(as_dict)]
