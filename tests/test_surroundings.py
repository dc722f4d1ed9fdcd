"""What conftest promises to every other test."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from openprogram_protocol import paths


def test_each_test_has_an_empty_home(tmp_path: Path) -> None:
    """The home exists, is empty, and is neither the user's nor inside the folder a test works in."""
    home = paths.home()
    assert home == Path(os.environ["OPENPROGRAM_HOME"])
    assert list(home.iterdir()) == []
    assert tmp_path not in home.parents


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, ("192.0.2.1", 80)), (socket.AF_INET6, ("2001:db8::1", 80, 0, 0))], ids=["v4", "v6"])
def test_no_test_reaches_the_network(family: socket.AddressFamily, address: tuple[str, int]) -> None:
    """Connecting anywhere but to this machine is refused at once, with the reason."""
    with socket.socket(family, socket.SOCK_STREAM) as connection, pytest.raises(OSError, match="tests reach no network"):
        connection.connect(address)
    with pytest.raises(OSError, match="tests reach no network"):
        socket.getaddrinfo("example.invalid", 80)


def test_this_machine_can_be_reached() -> None:
    """A server on the loopback address answers."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"here")
            assert client.recv(4) == b"here"
