"""Source text to `FunctionInfo`: every agentic function of a module, found in its syntax tree. Nothing is imported or executed.

Reading is linear in the length of the file and never raises: a file that does not parse yields one `SourceError`. What the source computes at run time
is marked dynamic, not dropped.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from openprogram_protocol.functions import FunctionInfo, FunctionKind, ParameterInfo, ParameterKind, SourceError

from openprogram_daemon.discovery.names import Resolver, Scope, no_resolver
from openprogram_daemon.discovery.source import Source, parse

INJECTED = ("runtime", "exec_runtime", "review_runtime")
_BODIES = ("body", "handlers", "orelse", "finalbody", "cases")

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """What a file holds. ``scope`` are its top-level names, which other files may import; None when the file did not parse."""

    functions: list[FunctionInfo]
    errors: list[SourceError]
    scope: Scope | None = None


def functions_of(data: bytes | str, file: str, *, module: str = "", is_package: bool = False, resolver: Resolver = no_resolver) -> Module:
    """The agentic functions of a module, in the order of their lines.

    ``data`` is a file's content or a buffer's text and ``file`` the name to report; ``module`` is its dotted name, needed to follow relative imports, and
    ``resolver`` follows names into other files.
    """
    source = parse(data, file)
    if isinstance(source, SourceError):
        return Module([], [source])
    scope = Scope(module, resolver, is_package=is_package)
    found = [_function_info(source, file, place, node, keywords) for place, node, keywords in _decorated(source.tree, scope)]
    return Module(sorted(found, key=lambda info: (info.line, info.qualname)), [], scope)


def top_level_names(data: bytes | str, file: str, *, module: str, is_package: bool, resolver: Resolver) -> Scope | None:
    """Only the top-level names of a module; None when it does not parse."""
    source = parse(data, file)
    if isinstance(source, SourceError):
        return None
    scope = Scope(module, resolver, is_package=is_package)
    for _ in _walk(source.tree.body, _Place(scope, "", False), []):
        pass
    return scope


class _Place(NamedTuple):
    """Where a statement stands: its scope, the prefix of qualified names there, and whether that is a class body."""

    scope: Scope
    prefix: str
    in_class: bool


def _decorated(tree: ast.Module, scope: Scope) -> Iterator[tuple[_Place, Definition, list[ast.keyword]]]:
    # Bodies of functions run later than what surrounds them, so they are read once all names around them are bound.
    later: list[tuple[list[ast.stmt], _Place]] = [(tree.body, _Place(scope, "", False))]
    while later:
        body, place = later.pop()
        yield from _walk(body, place, later)


def _walk(body: list[ast.stmt], place: _Place, later: list[tuple[list[ast.stmt], _Place]]) -> Iterator[tuple[_Place, Definition, list[ast.keyword]]]:
    """The statements of one scope in order. A stack instead of recursion: a chain of a thousand ``elif`` is a thousand levels deep."""
    stack: list[tuple[Iterator[ast.stmt], _Place, bool]] = [(iter(body), place, False)]
    while stack:
        statements, here, conditional = stack[-1]
        statement = next(statements, None)
        if statement is None:
            stack.pop()
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            keywords = _decorator_keywords(statement, here.scope)
            if keywords is not None:
                yield here, statement, keywords
            here.scope.bind(statement, conditional=conditional)
            later.append((statement.body, _Place(here.scope.inner(is_class=False), f"{here.prefix}{statement.name}.<locals>.", False)))
        elif isinstance(statement, ast.ClassDef):
            here.scope.bind(statement, conditional=conditional)
            stack.append((iter(statement.body), _Place(here.scope.inner(is_class=True), f"{here.prefix}{statement.name}.", True), False))
        else:
            here.scope.bind(statement, conditional=conditional)
            branches = [*_branches(statement)]
            certain = isinstance(statement, ast.With | ast.AsyncWith)
            stack += [(iter(branch), here, conditional or not certain) for branch in reversed(branches)]


def _branches(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in _BODIES:
        inner: list[Any] = getattr(statement, field, [])
        if inner and isinstance(inner[0], ast.stmt):
            yield inner
        else:
            yield from (part.body for part in inner)


def _decorator_keywords(node: Definition, scope: Scope) -> list[ast.keyword] | None:
    for decorator in node.decorator_list:
        binding = scope.resolve(decorator)
        if binding is not None and binding.is_decorator:
            return list(binding.keywords)
    return None


def _function_info(source: Source, file: str, place: _Place, node: Definition, keywords: list[ast.keyword]) -> FunctionInfo:
    options, dynamic = _options(keywords)
    kind = _kind(node, place)
    parameters, injected = _parameters(source, node, kind, options.get("input"))
    doc = _clean(ast.get_docstring(node) or "")
    given = options.get("name")
    return FunctionInfo(
        name=given if isinstance(given, str) and given else node.name,
        qualname=place.prefix + node.name,
        file=file,
        start_line=min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]),
        line=node.lineno,
        end_line=node.end_lineno or node.lineno,
        kind=kind,
        is_async=isinstance(node, ast.AsyncFunctionDef),
        summary=" ".join(doc.split("\n\n", 1)[0].split()),
        doc=doc,
        returns=_text(source, node.returns),
        parameters=parameters,
        injected=injected,
        options=options,
        dynamic=dynamic,
    )


def _kind(node: Definition, place: _Place) -> FunctionKind:
    if not place.in_class:
        return "function"
    names = {decorator.id for decorator in node.decorator_list if isinstance(decorator, ast.Name)}
    if "staticmethod" in names:
        return "staticmethod"
    return "classmethod" if "classmethod" in names else "method"


def _parameters(source: Source, node: Definition, kind: FunctionKind, described: Any) -> tuple[list[ParameterInfo], list[str]]:
    rows = _signature(node.args)
    if kind in ("method", "classmethod") and rows and rows[0][1] in ("positionalOnly", "positionalOrKeyword"):
        rows = rows[1:]
    injected = [argument.arg for argument, _, _ in rows if argument.arg in INJECTED]
    table = cast("dict[str, Any]", described) if isinstance(described, dict) else {}
    parameters = [
        _parameter(source, argument, parameter_kind, default, table.get(argument.arg))
        for argument, parameter_kind, default in rows
        if argument.arg not in INJECTED
    ]
    return parameters, injected


def _signature(arguments: ast.arguments) -> list[tuple[ast.arg, ParameterKind, ast.expr | None]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*([None] * (len(positional) - len(arguments.defaults))), *arguments.defaults]
    rows: list[tuple[ast.arg, ParameterKind, ast.expr | None]] = []
    for index, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        rows.append((argument, "positionalOnly" if index < len(arguments.posonlyargs) else "positionalOrKeyword", default))
    if arguments.vararg:
        rows.append((arguments.vararg, "varPositional", None))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        rows.append((argument, "keywordOnly", default))
    if arguments.kwarg:
        rows.append((arguments.kwarg, "varKeyword", None))
    return rows


def _parameter(source: Source, argument: ast.arg, kind: ParameterKind, default: ast.expr | None, described: Any) -> ParameterInfo:
    meta = cast("dict[str, Any]", described) if isinstance(described, dict) else {}
    options = meta.get("options")
    return ParameterInfo(
        name=argument.arg,
        kind=kind,
        required=default is None and kind not in ("varPositional", "varKeyword"),
        annotation=_text(source, argument.annotation),
        default=_text(source, default),
        description=_string(meta.get("description")),
        placeholder=_string(meta.get("placeholder")),
        multiline=meta.get("multiline") is True,
        options=cast("list[Any]", options) if isinstance(options, list) else None,
        hidden=meta.get("hidden") is True or meta.get("source") == "context",
    )


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _text(source: Source, node: ast.expr | None) -> str | None:
    return None if node is None else _clean(source.text_of(node))


def _clean(text: str) -> str:
    """Text that any encoder takes: a lone surrogate becomes its escape."""
    return inspect.cleandoc(text.encode("utf-8", "backslashreplace").decode())


class _Computed(Exception):
    """A value that is not a literal JSON can hold."""


def _options(keywords: list[ast.keyword]) -> tuple[dict[str, Any], list[str]]:
    options: dict[str, Any] = {}
    dynamic: list[str] = []
    for keyword in keywords:
        name = keyword.arg or "**"
        try:
            options[name] = _literal(keyword.value, name, dynamic)
        except (_Computed, RecursionError):
            options.pop(name, None)
            dynamic.append(name)
    return options, dynamic


def _literal(node: ast.expr, path: str, dynamic: list[str]) -> Any:
    """The value of an expression. Inside a dict of string keys only the computed values are left out, each named in ``dynamic``."""
    if not isinstance(node, ast.Dict) or not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys):
        return _plain_literal(node)
    result: dict[str, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        name = str(cast("ast.Constant", key).value)
        try:
            result[_plain(name)] = _literal(value, f"{path}.{name}", dynamic)
        except _Computed:
            dynamic.append(_plain(f"{path}.{name}"))
    return result


def _plain_literal(node: ast.expr) -> Any:
    try:
        return _plain(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError) as error:
        raise _Computed from error


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, set):
        return sorted((_plain(item) for item in cast("set[Any]", value)), key=repr)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        if all(isinstance(key, str) for key, _ in items):
            return {_plain(key): _plain(item) for key, item in items}
    raise _Computed
