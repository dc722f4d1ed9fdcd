"""Start, watch and end a model host (`model_host`), from any thread and any event loop.

A host is one child process in its own process group. One keeper thread starts it, reads its report, collects what it prints and waits for its end: the kernel's
kill-with-parent signal is tied to the thread that started the child, so that thread must live as long as the child does.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import IO, Any

import msgspec

from openprogram.errors import ConfigurationError, LLMError, NoModelError, Reason

log = logging.getLogger(__name__)

_MAGIC = b"GGUF"
_KEPT_LINES = 40
_INSTALL_ENGINE = "python -m pip install 'openprogram[local]'"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a host listens. ``key`` is secret; ``load_s`` is the time the model took to load."""

    address: str
    key: str
    pid: int
    load_s: float

    def __repr__(self) -> str:
        return f"Endpoint(address={self.address!r}, pid={self.pid})"


class ModelHost:
    """A child process that serves the GGUF file at ``path``; started once, never restarted: make a new one after its death.

    ``on_progress`` is told in a sentence when loading begins and ends. ``context`` is in tokens, for each of ``slots`` parallel requests.
    """

    def __init__(self, path: Path, *, alias: str = "local", context: int = 4096, slots: int = 1, on_progress: Callable[[str], None] | None = None) -> None:
        self.path = path
        self._state = _State([str(path), "--alias", alias, "--ctx", str(context), "--slots", str(slots)], path, on_progress or log.info)
        self._lock = threading.Lock()
        self._launched = False
        # The keeper holds only the state, so a host that nobody holds is ended, as is every one at exit.
        self._finalizer = weakref.finalize(self, self._state.kill)

    def launch(self) -> Future[Endpoint]:
        """Start the host unless that was done, and return at once; every caller gets the same future.

        It fails with NoModelError (no file, no engine), ConfigurationError (a file that cannot be loaded) or LLMError (died or closed meanwhile).
        """
        with self._lock:
            if not self._launched:
                self._launched = True
                threading.Thread(target=_keep, args=(self._state,), name="openprogram-model-host", daemon=True).start()
        return self._state.ready

    def start(self, timeout_s: float | None = 300.0) -> Endpoint:
        """`launch` and wait. Raises LLMError when ``timeout_s`` passes; the host is then ended."""
        try:
            return self.launch().result(timeout_s)
        except FutureTimeoutError:
            self.close()
            raise LLMError(f"the model {self.path} was not loaded within {timeout_s} s", reason=Reason.TIMEOUT, retryable=True, provider="local") from None

    @property
    def address(self) -> str:
        """Base address of the endpoint; starts the host if need be."""
        return self.start().address

    @property
    def key(self) -> str:
        """The endpoint's secret key; starts the host if need be."""
        return self.start().key

    @property
    def exited(self) -> Future[int]:
        """Resolves to the exit code (negative: the signal) when the process has ended and was waited for."""
        return self._state.exited

    @property
    def ours(self) -> bool:
        """False in a process that was forked from the one that made this host."""
        return self._state.owner == os.getpid()

    @property
    def usable(self) -> bool:
        """False once it failed, died or was closed, and in a forked child."""
        failed = self._state.ready.done() and self._state.ready.exception() is not None
        return self.ours and not (failed or self._state.closed or self._state.exited.done())

    def obituary(self) -> str:
        """How it ended and the last lines it printed."""
        return self._state.obituary()

    def close(self) -> None:
        """End the process; may be called twice, from any thread. `exited` tells when it is gone."""
        self._state.kill()


