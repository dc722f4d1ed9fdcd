"""A daemon of the test's own home, with what the library puts on a connection to it; it ends with the block."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import openprogram_clients
from openprogram_clients import Client, ClientError

from openprogram.remote import RemoteStore

IN_WORKER = "OPENPROGRAM_TEST_IN_WORKER"
"""Set where contract tests run inside a worker: they then go over what the worker has."""


@contextlib.contextmanager
def daemon_client(root: Path, *, trust: bool = False) -> Generator[Client]:
    """A client of a daemon that is started for it and stopped behind it."""
    with openprogram_clients.connect(root, trust=trust) as client:
        try:
            yield client
        finally:
            with contextlib.suppress(ClientError):  # a test may have ended it
                client.stop()


@contextlib.contextmanager
def daemon_store(root: Path) -> Generator[RemoteStore]:
    """The store of such a daemon."""
    with daemon_client(root) as client:
        yield RemoteStore(client.connection)
