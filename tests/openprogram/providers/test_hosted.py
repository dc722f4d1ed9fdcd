"""The hosted providers by name: where keys and addresses come from, what is chosen when nothing is named, and what is said of what is missing."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any

import keyring
import keyring.backend
import pytest
from openprogram_protocol.paths import home

from openprogram import Runtime, create_runtime
from openprogram.errors import ConfigurationError, LLMError, NoModelError, UnknownModelError, UsageError
from openprogram.providers import keys
from openprogram.providers.catalog import ROWS
from openprogram.providers.detect import check_providers, detect_provider
from openprogram.providers.hosted import hosted
from openprogram.providers.http import HttpProvider
from openprogram.providers.registry import chosen_model, make_provider, split_model
from tests.openprogram.providers.wires import KEY, collect, request_of, text_of
from tests.support.http_server import Answer, Request, Server
from tests.support.speaking import say

FOLDERS = {"azure": "/openai/v1"}


def asked(name: str, environ: dict[str, str], **options: Any) -> str:
    """One request to that provider."""

    async def run() -> str:
        provider = hosted(name, environ=environ, **options)
        try:
            return text_of(await collect(provider, request_of("chat")))
        finally:
            await provider.aclose()

    return asyncio.run(run())


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_a_provider(name: str) -> None:
    """With its own variables for key and address, each provider asks where and as it should."""
    row = ROWS[name]
    with Server(say("fine")) as server:
        assert asked(name, {row.keys[0]: KEY, row.urls[0]: server.url}) == "fine"
        (request,) = server.requests
    assert KEY in "".join(request.headers.values())
    folder = FOLDERS.get(name, "/v1beta" if row.wire == "gemini" else "/v1")
    assert request.target.startswith(f"{folder}/")


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.needs_key])
def test_a_missing_key_is_told_with_its_cure(name: str) -> None:
    """The variable and the command that mend it are named, when the provider is made."""
    with pytest.raises(NoModelError, match=f"{ROWS[name].keys[0]}, or run: openprogram providers login {name}"):
        make_provider(name, environ={ROWS[name].urls[0]: "http://127.0.0.1:1"})


def test_a_provider_without_an_address_says_which_variable_names_it() -> None:
    """Azure and servers of one's own have none of their own."""
    with pytest.raises(NoModelError, match="OPENPROGRAM_BASE_URL"):
        make_provider("compatible", environ={})


@pytest.mark.parametrize(
    ("value", "target"),
    [("127.0.0.1:PORT", "/v1"), ("0.0.0.0:PORT", "/v1"), ("http://127.0.0.1:PORT/", "/v1"), ("http://127.0.0.1:PORT/up/v1", "/up/v1")],
)
def test_an_address_may_lack_scheme_and_path(value: str, target: str) -> None:
    """OLLAMA_HOST is what that server listens on."""
    with Server(say("fine")) as server:
        assert asked("ollama", {"OLLAMA_HOST": value.replace("PORT", str(server.port))}) == "fine"
        assert server.requests[0].target == f"{target}/chat/completions"


@pytest.mark.parametrize("address", ["ftp://example.org", "http://", "http://[", "http://u:hush@exa mple"])
def test_a_wrong_address_is_a_configuration_error(address: str) -> None:
    """It names the provider, and no password."""
    with pytest.raises(ConfigurationError, match="the provider compatible") as caught:
        make_provider("compatible", environ={"OPENPROGRAM_BASE_URL": address})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-very-secret\n", " sk-very-secret", "\tsk-very-secret \r\n"])
def test_blanks_around_a_key_are_left_out(key: str) -> None:
    """A key pasted with its line end works (d24)."""
    with Server(say("fine")) as server:
        assert asked("openai", {"OPENAI_BASE_URL": server.url}, api_key=key) == "fine"
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["sk–very-secret", "sk-very secret", "sk-very\nsecret", "sk-very-secret\x00x", "sk-very-secrét"])
def test_a_key_that_cannot_be_sent_is_refused_unshown(key: str) -> None:
    """A configuration error at once, and nothing of the key in it (d24)."""
    with pytest.raises(ConfigurationError, match="copy it again") as caught:
        make_provider("openai", api_key=key, environ={})
    assert "very" not in str(caught.value) and "secr" not in str(caught.value)


