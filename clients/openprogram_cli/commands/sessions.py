"""``openprogram sessions``: what was recorded, the newest first."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from openprogram_cli import output, stored
from openprogram_cli.shared import Local

if TYPE_CHECKING:
    from openprogram.context.call import SessionInfo


def register(app: typer.Typer) -> None:
    app.command("sessions", help="List the recorded sessions, the one written last first.")(sessions)


def sessions(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    local: Local = False,
) -> int:
    with stored.opened(local=local) as store:
        found = store.sessions(limit=limit) if store else []
    if as_json:
        output.write_json({"sessions": [output.plain(info) for info in found]})
    elif found:
        output.write("\n".join(output.table([_row(info) for info in found])))
    else:
        output.complain("no sessions yet; `openprogram run` records one")
    return 0


def _row(info: SessionInfo) -> tuple[str, ...]:
    when = datetime.datetime.fromtimestamp(info.updated_at).astimezone()
    return info.id, f"{when:%Y-%m-%d %H:%M:%S}", f"{info.nodes} node{'' if info.nodes == 1 else 's'}", output.one_line(info.title, 60)
