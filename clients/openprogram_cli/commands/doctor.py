"""``openprogram doctor``: is everything there that a run needs, and how to mend what is not."""

from __future__ import annotations

from typing import Annotated

import typer

from openprogram_cli import output


def register(app: typer.Typer) -> None:
    text = "Check what a run needs: Python, store, model, keys (by name only). Exit code 1 when something is broken."
    app.command("doctor", help=text, short_help="Check what a run needs and say how to mend it.")(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> int:
    from openprogram_cli.checks import document, run_all

    checks = run_all()
    report = document(checks)
    if as_json:
        output.write_json(report)
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            fix = f"  (mend: {check.fix})" if check.fix else ""
            output.write(f"{check.state:<7}  {check.name:<{width}}  {output.one_line(check.detail, 400)}{fix}")
    return 0 if report["ok"] else 1
