"""Functions found in source text: which ones, what is told of them, and that no file makes the reading fail."""

from __future__ import annotations

import textwrap
import time

import msgspec
import pytest
from openprogram_daemon.discovery.metadata import Module, functions_of
from openprogram_protocol.functions import FunctionInfo

IMPORT = "from openprogram import agentic_function\n"


def read(source: str) -> Module:
    return functions_of(textwrap.dedent(source), "agents.py", module="agents")


def only(source: str) -> FunctionInfo:
    found = read(source)
    assert not found.errors
    assert len(found.functions) == 1, [info.qualname for info in found.functions]
    return found.functions[0]


WAYS_TO_DECORATE = {
    "bare": "from openprogram import agentic_function\n@agentic_function\ndef f(): ...",
    "called": "from openprogram import agentic_function\n@agentic_function()\ndef f(): ...",
    "alias": "from openprogram import agentic_function as af\n@af\ndef f(): ...",
    "module": "import openprogram\n@openprogram.agentic_function\ndef f(): ...",
    "module alias": "import openprogram as op\n@op.agentic_function(expose='full')\ndef f(): ...",
    "package": "from openprogram.agentic_programming import agentic_function\n@agentic_function\ndef f(): ...",
    "submodule": "from openprogram.agentic_programming.function import agentic_function\n@agentic_function\ndef f(): ...",
    "submodule path": "import openprogram.agentic_programming.function\n@openprogram.agentic_programming.function.agentic_function\ndef f(): ...",
    "submodule alias": "from openprogram import agentic_programming as ap\n@ap.function.agentic_function\ndef f(): ...",
    "star": "from openprogram import *\n@agentic_function\ndef f(): ...",
    "assigned": "import openprogram\naf = openprogram.agentic_function\n@af\ndef f(): ...",
    "assigned call": "import openprogram\ntool = openprogram.agentic_function(expose='full')\n@tool\ndef f(): ...",
    "stacked above": "import functools\nfrom openprogram import agentic_function\n@functools.cache\n@agentic_function\ndef f(): ...",
    "stacked below": "import functools\nfrom openprogram import agentic_function\n@agentic_function\n@functools.cache\ndef f(): ...",
    "in if": "from openprogram import agentic_function\nif True:\n    pass\nelse:\n    @agentic_function\n    def f(): ...",
    "in with": "from openprogram import agentic_function\nwith open('x'):\n    @agentic_function\n    def f(): ...",
    "in except": "from openprogram import agentic_function\ntry:\n    pass\nexcept* ValueError:\n    @agentic_function\n    def f(): ...",
    "in match": "from openprogram import agentic_function\nmatch 1:\n    case 1:\n        @agentic_function\n        def f(): ...",
    "in for else": "from openprogram import agentic_function\nfor _ in ():\n    pass\nelse:\n    @agentic_function\n    def f(): ...",
    "import in try": (
        "try:\n    from openprogram import agentic_function\nexcept ImportError:\n    def agentic_function(f): return f\n@agentic_function\ndef f(): ..."
    ),
    "type checking": "if True:\n    import openprogram as op\n@op.agentic_function\ndef f(): ...",
    "async": "from openprogram import agentic_function\n@agentic_function\nasync def f(): ...",
}


@pytest.mark.parametrize("source", WAYS_TO_DECORATE.values(), ids=WAYS_TO_DECORATE)
def test_every_way_to_write_the_decorator_is_found(source: str) -> None:
    """An agentic function is found however the decorator was imported, aliased, stacked or placed (case p34)."""
    assert only(source).qualname == "f"


NOT_OURS = {
    "another library": "from other import agentic_function\n@agentic_function\ndef f(): ...",
    "own function": "def agentic_function(f): return f\n@agentic_function\ndef f(): ...",
    "rebound": IMPORT + "def agentic_function(f): return f\n@agentic_function\ndef f(): ...",
    "undecorated": IMPORT + "def f(): ...",
    "unknown name": "@agentic_function\ndef f(): ...",
    "another attribute": "import openprogram as op\n@op.session\ndef f(): ...",
    "class scope is not seen in methods": (
        "class C:\n    from openprogram import agentic_function\n    def m(self):\n        @agentic_function\n        def f(): ..."
    ),
}


