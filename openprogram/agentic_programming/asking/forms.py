"""What an author asks for → `Question`s, and a person's answers → Python values of the declared types.

An answer that does not fit is a `Wrong` with a text for the person, who is asked again. A question that cannot be asked is an error before anybody is asked.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from openprogram.agentic_programming.asking.questions import Answer, Choice, Question
from openprogram.agentic_programming.decision.options import TYPE_NAMES
from openprogram.functions.annotations import schema_or_reason
from openprogram.functions.fit import Misfit, definition, fit
from openprogram.functions.schema import Schema, shown_default, to_python

KEYS = ("type", "prompt", "description", "options", "multi", "custom", "default", "required", "placeholder", "multiline", "secret", "check")
_TEXTS = ("prompt", "description", "placeholder")
_FLAGS = ("multi", "custom", "required", "multiline", "secret")
_JSON = (str, int, float, bool, list, dict, type(None))


class Wrong(Exception):
    """An answer that does not fit; the text is for the person."""


class Field:
    """A question and what its answer means."""

    def __init__(self, name: str, spec: Mapping[str, Any], where: str) -> None:
        self._where = where
        self._check_spec(spec)
        self._live = _options(spec.get("options"), where) or _enumerated(spec.get("type"))
        self.annotation = _type(spec, where)
        self._schema, reason = schema_or_reason(self.annotation)
        if reason:
            raise TypeError(f"{where}: {spec.get('type')!r} is no type that a person can fill in ({reason})")
        self._check: Callable[[Any], Any] | None = spec.get("check")
        self._has_default = "default" in spec
        self._default: Any = spec.get("default")
        self.question = self._made(name, spec)

    def _check_spec(self, spec: Mapping[str, Any]) -> None:
        for key, value in spec.items():
            if key not in KEYS:
                raise ValueError(f"{self._where} does not know {key!r}; allowed: {', '.join(KEYS)}")
            if key in _TEXTS and not isinstance(value, str):
                raise TypeError(f"{self._where}: {key} is a text, not {value!r}")
            if key in _FLAGS and not isinstance(value, bool):
                raise TypeError(f"{self._where}: {key} is True or False, not {value!r}")
        if "check" in spec and not callable(spec["check"]):
            raise TypeError(f"{self._where}: check is a function of the answer, not {spec['check']!r}")
        for key in ("multi", "custom"):
            if spec.get(key) and spec.get("options") is None:
                raise ValueError(f"{self._where}: {key} needs options")

    def _made(self, name: str, spec: Mapping[str, Any]) -> Question:
        labels = [Choice(label=label, description=description) for label, (_, description) in self._live.items()]
        if not labels and (allowed := _allowed(self._schema)):
            labels = [Choice(label=str(item)) for item in allowed]
        takes_none = self._has_default or not spec.get("required", True)
        return Question(
            name=name,
            prompt=spec.get("prompt") or spec.get("description") or name,
            schema=self._schema,
            options=tuple(labels),
            multi=spec.get("multi", False),
            custom=spec.get("custom", False),
            required=not takes_none,
            has_default=self._has_default,
            default=self._shown_default(),
            placeholder=spec.get("placeholder", ""),
            multiline=spec.get("multiline", False),
            secret=spec.get("secret", False),
        )

    def _shown_default(self) -> Any:
        if not self._has_default or self._default is None:
            return None
        is_list = isinstance(self._default, list)
        values: list[Any] = list(self._default) if is_list else [self._default]
        labels = [label for value in values for label, (live, _) in self._live.items() if live is value or live == value]
        if labels:
            return labels if is_list else labels[0]
        return shown_default(self._default, self.annotation).get("default")

    def read(self, value: Any) -> Any:
        """An answer in JSON as the declared type. Raises Wrong."""
        if value is None or (isinstance(value, str) and not value.strip()):
            if self._has_default:
                return self._default
            if not self.question.required:
                return None
            raise Wrong("an answer is needed")
        found = self._several(value) if self.question.multi else self._one(value)
        if self._check is not None:
            self._checked(found)
        return found

    def _checked(self, found: Any) -> None:
        assert self._check is not None
        try:
            verdict = self._check(found)
        except ValueError as error:
            raise Wrong(str(error) or "the answer is not allowed") from None
        if isinstance(verdict, str) and verdict:
            raise Wrong(verdict)
        if verdict is False:
            raise Wrong("the answer is not allowed")

    def _several(self, value: Any) -> list[Any]:
        items: list[Any] = list(cast("Iterable[Any]", value)) if isinstance(value, list | tuple | set | frozenset) else [value]
        found: list[Any] = []
        for item in items:
            one = self._one(item)
            if one not in found:
                found.append(one)
        return found

    def _one(self, value: Any) -> Any:
        if self._live:
            return self._picked(value)
        name = self.question.name
        try:
            # An answer that is given from Python may be of the type already.
            return to_python(name, self.annotation, fit(value, self._schema, path=name) if isinstance(value, _JSON) else value)
        except Misfit as misfit:
            raise Wrong(str(misfit)) from None

    def _picked(self, value: Any) -> Any:
        if isinstance(value, str):
            exact = self._live.get(value) or self._live.get(value.strip())
            alike = [live for label, (live, _) in self._live.items() if label.casefold() == value.strip().casefold()]
            if exact is not None or len(alike) == 1:
                return exact[0] if exact is not None else alike[0]
        for live, _ in self._live.values():
            if live is value or (type(live) is type(value) and live == value):
                return live
        if self.question.custom and isinstance(value, str):
            return value.strip()
        raise Wrong(f"{value!r:.80} is none of the options: {', '.join(self._live)}")


def _type(spec: Mapping[str, Any], where: str) -> Any:
    kind = spec.get("type", str)
    if isinstance(kind, str):
        if kind not in TYPE_NAMES:
            raise TypeError(f"{where}: type {kind!r} is unknown; allowed: {', '.join(TYPE_NAMES)}, or a Python type")
        kind = TYPE_NAMES[kind]
    return kind


def _enumerated(kind: Any) -> dict[str, tuple[Any, str]]:
    return _options(kind, "") if isinstance(kind, type) and issubclass(kind, enum.Enum) else {}


def _options(options: Any, where: str) -> dict[str, tuple[Any, str]]:
    """Label → (value, description). An option is a value, ``(label, description)`` or ``{"label", "value", "description"}``."""
    if options is None:
        return {}
    if isinstance(options, str | bytes | Mapping) or not isinstance(options, Iterable):
        raise TypeError(f"{where}: options is a list of the answers to choose from, not {options!r}")
    found: dict[str, tuple[Any, str]] = {}
    for option in cast("Iterable[Any]", options):
        label, value, description = _option(option, where)
        if label in found:
            raise ValueError(f"{where}: two options are called {label!r}")
        found[label] = (value, description)
    if not found:
        raise ValueError(f"{where}: options is empty, so there is nothing to choose")
    return found


def _option(option: Any, where: str) -> tuple[str, Any, str]:
    match option:
        case str() | bool() | int() | float():
            return str(option), option, ""
        case enum.Enum():
            return option.value if isinstance(option.value, str) else option.name, option, ""
        case (label, str() as description):
            return str(label), label, description
        case {"label": str() as label, **rest} if not rest.keys() - {"value", "description"}:
            return label, rest.get("value", label), str(rest.get("description", ""))
        case _:
            raise TypeError(f'{where}: an option is a value, (label, description) or {{"label", "value", "description"}}, not {option!r}')


def _allowed(schema: Schema) -> list[Any]:
    body = definition(schema, schema["$ref"]) if "$ref" in schema else schema
    return list(body.get("enum", [body["const"]] if "const" in body else []))


def field_of(name: str, spec: Any, where: str) -> Field:
    """A field as an author writes it: a type, a description (of a text), a list of options, ``[type]``, or a dict of `KEYS`."""
    if isinstance(spec, Mapping):
        return Field(name, cast("Mapping[str, Any]", spec), where)
    if isinstance(spec, str):
        return Field(name, {"prompt": spec}, where)
    if isinstance(spec, list | tuple):
        items = list(cast("Iterable[Any]", spec))
        is_list = len(items) == 1 and isinstance(items[0], type)
        return Field(name, {"type": list[items[0]]} if is_list else {"options": items}, where)
    return Field(name, {"type": spec}, where)


def fields_of(fields: Any) -> list[Field]:
    """The fields of a form: ``{name: field}``, or a list of dicts with a ``name`` each. Raises TypeError or ValueError."""
    if isinstance(fields, Mapping):
        pairs = list(cast("Mapping[Any, Any]", fields).items())
    elif isinstance(fields, list | tuple):
        pairs = [_named(item) for item in cast("list[Any]", fields)]
    else:
        raise TypeError(f"fields is a dict {{name: field}} or a list of dicts with a 'name' each, not {fields!r:.200}")
    if not pairs:
        raise ValueError("a form needs at least one field")
    for name, _ in pairs:
        if not isinstance(name, str) or not name.strip():
            raise TypeError(f"the name of a field is a text, not {name!r}")
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"two fields are called {next(name for name in names if names.count(name) > 1)!r}")
    return [field_of(name, spec, f"field {name!r}") for name, spec in pairs]


def _named(item: Any) -> tuple[Any, Any]:
    if isinstance(item, str):
        return item, {}
    if not isinstance(item, Mapping) or "name" not in item:
        raise TypeError(f"a field of the list is a dict with a 'name', not {item!r:.200}")
    spec = cast("Mapping[str, Any]", item)
    return spec["name"], {key: value for key, value in spec.items() if key != "name"}


def questions_of(questions: Any) -> tuple[list[Field], list[str] | None]:
    """Several questions at once, and their names when they were given by name: a list of texts or dicts with a ``prompt``, or a dict by name."""
    if isinstance(questions, Mapping):
        pairs = [(str(name), spec) for name, spec in cast("Mapping[Any, Any]", questions).items()]
        names = [name for name, _ in pairs]
    elif isinstance(questions, list | tuple):
        pairs = [(f"q{number}", spec) for number, spec in enumerate(cast("list[Any]", questions), 1)]
        names = None
    else:
        raise TypeError(f"questions is a list of questions or a dict of them by name, not {questions!r:.200}")
    if not pairs:
        raise ValueError("questions is empty, so there is nothing to ask")
    for name, spec in pairs:
        is_dict = isinstance(spec, Mapping) and (names is not None or bool(cast("Mapping[str, Any]", spec).get("prompt")))
        if not isinstance(spec, str) and not is_dict:
            raise TypeError(f"question {name!r} is a text or a dict with a 'prompt', not {spec!r:.200}")
    return [field_of(name, spec, f"question {name!r}") for name, spec in pairs], names


def read_all(fields: list[Field], answer: Answer) -> tuple[dict[str, Any], dict[str, str]]:
    """The values by name, and what is wrong by name."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for field in fields:
        name = field.question.name
        try:
            values[name] = field.read(answer.values.get(name))
        except Wrong as wrong:
            problems[name] = str(wrong)
    return values, problems
