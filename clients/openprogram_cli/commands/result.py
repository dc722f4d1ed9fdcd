"""``openprogram result``: wait for a run, whoever started it, and print what it returned."""

from __future__ import annotations

from typing import Annotated

import typer

from openprogram_cli import outcome
from openprogram_cli.exits import FAILED, Stop
from openprogram_cli.shared import connected, run_named

HELP = """Wait until the run RUN_ID has ended and print its result, as `openprogram run` does.

RUN_ID is an id of `openprogram runs` or its beginning. Ctrl-C ends the waiting, not the run; so does --timeout, with exit code 1.
"""


def register(app: typer.Typer) -> None:
    app.command("result", help=HELP, short_help="Wait for a run and print its result.")(result)


def result(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    timeout: Annotated[str | None, typer.Option(metavar="SECONDS", help="Wait for at most so long.")] = None,
) -> int:
    from openprogram_cli.progress import progress
    from openprogram_cli.remote_run import outcome_of

    seconds = outcome.seconds_of(timeout)
    with connected() as client, progress("still running") as shown:
        run = client.get(run_named(client, run_id))
        try:
            info = run.info(seconds)
        except TimeoutError as error:
            raise Stop(FAILED, str(error)) from error
        shown.quiet()
    return outcome.report(outcome_of(info), as_json=as_json)
