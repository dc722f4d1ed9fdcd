"""How long a file and a function may be."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.project import ROOT, python_files

FILE_LINES = 400
FUNCTION_LINES = 45

Function = ast.FunctionDef | ast.AsyncFunctionDef


def body_lines(function: Function) -> int:
    """The lines of a function without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f(): return 1", 1),
        ("def f(\n    x,\n    y,\n):\n    '''Sum.\n\n    More.\n    '''\n    z = x\n\n    return z + y", 3),
        ("async def f():\n    '''Nothing else.'''", 0),
    ],
)
def test_lines_are_counted_without_signature_and_docstring(source: str, lines: int) -> None:
    """What explains a function does not count against it."""
    function = ast.parse(source).body[0]
    assert isinstance(function, Function)
    assert body_lines(function) == lines


def test_files_are_short() -> None:
    """A file of over 400 lines holds two ideas: split it."""
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES} == {}


def test_functions_are_short() -> None:
    """A function of over 45 lines holds several steps: name them."""
    long: dict[str, int] = {}
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, Function) and body_lines(node) > FUNCTION_LINES:
                long[f"{path.relative_to(ROOT).as_posix()}:{node.lineno} {node.name}"] = body_lines(node)
    assert long == {}
