"""`openprogram providers`: what can be used from here, and keeping a key."""

from __future__ import annotations

import pytest

from tests.clients.cli.command import Command

KEY = "sk-test-0123456789"
NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


def test_a_key_is_kept_and_forgotten(openprogram: Command) -> None:
    """What login reads makes the provider ready, is in a file of the user alone, and is shown nowhere; logout takes it away."""
    done = openprogram("providers", "login", "openai", stdin=f"{KEY}\n".encode(), env=NO_KEYRING)
    assert done.code == 0, done.err
    (file,) = openprogram.home.glob("keys.json")
    assert file.stat().st_mode & 0o077 == 0
    listed = openprogram("providers", "--json", env=NO_KEYRING)
    (openai,) = [row for row in listed.json["providers"] if row["name"] == "openai"]
    assert (openai["available"], openai["source"]) == (True, str(file))
    assert not any(KEY in text for text in (done.out, done.err, listed.out, openprogram("providers", env=NO_KEYRING).out))
    assert openprogram("providers", "logout", "openai", env=NO_KEYRING).out == "the key for openai is forgotten\n"
    assert openprogram("providers", "logout", "openai", env=NO_KEYRING).out == "no key was kept for openai\n"
    assert KEY not in file.read_text()


@pytest.mark.parametrize("command", ["login", "logout"])
def test_an_unknown_provider_is_named_with_the_near_ones(openprogram: Command, command: str) -> None:
    """A misspelt name is a usage error before anything is read."""
    done = openprogram("providers", command, "opena", stdin=b"x\n", env=NO_KEYRING)
    assert (done.code, "did you mean openai" in done.err) == (2, True)


def test_no_key_is_kept_for_nothing(openprogram: Command) -> None:
    """An empty line is a usage error and leaves no file."""
    assert openprogram("providers", "login", "openai", stdin=b"\n", env=NO_KEYRING).code == 2
    assert not (openprogram.home / "keys.json").exists()


def test_what_a_provider_lacks_is_said_in_a_command_that_exists(openprogram: Command) -> None:
    """The list says how to mend each provider that is not ready, and a run that names one says the same."""
    assert "set OPENAI_API_KEY, or run: openprogram providers login openai" in openprogram("providers", env=NO_KEYRING).out
    done = openprogram("exec", "hi", "--model", "openai:x", "--local", env=NO_KEYRING)
    assert (done.code, "openprogram providers login openai" in done.err) == (3, True)
