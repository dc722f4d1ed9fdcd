"""Which names in a module mean ``agentic_function``: imports, aliases and re-exports, followed without importing anything.

A name is bound to a *dotted path* (``op`` to ``openprogram``, ``af`` to ``openprogram.agentic_function``); an expression is resolved to the path it stands for.
A path that belongs to another file of the workspace is asked of `Resolver`. A name bound twice keeps the decorator when the other binding is conditional: with
``try: import … except ImportError: def agentic_function(f): …`` a module still defines agentic functions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

DECORATORS = frozenset(
    {
        "openprogram.agentic_function",
        "openprogram.agentic_programming.agentic_function",
        "openprogram.agentic_programming.function.agentic_function",
    }
)


class Binding(NamedTuple):
    """What a name stands for: a dotted path, and the keywords of a decorator that was already called (``tool = agentic_function(expose="full")``)."""

    path: str
    keywords: tuple[ast.keyword, ...] = ()

    @property
    def is_decorator(self) -> bool:
        return self.path in DECORATORS


Resolver = Callable[[str], "Binding | None"]
"""From a dotted path to what it is bound to in another file of the workspace; None for anything else."""


def no_resolver(path: str) -> Binding | None:
    """Follow nothing outside the file."""
    return None


class Scope:
    """The names of a module, class or function body. Lookups go outwards and, as in Python, skip the classes around a function."""

    def __init__(self, module: str, resolver: Resolver, outer: Scope | None = None, *, is_class: bool = False, is_package: bool = False) -> None:
        self.module = module
        self.is_package = is_package
        self.is_class = is_class
        self._resolver = resolver
        self._outer = outer
        self._names: dict[str, Binding | None] = {}
        self._stars: list[str] = []

    def inner(self, *, is_class: bool) -> Scope:
        """The scope of a body inside this one."""
        outer = self
        while not is_class and outer.is_class and outer._outer is not None:
            outer = outer._outer
        return Scope(self.module, self._resolver, outer, is_class=is_class, is_package=self.is_package)

    def lookup(self, name: str) -> Binding | None:
        """What a name is bound to here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._names:
                return scope._names[name]
            if (found := scope._from_stars(name)) is not None:
                return found
            scope = scope._outer
        return None

    def _from_stars(self, name: str) -> Binding | None:
        for path in self._stars:
            if (found := self._follow(Binding(f"{path}.{name}"))) is not None and found.is_decorator:
                return found
        return None

    def resolve(self, expression: ast.expr) -> Binding | None:
        """What an expression stands for: a name, an attribute of one, or a call of the decorator without a function."""
        if isinstance(expression, ast.Call):
            made = self.resolve(expression.func)
            if made is not None and made.is_decorator and not expression.args:
                return Binding(made.path, (*made.keywords, *expression.keywords))
            return None
        attributes: list[str] = []
        while isinstance(expression, ast.Attribute):
            attributes.append(expression.attr)
            expression = expression.value
        if not isinstance(expression, ast.Name) or (found := self.lookup(expression.id)) is None:
            return None
        return self._follow(Binding(".".join([found.path, *reversed(attributes)]), found.keywords))

    def _follow(self, binding: Binding) -> Binding | None:
        if binding.is_decorator or binding.path == "openprogram" or binding.path.startswith("openprogram."):
            return binding
        return self._resolver(binding.path) or binding

    def bind(self, statement: ast.stmt, *, conditional: bool) -> None:
        """Take up the names that one simple statement binds."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                self._set(alias.asname or alias.name.partition(".")[0], Binding(alias.name if alias.asname else alias.name.partition(".")[0]), conditional)
        elif isinstance(statement, ast.ImportFrom):
            self._bind_from(statement, conditional)
        elif isinstance(statement, ast.Assign):
            self._bind_assignment(statement.targets, statement.value, conditional)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._bind_assignment([statement.target], statement.value, conditional)
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._set(statement.name, None, conditional)

    def _bind_from(self, statement: ast.ImportFrom, conditional: bool) -> None:
        base = self.absolute(statement)
        if base is None:
            return
        for alias in statement.names:
            if alias.name == "*":
                self._stars.append(base)
            else:
                self._set(alias.asname or alias.name, Binding(f"{base}.{alias.name}"), conditional)

    def absolute(self, statement: ast.ImportFrom) -> str | None:
        """The module that a ``from … import`` names; None when it leads out of the package."""
        if not statement.level:
            return statement.module
        parts = self.module.split(".")
        keep = len(parts) - statement.level + (1 if self.is_package else 0)
        if keep < 0:
            return None
        return ".".join([*parts[:keep], *([statement.module] if statement.module else [])])

    def _bind_assignment(self, targets: list[ast.expr], value: ast.expr, conditional: bool) -> None:
        binding = self.resolve(value)
        for target in targets:
            if isinstance(target, ast.Name):
                self._set(target.id, binding, conditional)

    def _set(self, name: str, binding: Binding | None, conditional: bool) -> None:
        held = self._names.get(name)
        if held is not None and conditional and (binding is None or not binding.is_decorator):
            return
        self._names[name] = binding

    def mentioned(self, name: str) -> Binding | None:
        """What this scope itself exports under a name, wherever that leads."""
        held = self._names.get(name)
        return self._follow(held) if held is not None else self._from_stars(name)
