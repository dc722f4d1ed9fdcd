"""The ``openprogram`` command.

This module parses on any Python 3, so that a wrong version is answered in one line, and imports nothing heavy, so that ``--version`` answers at once.
"""

import sys

MINIMUM = (3, 11)


def version_problem(version: "tuple[int, ...]") -> "str | None":
    """Why this Python cannot run OpenProgram; None when it can."""
    if version[:2] >= MINIMUM:
        return None
    have, need = ".".join(str(part) for part in version[:2]), ".".join(str(part) for part in MINIMUM)
    return (
        "openprogram: this is Python "
        + have
        + "; OpenProgram needs Python "
        + need
        + " or newer. Install it and run `python"
        + need
        + " -m pip install openprogram`."
    )


def main() -> int:
    """Run the command line of this process and return its exit code: 0, 1 a failed run, 2 usage, 3 no model or daemon, 130 interrupted."""
    problem = version_problem(tuple(sys.version_info[:2]))
    if problem is not None:
        print(problem, file=sys.stderr)  # noqa: T201 - nothing of ours can be imported here
        return 2
    from openprogram_cli.app import run_command_line

    return run_command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
