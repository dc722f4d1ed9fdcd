"""The model host: a process that holds one local model and serves the engine's OpenAI-compatible endpoint on loopback.

It is exec'd, never forked, since the engine must not be forked; it lives no longer than its parent, even one that was killed; and its only door is a loopback
port behind a random key, which it tells its parent through a pipe and nobody else. One JSON line goes to standard output: ``{"address", "key"}`` or
``{"error"}``.

    python -m openprogram.providers.model_host FILE --parent PID [--alias NAME] [--ctx N] [--slots N]

Importing this module costs nothing: the engine is loaded by `main`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import secrets
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
_WATCH_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the parent closes our standard input or is gone."""
    options = _parser().parse_args(argv)
    report = _private_stdout()
    _die_with(options.parent)
    threading.Thread(target=_watch, args=(options.parent,), daemon=True).start()
    key = secrets.token_urlsafe(32)
    try:
        server = _serve(options, key)
    except Exception as error:  # whatever the engine raises is the parent's to explain
        _tell(report, {"error": f"{type(error).__name__}: {error}"})
        return 1
    _tell(report, {"address": server.listening_address, "key": key})
    while True:
        signal.pause() if hasattr(signal, "pause") else time.sleep(3600)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="model_host")
    parser.add_argument("file")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--alias", default="local")
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--slots", type=int, default=1)
    return parser


def _private_stdout() -> int:
    """Keep standard output for our one line and send what the engine prints to standard error."""
    report = os.dup(1)
    os.dup2(2, 1)
    return report


def _tell(report: int, message: dict[str, Any]) -> None:
    os.write(report, json.dumps(message).encode() + b"\n")
    os.close(report)


def _die_with(parent: int) -> None:
    """Let the kernel kill us with our parent where it can (Linux); `_watch` is for the rest."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we could ask
        os._exit(0)


def _watch(parent: int) -> None:
    """End with the parent: at the end of standard input, or when another process has adopted us, since a fork of the parent may hold the pipe open."""
    while os.getppid() == parent:
        if sys.platform == "win32":
            sys.stdin.buffer.read()
            break
        if select.select([0], [], [], _WATCH_S)[0] and not os.read(0, 4096):
            break
    os._exit(0)


def _serve(options: argparse.Namespace, key: str) -> Any:
    """Load the model and listen. Raises whatever the engine does; the settings are measured ones."""
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # read when the engine is loaded; spinning threads collapse on a busy machine
    engine: Any = importlib.import_module("xllamacpp")  # without types, and not always installed
    params = engine.CommonParams()
    params.model.path, params.model_alias, params.offline = options.file, {options.alias}, True
    params.n_ctx, params.n_parallel = options.ctx * options.slots, options.slots
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = 1, 2
    params.cache_ram_mib, params.warmup, params.verbosity = 128, False, 0
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys, params.cors_origins = [key], ""
    params.endpoint_slots, params.ui = False, False
    return engine.Server(params)


if __name__ == "__main__":
    sys.exit(main())