class Keyring(keyring.backend.KeyringBackend):
    """A keyring in memory; ``broken`` raises as a locked one does."""

    priority = 1  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride, reportUnannotatedClassAttribute] - as keyring's documentation shows

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self._broken = broken

    def _check(self) -> None:
        if self._broken:
            raise RuntimeError("the keyring is locked")

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        del self.kept[service, username]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Keyring]:
    """Puts a keyring into place for this test."""

    def use(*, broken: bool = False) -> Keyring:
        ring = Keyring(broken=broken)
        monkeypatch.setattr(keyring.core, "_keyring_backend", ring)
        return ring

    return use


def test_a_key_is_kept_in_the_keyring(ring: Callable[..., Keyring]) -> None:
    """Where there is one, nothing is written into a file."""
    kept = ring().kept
    assert keys.save_key("openai", f" {KEY}\n") == "the system's keyring"
    assert kept == {("openprogram", "openai"): KEY}
    assert not keys.key_file().exists()
    found = keys.find_key("openai", ("OPENAI_API_KEY",), {})
    assert found is not None and (found.value, found.source) == (KEY, "the system's keyring")
    assert keys.delete_key("openai") and not keys.delete_key("openai")


@pytest.mark.parametrize("broken", [True, False], ids=["a locked keyring", "none"])
def test_without_a_keyring_a_key_is_kept_in_a_private_file(broken: bool, ring: Callable[..., Keyring]) -> None:
    """Mode 0600, several providers side by side, and deleting takes one out."""
    if broken:
        ring(broken=True)
    assert keys.save_key("openai", KEY) == str(keys.key_file())
    keys.save_key("groq", "gsk")
    assert os.name != "posix" or stat.S_IMODE(keys.key_file().stat().st_mode) == 0o600
    found = keys.find_key("openai", ("OPENAI_API_KEY",), {"OPENAI_API_KEY": "  "})
    assert found is not None and (found.value, found.source) == (KEY, str(keys.key_file()))
    assert KEY not in repr(found)
    assert keys.delete_key("openai")
    assert json.loads(keys.key_file().read_text()) == {"groq": "gsk"}
    assert list(home().glob(".keys*")) == []


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
def test_a_key_file_that_others_can_read_is_refused() -> None:
    """The error says which command mends it."""
    keys.save_key("openai", KEY)
    keys.key_file().chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        make_provider("openai", environ={})
    assert "chmod 600" in check_providers({})["openai"]["hint"]


@pytest.mark.parametrize("content", ["{", "[]", "\xff", '{"openai": 3}'])
def test_a_broken_key_file_is_told_unshown(content: str) -> None:
    """What is in it is not quoted; a value that is no text counts as none."""
    keys.save_key("openai", KEY)
    keys.key_file().write_text(content + ("" if content.endswith("}") else KEY), "latin-1")
    with pytest.raises((ConfigurationError, NoModelError)) as caught:
        make_provider("openai", environ={})
    assert KEY not in str(caught.value)


def test_an_empty_key_is_not_kept() -> None:
    """It would hide that there is none."""
    with pytest.raises(UsageError, match="empty"):
        keys.save_key("openai", " \n")


def test_the_environment_goes_before_what_is_kept() -> None:
    """And an explicit key before both."""
    keys.save_key("openai", "from-file")
    with Server(say("fine")) as server:
        environ = {"OPENAI_BASE_URL": server.url}
        asked("openai", environ)
        asked("openai", {**environ, "OPENAI_API_KEY": "from-environment"})
        asked("openai", {**environ, "OPENAI_API_KEY": "from-environment"}, api_key="explicit")
        shown = [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests]
    assert shown == ["from-file", "from-environment", "explicit"]


