"""``openprogram providers``: which models can be used from here and what the others lack, and keeping a key."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from openprogram_cli import output
from openprogram_cli.exits import usage


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List the providers of models, or keep a key for one.", invoke_without_command=True, rich_markup_mode=None)
    group.callback()(providers)
    group.command("login", help="Keep the key of a provider: typed at a hidden prompt, or read from standard input. It is never shown.")(login)
    group.command("logout", help="Forget the key that was kept for a provider.")(logout)
    app.add_typer(group, name="providers")


def providers(context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> int:
    if context.invoked_subcommand is not None:
        return 0
    from openprogram.providers.detect import check_providers

    found = check_providers()
    if as_json:
        output.write_json({"providers": [{"name": name, **status} for name, status in found.items()]})
        return 0
    rows = [
        (name, "ready" if status["available"] else "not ready", status["model"], status["source"] or status["hint"] or status["url"])
        for name, status in found.items()
    ]
    output.write("\n".join(output.table(rows)))
    return 0


def login(name: Annotated[str, typer.Argument(help="The provider.")]) -> int:
    from openprogram.providers.keys import save_key

    _check(name)
    if sys.stdin.isatty():
        import getpass

        value = getpass.getpass(f"Key for {name} (not shown): ")
    else:
        value = sys.stdin.readline()
    if not value.strip():
        raise usage("no key was given, so nothing was kept")
    output.write(f"the key for {name} is kept in {save_key(name, value.strip())}")
    return 0


def logout(name: Annotated[str, typer.Argument(help="The provider.")]) -> int:
    from openprogram.providers.keys import delete_key

    _check(name)
    output.write(f"the key for {name} is forgotten" if delete_key(name) else f"no key was kept for {name}")
    return 0


def _check(name: str) -> None:
    import difflib

    from openprogram.providers.detect import check_providers

    known = [known for known in check_providers() if known != "local"]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        raise usage(f"there is no provider {name!r} that takes a key; " + (f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"))
