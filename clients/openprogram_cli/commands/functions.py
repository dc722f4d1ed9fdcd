"""``openprogram functions``: what can be run, read from source text only."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openprogram_cli import output
from openprogram_cli.exits import usage
from openprogram_cli.shared import Local, connected

if TYPE_CHECKING:
    from openprogram_protocol.admin import FunctionsResult, LoadError
    from openprogram_protocol.functions import FunctionInfo, FunctionList, ParameterInfo, SourceError

HELP = """List the agentic functions of a workspace, a folder or a file.

They are found in the source text; nothing is imported or executed. A file that cannot be parsed, or that could not be imported by the last run of its
functions, is listed with the line of its error, until it is mended; it hides nothing else.
"""


def register(app: typer.Typer) -> None:
    app.command("functions", help=HELP)(functions)


def functions(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="A file or folder; by default the workspace around this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    local: Local = False,
) -> int:
    if path is not None and not path.exists():
        raise usage(f"there is no file or folder {str(path)!r}")
    if path is not None and path.is_file() and path.suffix != ".py":
        raise usage(f"{str(path)!r} is no Python file (.py)")
    found = scan(path) if local else ask(path)
    if as_json:
        output.write_json(_document(found))
        return 0
    lines = listing(found)
    if lines:
        output.write("\n".join(lines))
    if not found.functions:
        output.complain(f"no agentic functions {'in' if path and path.is_file() else 'below'} {path or found.root}; `openprogram init` writes an example")
    return 0


def scan(path: Path | None) -> FunctionList:
    """The functions of the workspace around the current folder, or those of one file or folder."""
    from openprogram_daemon.discovery.workspace import Workspace, python_files, root_of

    if path is None:
        return Workspace(root_of(Path.cwd())).scan()
    workspace = Workspace(root_of(path))
    if path.is_dir():
        folder = path.resolve()
        return workspace.scan(None if folder == workspace.root else python_files(folder))
    return workspace.scan([path])


def ask(path: Path | None) -> FunctionsResult:
    """What the daemon knows of the same, with what could not be imported. It trusts nothing for that."""
    from openprogram_protocol.admin import FunctionsResult, LoadError
    from openprogram_protocol.paths import workspace_of

    with connected(workspace_of(path or Path.cwd())) as client:
        found = client.functions()
    if path is None or path.resolve() == Path(found.root):
        return found
    place = path.resolve().relative_to(found.root).as_posix()
    chosen = [info for info in found.functions if _is_below(info.file, place)]
    errors = [error for error in found.errors if _is_below(error.file, place)]
    if chosen or errors:
        return FunctionsResult(root=found.root, functions=chosen, errors=errors)
    listed = scan(path)  # what the workspace leaves out, and was asked for by name
    return FunctionsResult(root=listed.root, functions=listed.functions, errors=[LoadError(file=e.file, line=e.line, message=e.message) for e in listed.errors])


def _is_below(file: str, place: str) -> bool:
    return file == place or file.startswith(f"{place}/")


def _document(found: FunctionList | FunctionsResult) -> object:
    import msgspec

    return msgspec.to_builtins(found)


def listing(found: FunctionList | FunctionsResult) -> list[str]:
    """The functions file by file, errors where their file stands."""
    errors: dict[str, list[SourceError | LoadError]] = {}
    for error in found.errors:
        errors.setdefault(error.file, []).append(error)
    by_file = {file: list(group) for file, group in groupby(sorted(found.functions, key=lambda info: (info.file, info.line)), key=lambda info: info.file)}
    lines: list[str] = []
    for file in sorted({*errors, *by_file}):
        lines.append(output.one_line(file, 300))
        for error in errors.get(file, ()):
            serving = "  (the last good version answers)" if getattr(error, "serving", False) else ""
            lines.append(f"  line {error.line}: error: {output.one_line(error.message, 200)}{serving}")
        lines += output.table([(signature(info), f"line {info.line}", output.one_line(info.summary, 80)) for info in by_file.get(file, [])], indent="  ")
    return lines


def signature(info: FunctionInfo) -> str:
    """``name(parameter: type = default) -> type`` without injected and hidden parameters; the name in the code follows where the two differ."""
    shown = ", ".join(_parameter(item) for item in info.parameters if not item.hidden)
    returns = f" -> {info.returns}" if info.returns else ""
    prefix = "async " if info.is_async else ""
    alias = "" if info.name == info.qualname.rpartition(".")[2] else f" [{info.name}]"
    return output.one_line(f"{prefix}{info.qualname}({shown}){returns}{alias}", 120)


def _parameter(item: ParameterInfo) -> str:
    stars = {"varPositional": "*", "varKeyword": "**"}.get(item.kind, "")
    text = f"{stars}{item.name}" + (f": {item.annotation}" if item.annotation else "")
    return text if item.default is None else f"{text} = {item.default}" if item.annotation else f"{text}={item.default}"