def write_config(text: str) -> None:
    home().mkdir(parents=True, exist_ok=True)
    (home() / "config.toml").write_text(text, "utf-8")


def test_the_configuration_adds_providers_and_profiles() -> None:
    """A server of one's own under a name of one's own, with its key's variable, headers, and what its models can do."""
    with Server(say("fine")) as server:
        write_config(
            f'[providers.work]\nbase_url = "{server.url}/gate/v1"\nkey_env = "WORK_KEY"\nmodel = "big"\nheaders = {{ x-team = "blue" }}\n'
            '[models."work:big"]\ncontext_window = 32000\ntools = false\nprice = { input = 1.0, output = 2.0 }\n'
        )
        assert split_model("work:") == ("work", "big")
        assert asked("work", {"WORK_KEY": KEY}) == "fine"
        (request,) = server.requests
    assert (request.target, request.headers["x-team"], request.headers["authorization"]) == ("/gate/v1/chat/completions", "blue", f"Bearer {KEY}")
    provider = make_provider("work", environ={"WORK_KEY": KEY})
    profile, other = provider.profile("big"), provider.profile("small")
    assert (profile.context_window, profile.tools, profile.price and profile.price.output) == (32000, False, 2.0)
    assert other.tools and other.price is None
    with pytest.raises(NoModelError, match="WORK_KEY"):
        make_provider("work", environ={})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = 3", "model"),
        ("modle = 'x'", "modle"),
        ("[providers.openai]\nconcurency = 3", "concurency"),
        ("[providers.openai]\nconcurrency = 0", "at least 1"),
        ("[providers.openai]\nwire = 'soap'", "soap"),
        ("[providers.mine]\nwire = 'chat'", "base_url"),
        ("[providers", "config.toml"),
    ],
)
def test_a_mistake_in_the_configuration_is_told(text: str, said: str) -> None:
    """With the file and the place, wherever it is read."""
    write_config(text)
    with pytest.raises(ConfigurationError, match=said) as caught:
        chosen_model(environ={"OPENPROGRAM_MODEL": "openai:"})
    assert "config.toml" in str(caught.value)


def test_an_unknown_field_of_a_profile_is_told() -> None:
    """It names the model's section."""
    write_config('[models."openai:gpt-5.4"]\ncolour = "blue"\n')
    with pytest.raises(ConfigurationError, match=r"openai:gpt-5\.4.*colour"):
        make_provider("openai", environ={"OPENAI_API_KEY": KEY}).profile("gpt-5.4")