class _State:
    """What the keeper thread and the host object share."""

    def __init__(self, arguments: list[str], path: Path, on_progress: Callable[[str], None]) -> None:
        self.arguments = arguments
        self.path = path
        self.on_progress = on_progress
        self.owner = os.getpid()
        self.closed = False
        self.ready: Future[Endpoint] = Future()
        self.exited: Future[int] = Future()
        self.printed: deque[str] = deque(maxlen=_KEPT_LINES)
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        for future in (self.ready, self.exited):
            future.set_running_or_notify_cancel()  # so that one waiter's cancellation is not everybody's

    def kill(self) -> None:
        """Nothing in a host is worth saving, so it is killed outright."""
        with self.lock:
            self.closed = True
            process = self.process
        if process is not None and self.owner == os.getpid():
            process.kill()

    def spawn(self) -> subprocess.Popen[bytes]:
        with self.lock:
            if self.closed:
                raise LLMError("the model host was closed before it started", reason=Reason.SERVER, retryable=True, provider="local")
            command = [sys.executable, "-P", "-m", "openprogram.providers.model_host", *self.arguments, "--parent", str(os.getpid())]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)  # noqa: S603 - our own module
            return self.process

    def obituary(self) -> str:
        how = "was closed" if self.closed else _ending(self.exited.result()) if self.exited.done() else "is running"
        tail = "; it last printed: " + " | ".join(list(self.printed)[-3:]) if self.printed else ""
        return f"the model host for {self.path} {how}{tail}"


def _keep(state: _State) -> None:
    """The keeper thread: from the checks before the start to the end of the process."""
    try:
        check_model_file(state.path)
        check_engine()
        process = state.spawn()
    except Exception as error:
        state.ready.set_exception(error if isinstance(error, (ConfigurationError, LLMError)) else ConfigurationError(f"cannot start the model host: {error}"))
        state.exited.set_result(0)
        return
    assert process.stdout is not None and process.stderr is not None and process.stdin is not None
    reader = threading.Thread(target=_collect, args=(process.stderr, state.printed), name="openprogram-model-host-stderr", daemon=True)
    reader.start()
    began = time.monotonic()
    _progress(state, f"loading the model {state.path.name} …")
    report = _report(process.stdout)
    if "address" in report:
        endpoint = Endpoint(address=report["address"], key=report["key"], pid=process.pid, load_s=time.monotonic() - began)
        _progress(state, f"loaded the model {state.path.name} in {endpoint.load_s:.1f} s")
        state.ready.set_result(endpoint)
    code = process.wait()
    reader.join(1.0)
    process.stdin.close()
    state.exited.set_result(code)
    if "address" not in report:
        state.ready.set_exception(_load_error(state, report))


def _report(pipe: IO[bytes]) -> dict[str, Any]:
    """The host's one line; empty if it died before."""
    with pipe:
        line = pipe.readline()
    try:
        return json.loads(line) if line else {}
    except ValueError:
        return {"error": f"it answered {line[:200]!r}"}


def _collect(pipe: IO[bytes], into: deque[str]) -> None:
    with pipe:
        for line in pipe:
            into.append(line.decode("utf-8", "replace").strip()[:500])


def _progress(state: _State, text: str) -> None:
    try:
        state.on_progress(text)
    except Exception:
        log.exception("the on_progress callback failed")


def _load_error(state: _State, report: dict[str, Any]) -> Exception:
    if state.closed:
        return LLMError("the model host was closed while it started", reason=Reason.SERVER, retryable=True, provider="local")
    reason = report.get("error") or state.obituary()
    size = state.path.stat().st_size if state.path.exists() else 0
    hint = "the file may be incomplete, or of a kind that this engine does not know"
    return ConfigurationError(f"the model file {state.path} ({size:,} bytes) cannot be loaded: {reason}; {hint}")


def check_engine() -> None:
    """Raises NoModelError with the command that installs the engine if it is missing."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise NoModelError(f"the engine for local models is not installed; run: {_INSTALL_ENGINE}")


def check_model_file(path: Path) -> None:
    """Raises NoModelError if there is no such file, ConfigurationError if it cannot be read or is no GGUF: the engine reports all of these alike."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise NoModelError(f"there is no model file {path}") from None
    except OSError as error:
        raise ConfigurationError(f"the model file {path} cannot be read: {error.strerror or error}") from None
    if magic != _MAGIC:
        raise ConfigurationError(f"{path} is no GGUF model file: it begins with {magic!r}, not {_MAGIC!r}")


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    known = {member.value: member.name for member in signal.Signals}
    return f"was killed by {known.get(-code, f'signal {-code}')}"
