"""``openprogram daemon``: the process that scripts, terminals and editors share."""

from __future__ import annotations

import contextlib
import datetime
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated

import typer

from openprogram_cli import exits, output

if TYPE_CHECKING:
    from openprogram_clients.launch import Daemon
    from openprogram_protocol.admin import StatusResult

NOT_RUNNING = "no daemon is running; `openprogram daemon start` starts one"


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The process that scripts, terminals and editors share. It is started when it is needed and ends when it has been idle.")
    group.command("start", help="Start the daemon unless it runs.")(start)
    group.command("stop", help="Stop the daemon; runs that have not ended are interrupted.")(stop)
    group.command("restart", help="Stop the daemon and start it again.")(restart)
    group.command("status", help="Show what the daemon is doing.")(status)
    group.command("logs", help="Print the end of the daemon's log.")(logs)
    app.add_typer(group, name="daemon", no_args_is_help=True)


@contextlib.contextmanager
def _explained() -> Generator[None]:
    """Errors of the daemon as exit codes."""
    from openprogram_clients.errors import ClientError

    try:
        yield
    except ClientError as error:
        raise exits.Stop(exits.UNAVAILABLE, str(error)) from error


def _running() -> Daemon | None:
    from openprogram_clients.errors import NotRunningError
    from openprogram_clients.launch import open_daemon

    try:
        return open_daemon(start=False, client="openprogram daemon")
    except NotRunningError:
        return None


def start() -> int:
    from openprogram_clients.launch import open_daemon

    with _explained():
        daemon = open_daemon(client="openprogram daemon", on_wait=output.complain)
        daemon.connection.close()
    output.write(f"the daemon runs, pid {daemon.about.pid}")
    return exits.OK


def stop(
    drain: Annotated[bool, typer.Option("--drain", help="Let runs end first.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="With --drain: wait for at most so many seconds.")] = 30.0,
) -> int:
    from openprogram_clients import launch

    with _explained():
        daemon = _running()
        if daemon is None:
            output.complain("no daemon is running")
            return exits.OK
        launch.stop(daemon.connection, daemon.about.pid, drain=drain, timeout_s=timeout)
    output.write(f"the daemon, pid {daemon.about.pid}, has stopped")
    return exits.OK


def restart() -> int:
    stop()
    return start()


def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> int:
    from openprogram_protocol.admin import Nothing

    with _explained():
        daemon = _running()
        if daemon is None:
            raise exits.Stop(exits.UNAVAILABLE, NOT_RUNNING)
        with contextlib.closing(daemon.connection):
            found: StatusResult = daemon.connection.call("openprogram/status", Nothing(), 30.0)
    if as_json:
        output.write_json(found)
        return exits.OK
    if daemon.warning:
        output.complain(daemon.warning)
    _show(found)
    return exits.OK


def _show(found: StatusResult) -> None:
    since = datetime.datetime.fromtimestamp(found.started_at).astimezone()
    rows = [
        ("daemon", f"pid {found.pid}, version {found.version}, protocol {found.protocol}{', stopping' if found.stopping else ''}"),
        ("since", f"{since:%Y-%m-%d %H:%M:%S}"),
        ("home", found.home),
        ("socket", found.socket),
        ("runs", str(found.runs)),
        *(("", f"{one.get('function')}, pid {one.get('pid')}") for one in found.workers if one.get("run")),
        ("clients", str(len(found.clients))),
        *(("", f"{one.get('client') or one.get('role')}, pid {one.get('pid')}") for one in found.clients),
        *(("workspace", f"{one.get('root')}{'' if one.get('trusted') else ', not trusted'}") for one in found.workspaces),
        *(("model", f"{one.get('provider')}, {one.get('users')} in use") for one in found.models),
    ]
    output.write("\n".join(output.table([(name, output.one_line(text, 200)) for name, text in rows])))


def logs(lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="At most so many lines.")] = 50) -> int:
    from openprogram_clients.places import log_file

    path = log_file()
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            tail = deque(file, maxlen=lines)
    except FileNotFoundError:
        output.complain(f"there is no log yet at {path}")
        return exits.OK
    output.write(output.printable("".join(tail)), end="")
    return exits.OK