@pytest.mark.parametrize(
    ("environ", "config", "expected"),
    [
        ({"OPENPROGRAM_MODEL": "groq:llama"}, "", "groq:llama"),
        ({"AGENTIC_MODEL": "groq:llama"}, "", "groq:llama"),
        ({"OPENPROGRAM_PROVIDER": "ollama", "OPENPROGRAM_MODEL": "llama3:8b"}, "", "ollama:llama3:8b"),
        ({"OPENPROGRAM_PROVIDER": "google"}, "model = 'openai:gpt-5.4'", f"google:{ROWS['google'].model}"),
        ({"OPENAI_API_KEY": "k"}, "model = 'deepseek:'", "deepseek:deepseek-chat"),
        ({"OPENAI_API_KEY": "k"}, "", f"openai:{ROWS['openai'].model}"),
        ({"GEMINI_API_KEY": "k"}, "", f"google:{ROWS['google'].model}"),
        ({"GOOGLE_API_KEY": "k"}, "", f"google:{ROWS['google'].model}"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k"}, "", f"anthropic:{ROWS['anthropic'].model}"),
        ({"GROQ_API_KEY": "k", "ANTHROPIC_API_KEY": " "}, "", "local:smollm2-135m"),
        ({}, "", "local:smollm2-135m"),
    ],
)
def test_what_is_chosen(environ: dict[str, str], config: str, expected: str) -> None:
    """Environment, configuration, keys in a fixed order, the local model."""
    write_config(config)
    assert chosen_model(environ=environ) == expected


def test_arguments_go_before_everything() -> None:
    """Provider and model of the call."""
    environ = {"OPENPROGRAM_MODEL": "groq:llama", "ANTHROPIC_API_KEY": "k"}
    assert chosen_model("openai", "gpt-5.2", environ=environ) == "openai:gpt-5.2"
    assert chosen_model(model="google:gemini-3-flash", environ=environ) == "google:gemini-3-flash"


def test_a_provider_without_a_default_asks_for_a_model() -> None:
    """The error shows how to write it."""
    with pytest.raises(UnknownModelError, match="ollama:MODEL"):
        chosen_model("ollama", environ={})


def test_the_given_environment_counts_and_not_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a daemon's own environment holds never decides for a workspace."""
    for name in ("OPENPROGRAM_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "openai:x")
    assert chosen_model(environ={}) == "local:smollm2-135m"
    with pytest.raises(NoModelError):
        make_provider("openai", environ={})
    assert detect_provider({"OPENAI_API_KEY": "k"}) == ("openai", ROWS["openai"].model)
    assert detect_provider() == ("anthropic", ROWS["anthropic"].model)


def test_all_providers_are_checked() -> None:
    """Each says where its key is from or what it lacks, and none says the key."""
    keys.save_key("groq", KEY)
    found = check_providers({"OPENAI_API_KEY": KEY, "OLLAMA_HOST": "127.0.0.1:7"})
    assert found.keys() == {*ROWS, "local"}
    assert (found["openai"]["available"], found["openai"]["source"], found["openai"]["url"]) == (True, "OPENAI_API_KEY", "https://api.openai.com/v1")
    assert found["groq"]["source"] == str(keys.key_file())
    assert not found["anthropic"]["available"] and "ANTHROPIC_API_KEY" in found["anthropic"]["hint"]
    assert found["ollama"]["url"] == "http://127.0.0.1:7"
    assert "AZURE_OPENAI_BASE_URL" in found["azure"]["hint"]
    assert found["local"] == {"available": True, "model": "smollm2-135m", "source": "", "url": "", "hint": ""}
    assert KEY not in json.dumps(found)


def test_a_runtime_on_a_hosted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way from create_runtime to the answer, from the process's own environment."""
    with Server(say("fine", ending="keep")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with create_runtime() as runtime:
            assert runtime.exec("hi") == "fine"
            assert runtime.model == f"openai:{ROWS['openai'].model}"
            assert runtime.last_usage is not None and runtime.last_usage["cost"] > 0
        with Runtime(model="openai_chat:gpt-4.1") as runtime:
            assert runtime.exec("hi") == "fine"
        assert [request.json["model"] for request in server.requests] == [ROWS["openai"].model, "gpt-4.1"]


def test_limits_of_the_configuration_hold_for_all_runtimes() -> None:
    """Two providers of one name, asked from two loops, never have more requests open than the configuration allows."""
    write_config("[providers.openai]\nconcurrency = 2\n")
    open_now: list[int] = []

    def answer(request: Request) -> Answer:
        open_now.append(server.connections)
        return say("fine")(request)

    with Server(answer) as server:

        async def many() -> None:
            provider = hosted("openai", environ={"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url})
            await asyncio.gather(*(collect(provider, request_of("responses")) for _ in range(10)))
            await provider.aclose()

        threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(server.requests) == 20
        assert 1 <= max(open_now) <= 2


def test_errors_name_provider_and_model() -> None:
    """As they were asked for."""
    with Server(say(finish="content_filter")) as server, pytest.raises(LLMError) as caught:
        asked("groq", {"GROQ_API_KEY": KEY, "GROQ_BASE_URL": server.url})
    assert (caught.value.provider, caught.value.model) == ("groq", "gpt-5.4")


def test_hosted_providers_are_http_providers() -> None:
    """What make_provider gives for a hosted name can be asked for its models and profiles."""
    assert isinstance(make_provider("openai", environ={}, api_key=KEY), HttpProvider)
