"""The daemon as commands use it: connected, and whatever goes wrong with it as an exit code and a line that says what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openprogram_cli import output
from openprogram_cli.exits import FAILED, UNAVAILABLE, USAGE, Stop, usage

if TYPE_CHECKING:
    from openprogram_clients import Client, ClientError, RemoteError

WHOLE_ID = 32
MOST_RUNS = 10_000

Local = Annotated[bool, typer.Option("--local", help="Do it in this process, without the daemon.")]


@contextlib.contextmanager
def connected(root: Path | None = None, *, trust: bool = False) -> Generator[Client]:
    """A client of the daemon, which is started if there is none. Raises Stop."""
    from openprogram_clients import ClientError, DaemonError, connect

    try:
        with connect(root, trust=trust, on_wait=output.complain) as client:
            if client.warning:
                output.complain(client.warning)
            yield client
    except DaemonError as error:
        raise Stop(UNAVAILABLE, f"{error}; `--local` works without a daemon") from error
    except ClientError as error:
        raise stop_of(error) from error


def check_session(session: str | None) -> None:
    """Raises Stop for what cannot be a session's id."""
    if session is None:
        return
    from openprogram.errors import UsageError
    from openprogram.store.ids import check_session_id

    try:
        check_session_id(session)
    except UsageError as error:
        raise usage(f"--session {session!r}: {error}") from error


def warn_of_settings(root: Path) -> None:
    """Name the keys of the workspace's table that nothing reads."""
    from openprogram.settings import settings_of

    if (warning := settings_of(root).warning(root / "pyproject.toml")) is not None:
        output.complain(warning)


def stop_of(error: ClientError) -> Stop:
    """How a command ends that the daemon refused, or lost."""
    from openprogram_clients import RemoteError

    if not isinstance(error, RemoteError):
        return Stop(UNAVAILABLE, str(error))
    return Stop(_code_of(error.code), _message_of(error))


def _code_of(code: int) -> int:
    from openprogram_protocol.errors import ErrorCode

    mistakes = (
        ErrorCode.USAGE,
        ErrorCode.UNKNOWN_TARGET,
        ErrorCode.ARGUMENT,
        ErrorCode.INVALID_PARAMS,
        ErrorCode.UNKNOWN_RUN,
        ErrorCode.UNKNOWN_SESSION,
        ErrorCode.RUN_CONFLICT,
    )
    unavailable = (ErrorCode.NO_MODEL, ErrorCode.CONFIGURATION, ErrorCode.STOPPING, ErrorCode.INTERPRETER, ErrorCode.VERSION, ErrorCode.METHOD_NOT_FOUND)
    return USAGE if code in mistakes else UNAVAILABLE if code in unavailable else FAILED


def _message_of(error: RemoteError) -> str:
    from openprogram_protocol.errors import ErrorCode

    if error.code == ErrorCode.LOAD:
        return import_failed(error.data) or error.message
    return error.message.removeprefix("TimeoutError: ")  # of what is no error of a protocol's, the daemon also says the kind


def import_failed(error: dict[str, object]) -> str:
    """What is said of a module that raised when it was imported, with the user's own traceback; empty for an error without one."""
    trace = str(error.get("trace") or "").rstrip()
    if error.get("type") == "SystemExit":
        return str(error["message"])
    return f"the module raised when it was imported\n{trace}" if trace else ""


def run_named(client: Client, wanted: str) -> str:
    """The run of that id, or of the only id that begins so. Raises Stop (2)."""
    if len(wanted) == WHOLE_ID:
        return wanted
    found = [info.run_id for info in client.runs(limit=MOST_RUNS) if wanted and info.run_id.startswith(wanted)]
    if not found:
        raise usage(f"there is no run {wanted!r}; `openprogram runs` lists them")
    if len(found) > 1:
        raise usage(f"{wanted!r} is the beginning of several runs: {', '.join(found[:6])}")
    return found[0]