@pytest.mark.parametrize("source", NOT_OURS.values(), ids=NOT_OURS)
def test_what_is_not_the_decorator_is_not_taken_for_it(source: str) -> None:
    """A decorator of the same name from elsewhere makes no agentic function."""
    found = read(source)
    assert (found.functions, found.errors) == ([], [])


def test_nested_functions_and_methods_have_their_qualified_names() -> None:
    """Qualified names are Python's own, with the kind of each method, and a name imported later in the module counts inside a body."""
    found = read(
        """
        def outer():
            @agentic_function
            def inner(): ...

        from openprogram import agentic_function

        class C:
            class D:
                @agentic_function
                def method(self, x): ...
            @staticmethod
            @agentic_function
            def static(x): ...
            @classmethod
            @agentic_function
            def made(cls, x): ...
        """
    )
    kinds = {info.qualname: (info.kind, [parameter.name for parameter in info.parameters]) for info in found.functions}
    assert kinds == {
        "outer.<locals>.inner": ("function", []),
        "C.D.method": ("method", ["x"]),
        "C.static": ("staticmethod", ["x"]),
        "C.made": ("classmethod", ["x"]),
    }
    assert [info.is_nested for info in found.functions] == [True, False, False, False]


def test_lines_cover_decorators_and_body() -> None:
    """The range runs from the first decorator to the last line of the body."""
    info = only(IMPORT + "\n@agentic_function(\n    expose='io',\n)\ndef f(\n    x,\n):\n    return x\n\n\n")
    assert (info.start_line, info.line, info.end_line) == (3, 6, 9)


def test_parameters_are_told_as_written() -> None:
    """Kinds, annotations and defaults are the source's own text; runtime parameters are named apart."""
    info = only(
        IMPORT
        + "@agentic_function\ndef f(a: str, b: \"list[int]\" = [1,\n    2], /, c='é', *args, "
        + "d: dict[str, int] | None = None, runtime, review_runtime=None, **kw) -> bool: ..."
    )
    rows = [(p.name, p.kind, p.annotation, p.default, p.required) for p in info.parameters]
    assert rows == [
        ("a", "positionalOnly", "str", None, True),
        ("b", "positionalOnly", '"list[int]"', "[1, 2]", False),
        ("c", "positionalOrKeyword", None, "'é'", False),
        ("args", "varPositional", None, None, False),
        ("d", "keywordOnly", "dict[str, int] | None", "None", False),
        ("kw", "varKeyword", None, None, False),
    ]
    assert info.injected == ["runtime", "review_runtime"]
    assert info.returns == "bool"


def test_literals_of_the_decorator_are_values_and_computed_ones_are_named() -> None:
    """What the source computes is marked dynamic at the deepest place, and the literals around it are kept."""
    info = only(
        IMPORT
        + """
CITIES = ["Rome"]
@agentic_function(name="weather", expose=EXPOSE, toolset=("a", "b"), render_range={"callers": 2, "subcalls": -1}, timeout=1e999, **MORE,
    input={"city": {"description": "Where", "options": CITIES, "multiline": True}, "day": {"hidden": True, "placeholder": "Mon"}})
def f(city: str, day: str = "Mon"): ...
"""
    )
    assert info.name == "weather"
    assert info.options["toolset"] == ["a", "b"]
    assert info.options["render_range"] == {"callers": 2, "subcalls": -1}
    assert info.options["input"]["city"] == {"description": "Where", "multiline": True}
    assert info.dynamic == ["expose", "timeout", "**", "input.city.options"]
    city, day = info.parameters
    assert (city.description, city.multiline, city.options, city.hidden) == ("Where", True, None, False)
    assert (day.placeholder, day.hidden) == ("Mon", True)


@pytest.mark.parametrize(
    ("doc", "summary"),
    [
        ('"""One line."""', "One line."),
        ('"""\n    Over two\n    lines.\n\n    More.\n    """', "Over two lines."),
        ("pass", ""),
        ('"""A lone surrogate \\ud800."""', "A lone surrogate \\ud800."),
    ],
)
def test_the_summary_is_the_first_paragraph(doc: str, summary: str) -> None:
    """The summary is the docstring's first paragraph on one line, and everything told can be encoded as JSON."""
    info = only(IMPORT + f"@agentic_function\ndef f():\n    {doc}\n")
    assert info.summary == summary
    assert b'"startLine":2' in msgspec.json.encode(info)


