"""``openprogram run``: call one agentic function and print what it returns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openprogram.settings import settings_of
from openprogram_cli import outcome, values
from openprogram_cli.exits import UNAVAILABLE, Stop, usage
from openprogram_cli.shared import Local, check_session, warn_of_settings

if TYPE_CHECKING:
    from openprogram_protocol.runs import Word

    from openprogram_cli.outcome import Outcome

HELP = """Call the agentic function TARGET and print its result.

TARGET is package.module:function, path/file.py:function, or the bare name of a function that is unique in this workspace. Running it trusts its workspace:
the code of that folder is imported and run with your rights.

Each argument is written name=value and read by the type the function declares: text is taken exactly, numbers and true/false as such, lists, dicts and
records as JSON. name=@FILE reads a UTF-8 file, name=@- standard input, name=@@text is text that begins with @.

The function runs in the daemon, which is started if there is none: always the newest saved code, or the last that could be loaded, and then a line on
stderr says so. What it prints (on either stream) arrives on stdout as it is printed. Ctrl-C cancels the run, a second one leaves at once; a run whose command
is killed goes on, and `openprogram result` reads its result.

Text is printed as it is, None as nothing, everything else as JSON. With --json the output is one JSON document {"result", "session", "node", "runId"} (and
"error" for a run that failed), and what the function prints goes to stderr. A function that calls sys.exit did not return: the run failed.
"""


def register(app: typer.Typer) -> None:
    app.command("run", help=HELP)(run)


def run(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The function.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Its arguments.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    session: Annotated[str | None, typer.Option(help="Record in this session; one that exists goes on.")] = None,
    model: Annotated[str | None, typer.Option(help="The model, as provider:model.")] = None,
    workdir: Annotated[Path | None, typer.Option(help="Run in this folder.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="SECONDS", help="End the run after this many seconds.")] = None,
    local: Local = False,
) -> int:
    seconds = outcome.seconds_of(timeout)
    check_session(session)
    folder = Path.cwd()
    if workdir is not None and not workdir.is_dir():
        raise usage(f"--workdir {str(workdir)!r} is no folder")
    words = values.parse_words(arguments or [])
    with outcome.stdout_for(as_json):
        if local:
            found = _run_here(target, words, folder, session=session, model=model, workdir=workdir, seconds=seconds)
        else:
            from openprogram_cli.remote_run import Asked, run_there

            found = run_there(Asked(target, words, session, model, workdir, seconds), folder)
    return outcome.report(found, as_json=as_json)


def _run_here(target: str, words: list[Word], folder: Path, *, session: str | None, model: str | None, workdir: Path | None, seconds: float | None) -> Outcome:
    from openprogram_cli import targets

    if model is not None:
        os.environ["OPENPROGRAM_MODEL"] = model
    found = targets.resolve(target, folder)
    given = values.arguments_for(found.function, words, command=f"openprogram run {target}")
    warn_of_settings(found.root)
    _use_model_of(found.root)
    if workdir is not None:
        os.chdir(workdir)
    return _call(found, given, session, seconds)


def _call(found: Any, given: dict[str, Any], session: str | None, seconds: float | None) -> Outcome:
    from openprogram_cli import running

    positional, keywords = values.bind(found.function, given)
    recorded = running.open_session(session, found.function.tool_name)
    name = found.function.tool_name
    deadline = running.Deadline(seconds)
    return running.execute(lambda: found.function(*positional, **keywords), session=recorded, deadline=deadline, what="still running", name=name)


def _use_model_of(root: Path) -> None:
    """Running a function trusts its workspace, so that the model which that names is used unless the environment names one."""
    names = ("OPENPROGRAM_MODEL", "OPENPROGRAM_PROVIDER", "AGENTIC_MODEL", "AGENTIC_PROVIDER")
    if any(os.environ.get(name) for name in names):
        return
    settings = settings_of(root)
    if settings.problem is not None:
        raise Stop(UNAVAILABLE, f"{root / 'pyproject.toml'}: {settings.problem}")
    if settings.model:
        os.environ["OPENPROGRAM_MODEL"] = settings.model
