"""``openprogram cancel``: end a run, whoever started it."""

from __future__ import annotations

from typing import Annotated

import typer

from openprogram_cli import output
from openprogram_cli.shared import connected, run_named

HELP = """Cancel the run RUN_ID: an id of `openprogram runs` or its beginning.

Its function is interrupted; when it has not ended after --grace seconds its process is killed.
"""


def register(app: typer.Typer) -> None:
    app.command("cancel", help=HELP, short_help="Cancel a run.")(cancel)


def cancel(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run.")],
    grace: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long the function may take to end by itself.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    with connected() as client:
        whole = run_named(client, run_id)
        done = client.get(whole).cancel(grace)
    if as_json:
        output.write_json({"runId": whole, "outcome": done.outcome, "state": done.state})
        return 0
    said = {"cancelled": "was cancelled", "killed": "did not react and was killed"}.get(done.outcome, f"had ended before; it is {done.state}")
    output.write(f"the run {whole} {said}")
    return 0