BROKEN: dict[str, tuple[bytes, int, str]] = {
    "syntax": (b"x = 1\ndef f(:\n", 2, "invalid syntax"),
    "indentation": (b"def f():\nx\n", 2, "expected an indented block"),
    "null byte": (b"x = 1\n\ny = '\0'\n", 3, "null byte"),
    "not utf-8": (b"x = 1\ny = 2\nz = '\xe9'\n", 3, "not valid utf-8"),
    "not utf-8 in line 1": (b"x = '\xe9'\n", 1, "not valid utf-8"),
    "unknown coding": (b"# coding: klingon\n", 1, "klingon"),
    "no text coding": (b"# coding: hex\nx = 1\n", 1, "hex"),
    "utf-16": ("x = 1\n".encode("utf-16"), 1, "UTF-16"),
    "utf-16 without mark": ("x = 1\n".encode("utf-16-le"), 1, "null byte"),
    "brackets": (b"(" * 5000, 1, ""),
    "operators": (b"x = " + b"-" * 200_000 + b"1", 1, ""),
    "chain": (b"x = 1" + b"+1" * 200_000, 1, ""),
    "attributes": (b"x = a" + b".a" * 200_000, 1, ""),
    "too large": (b"#" * (10 * 1024 * 1024 + 1), 1, "10 MiB"),
    "string": (b"x = '", 1, "string"),
}


@pytest.mark.parametrize(("data", "line", "message"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_does_not_parse_is_one_error_with_its_line(data: bytes, line: int, message: str) -> None:
    """Whatever is in a file, reading it gives one error with the line, never an exception."""
    found = functions_of(data, "broken.py")
    assert found.functions == []
    assert [(error.file, error.line) for error in found.errors] == [("broken.py", line)]
    assert message in found.errors[0].message


READABLE: dict[str, bytes] = {
    "byte order mark": b"\xef\xbb\xbf" + IMPORT.encode() + b"@agentic_function\ndef f(): ...",
    "latin-1": b"# -*- coding: latin-1 -*-\nx = '\xe9'\n" + IMPORT.encode() + b"@agentic_function\ndef f(): ...",
    "carriage returns": IMPORT.replace("\n", "\r\n").encode() + b"@agentic_function\r\ndef f(): ...\r\n",
    "old mac": (IMPORT + "@agentic_function\ndef f(): ...\n").replace("\n", "\r").encode(),
    "form feed": IMPORT.encode() + b"\x0c\n@agentic_function\ndef f(): ...",
    "invalid escape": IMPORT.encode() + b"x = '\\d'\n@agentic_function\ndef f(): ...",
    "unicode name": IMPORT.encode() + "été = 1\n@agentic_function\ndef f(): ...".encode(),
}


@pytest.mark.parametrize("data", READABLE.values(), ids=READABLE)
def test_encodings_and_line_ends_that_python_reads_are_read(data: bytes) -> None:
    """Byte order marks, declared encodings, every kind of line end and harmless warnings do not hide a function."""
    assert [info.qualname for info in functions_of(data, "a.py").functions] == ["f"]


def test_positions_count_bytes_and_lines_as_python_does() -> None:
    """Text after an astral character or a line that only ``str.splitlines`` would split is cut at the right place."""
    source = IMPORT + "x = '\u2028\x0c'\n@agentic_function\ndef f(a='😀', b: 'é' = \"z\"): ...\n"
    assert [(p.annotation, p.default) for p in only(source).parameters] == [(None, "'😀'"), ("'é'", '"z"')]


def test_a_very_long_chain_of_branches_is_walked() -> None:
    """A chain of elif, which is one level deeper for each branch, is read to its end."""
    chain = "if x == 0:\n    pass\n" + "".join(f"elif x == {number}:\n    pass\n" for number in range(1, 900))
    source = IMPORT + chain + "else:\n    @agentic_function\n    def f(): ...\n"
    assert only(source).qualname == "f"


def test_reading_is_linear_in_the_number_of_functions() -> None:
    """Eight times the functions take about eight times as long; the limit leaves room for a busy machine but none for quadratic work."""

    def seconds(count: int) -> float:
        source = IMPORT + "".join(f"@agentic_function\ndef f{number}(a: int = {number}, b: str = 'x'): ...\n" for number in range(count))
        started = time.perf_counter()
        assert len(functions_of(source, "big.py").functions) == count
        return time.perf_counter() - started

    small = min(seconds(250) for _ in range(3))
    assert seconds(2000) < max(small * 8 * 4, 0.5)
