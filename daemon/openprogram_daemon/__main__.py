"""``python -m openprogram_daemon``: be the daemon of this home. Its log is what it prints; clients start it with that going to a file."""

from __future__ import annotations

import logging
import os
import sys

# What belongs to the client that happened to start the daemon must not decide for others: keys and models come with each workspace.
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "OPENPROGRAM_HOME", "OPENPROGRAM_CACHE", "OPENPROGRAM_IDLE_S")
_KEPT_PREFIXES = ("LC_", "XDG_")


def main() -> int:
    """The exit code."""
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(_KEPT_PREFIXES):
            del os.environ[name]
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # They say what is asked of whom.
    for chatty in ("httpx", "httpcore", "asyncio", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    inherited = os.umask(0o077)

    from openprogram_clients.errors import DaemonError
    from openprogram_clients.places import make_home

    from openprogram.errors import OpenProgramError
    from openprogram_daemon.hosts import process
    from openprogram_daemon.lifecycle import serve

    process.umask = inherited
    try:
        os.environ["OPENPROGRAM_HOME"] = str(make_home())
        os.chdir("/")
        serve()
    except (DaemonError, OpenProgramError, OSError) as error:
        logging.getLogger("openprogram.daemon").error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
