"""What every test gets: a home of its own, no settings, keys or proxies of whoever runs it, and no way to the network.

The guard is an audit hook, so that it holds for every library and thread of the test process. Processes that a test starts inherit the environment only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from openprogram.functions import isolated

LOOPBACK = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "", None)
INHERITED = ("OPENPROGRAM_", "AGENTIC_")
KEPT = ("OPENPROGRAM_CACHE",)  # where the local model is, the same for every home
SECRETS = ("_API_KEY", "_AUTH_TOKEN", "_ACCESS_TOKEN")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy")


def _loopback_only(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("socket.getaddrinfo", "socket.connect", "socket.sendto", "socket.sendmsg"):
        return
    address: Any = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
    if event != "socket.getaddrinfo":
        if not isinstance(address, tuple):  # a Unix socket, or a message on a connection that was let through
            return
        address = cast("tuple[Any, ...]", address)[0]
    host = address.decode("ascii", "replace") if isinstance(address, bytes) else address
    if host not in LOOPBACK and not str(host).startswith("127."):
        raise OSError(f"tests reach no network, but this one tried {host!r}; start a server on 127.0.0.1 and ask that")


sys.addaudithook(_loopback_only)


def _is_of_the_machine(name: str) -> bool:
    if name in KEPT:
        return False
    return name.startswith(INHERITED) or name.endswith(SECRETS) or name.lower() in PROXIES


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty OPENPROGRAM_HOME and no registered tools for this test alone, and nothing that would choose a model, a key or a proxy."""
    for name in [name for name in os.environ if _is_of_the_machine(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    with isolated():
        yield
