"""``openprogram runs``: what the daemon runs and ran, the newest first."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openprogram_cli import output
from openprogram_cli.shared import Local, connected

if TYPE_CHECKING:
    from openprogram_protocol.runs import RunInfo


def register(app: typer.Typer) -> None:
    app.command("runs", help="List the runs of the daemon, the one started last first.")(runs)


def runs(
    active: Annotated[bool, typer.Option("--active", help="Only those that have not ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    local: Local = False,
) -> int:
    if local:
        found = _stored(active, limit)
    else:
        with connected() as client:
            found = client.runs(active=active, limit=limit)
    if as_json:
        output.write_json({"runs": [row_of(info) for info in found]})
    elif found:
        output.write("\n".join(output.table([_line(info) for info in found])))
    else:
        output.complain("no run is active" if active else "no runs yet; `openprogram run` starts one")
    return 0


def row_of(info: RunInfo) -> dict[str, Any]:
    """A run as ``--json`` shows it; times as seconds since the epoch and ISO text, the duration in seconds."""
    row: dict[str, Any] = {"runId": info.run_id, "state": info.state, "function": info.function, "session": info.session, "node": info.node}
    row |= {"workspace": info.workspace, "started": _iso(info.started_at), "ended": _iso(info.ended_at), "duration": _duration(info), "pid": info.pid}
    if info.warning:
        row["warning"] = info.warning
    if info.error:
        row["error"] = {name: info.error.get(name, "") for name in ("type", "message")}
    return row


def _iso(moment: float | None) -> str | None:
    return None if not moment else datetime.datetime.fromtimestamp(moment).astimezone().isoformat(timespec="milliseconds")


def _duration(info: RunInfo) -> float | None:
    if not info.started_at or (info.state == "interrupted" and info.ended_at == info.started_at):  # nobody was there to see it end
        return None
    return round(max((info.ended_at or time.time()) - info.started_at, 0.0), 3)


def _line(info: RunInfo) -> tuple[str, ...]:
    when = datetime.datetime.fromtimestamp(info.started_at).astimezone() if info.started_at else None
    why = output.one_line(f"{info.error.get('type', '')}: {info.error.get('message', '')}", 60) if info.error else ""
    return (
        info.run_id,
        info.state,
        output.one_line(info.function, 60),
        f"{when:%Y-%m-%d %H:%M:%S}" if when else "",
        output.seconds(_duration(info)),
        output.one_line(info.session, 40),
        why,
    )


def _stored(active: bool, limit: int) -> list[RunInfo]:
    """From the store itself, as far as it holds them."""
    from openprogram_protocol.runs import RunInfo

    from openprogram.store.runs import RunTable
    from openprogram.store.sqlite import SqliteStore
    from openprogram_cli import stored

    store = stored.open_existing()
    if store is None:
        return []
    assert isinstance(store, SqliteStore)
    rows = RunTable(store).newest(limit=limit, active=active)
    return [
        RunInfo(
            run_id=row.id,
            function=row.function,
            state=row.state,  # pyright: ignore[reportArgumentType] - the table holds nothing else
            session=row.session,
            node=row.node,
            workspace=row.workspace,
            started_at=row.started,
            ended_at=row.ended,
            error=row.facts.get("error"),
            warning=row.facts.get("warning"),
            pid=row.facts.get("pid"),
        )
        for row in rows
    ]
