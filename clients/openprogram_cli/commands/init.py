"""``openprogram init``: a first function to run, and the workspace's table. Nothing that exists is overwritten."""

from __future__ import annotations

import tomllib
from pathlib import Path

import typer

from openprogram_cli import output
from openprogram_cli.exits import FAILED, Stop, usage

EXAMPLE = '''"""Two functions to begin with.

    openprogram run hello.py:greet name=Ada
    openprogram run hello.py:answer_or_ask question="What is the capital of France?"
    openprogram dag
"""

from openprogram import agentic_function, decision


@agentic_function(render_range={"callers": 0})  # the model sees the prompt alone, not who calls it with what
def greet(name: str, runtime=None) -> str:
    """Write a greeting of one sentence."""
    return runtime.exec(f"Write a short greeting for {name}.")


def ask_back(what: str) -> str:
    """Ask for what is missing."""
    return f"Please tell me more: {what}"


@agentic_function
def answer_or_ask(question: str, runtime=None) -> str:
    """Let the model choose: answer at once, or ask for what is missing."""
    options = {"answer": ("answer the question", {"text": "the answer"}), "ask_back": ask_back}
    picked = decision.make(f"A user writes: {question}\\nPick what fits.", options)
    return picked["text"] if isinstance(picked, dict) else picked
'''

FILE = "hello.py"
TABLE = """[tool.openprogram]
# Where functions are looked for: files, folders or globs below this file.
functions = ["."]
# The model of this workspace; --model and OPENPROGRAM_MODEL come before it.
# model = "local:smollm2-135m"
"""


def register(app: typer.Typer) -> None:
    text = "Write an example function and a [tool.openprogram] table into this folder; nothing that exists is changed."
    app.command("init", help=text, short_help="Write a first function into this folder.")(init)


def init() -> int:
    folder = Path.cwd()
    try:
        for line in (_write_example(folder), _write_table(folder)):
            output.write(line)
    except OSError as error:
        raise Stop(FAILED, f"cannot write into {folder}: {error.strerror or error}") from error
    output.write(f"Next: openprogram run {FILE}:greet name=Ada")
    return 0


def _write_example(folder: Path) -> str:
    try:
        with (folder / FILE).open("x", encoding="utf-8") as file:
            file.write(EXAMPLE)
    except FileExistsError:
        return f"{FILE} exists and was left as it is"
    return f"wrote {FILE} with the functions greet and answer_or_ask"


def _write_table(folder: Path) -> str:
    path = folder / "pyproject.toml"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TABLE)
    except FileExistsError:
        return _add_table(path)
    return "wrote pyproject.toml with the table [tool.openprogram]"


def _add_table(path: Path) -> str:
    raw = path.read_bytes()
    try:
        tool = tomllib.loads(raw.decode("utf-8-sig").replace("\r\n", "\n")).get("tool", {})
    except ValueError as error:
        raise usage(f"{path} is no valid TOML, so no table was added: {error}") from error
    if isinstance(tool, dict) and "openprogram" in tool:
        return "pyproject.toml has a table [tool.openprogram] and was left as it is"
    newline = b"\r\n" if b"\r\n" in raw else b"\n"
    between = b"" if not raw else newline if raw.endswith(b"\n") else newline * 2
    addition = between + TABLE.encode().replace(b"\n", newline)
    with path.open("ab") as file:  # appending cannot lose what is there
        file.write(addition)
    return "added the table [tool.openprogram] to pyproject.toml"
