"""From a command line to an exit code.

A subcommand is a module in `openprogram_cli.commands` of the same name with a ``register(app)``; the file is all it takes to add one. Only the module of the
subcommand that was asked for is imported.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

from openprogram_cli import commands, exits, output, streams


def command_names() -> list[str]:
    """Every subcommand."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__) if not module.name.startswith("_"))


def version() -> str:
    """The installed version of the distribution."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("openprogram")
    except PackageNotFoundError:
        return "unknown (run from a source folder without an installation)"


def build(names: Sequence[str]) -> Any:
    """The click command tree of the given subcommands."""
    import typer

    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit codes: 0 done, 1 a run that failed, 2 usage, 3 no model or no daemon, 130 interrupted.",
    )

    def root(show_version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
        """Run agentic functions, look at what happened, and manage models."""

    app.callback()(root)
    for name in names:
        importlib.import_module(f"openprogram_cli.commands.{name}").register(app)
    return typer.main.get_command(app)


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error ends here as a line or two on stderr."""
    streams.prepare()
    try:
        code = _dispatch(list(arguments))
    except KeyboardInterrupt:
        output.complain("interrupted")
        code = exits.INTERRUPTED
    except exits.Stop as stop:
        if stop.message:
            output.complain(stop.message)
        code = stop.code
    except BrokenPipeError:
        if not streams.is_broken():
            raise
        code = exits.OK
    return _flushed(code)


def _flushed(code: int) -> int:
    """The exit code, once everything is written. A reader that went away is no failure, a full disk is."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        streams.discard_stdout()
    except OSError as error:
        if code == exits.OK:
            output.complain(f"the output could not be written: {error.strerror or error}")
        streams.discard_stdout()
        return code or exits.FAILED
    return code


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        output.write(f"openprogram {version()}")
        return exits.OK
    known = command_names()
    chosen = [arguments[0]] if arguments and arguments[0] in known else known
    command = build(chosen)
    try:
        result = command.main(args=arguments or ["--help"], prog_name="openprogram", standalone_mode=False)
    except exits.Stop:
        raise
    except Exception as error:
        raise _as_stop(error) or _as_usage(error, arguments) from error
    if not arguments:
        return exits.USAGE
    return result if isinstance(result, int) else exits.OK


def _as_stop(error: Exception) -> exits.Stop | None:
    """The library's own errors; it is loaded if one of them was raised, and costs time to load."""
    if "openprogram.errors" not in sys.modules:
        return None
    from openprogram.errors import ConfigurationError, OpenProgramError, UsageError

    if not isinstance(error, OpenProgramError):
        return None
    code = exits.UNAVAILABLE if isinstance(error, ConfigurationError) else exits.USAGE if isinstance(error, UsageError) else exits.FAILED
    return exits.Stop(code, str(error))


def _as_usage(error: Exception, arguments: list[str]) -> Exception:
    """click's and typer's complaints about a command line; their classes have moved between releases, their interface has not."""
    describe = getattr(error, "format_message", None)
    if describe is None:
        if type(error).__name__ == "Abort":
            return exits.Stop(exits.INTERRUPTED, "interrupted")
        return error
    name = arguments[0] if arguments and arguments[0] in command_names() else ""
    program = f"openprogram {name}".strip()
    message = " ".join(str(describe()).split())
    hint = ""
    if name == "run" and type(error).__name__ == "NoSuchOption":
        hint = " Arguments of the function are written name=value."
    return exits.usage(f"{message if message.endswith('?') else message.rstrip('.') + '.'}{hint} See `{program} --help`.")
