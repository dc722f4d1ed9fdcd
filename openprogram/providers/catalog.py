"""The providers that are reached over HTTP, as data: one row says all that tells one from another.

A user's configuration may change a row and add rows of its own (see `openprogram.providers.config`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Wire = Literal["chat", "responses", "anthropic", "gemini"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A provider. ``keys`` and ``urls`` name environment variables, the first one that is set counts; ``model`` is the one that is meant when none is named.

    ``folder`` is what a base URL without a path means; ``options`` are those of the wire; ``profiles`` names the rows of `openprogram.providers.profiles`.
    """

    wire: Wire = "chat"
    base_url: str = ""
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    needs_key: bool = True
    model: str = ""
    folder: str = ""
    options: dict[str, Any] = {}
    profiles: str = ""


_OPENAI_MODEL = "gpt-5.4"
_OPENAI_OPTIONS = {"max_tokens_field": "max_completion_tokens", "cache_key": True}

ROWS: dict[str, Row] = {
    "anthropic": Row(
        wire="anthropic", base_url="https://api.anthropic.com", keys=("ANTHROPIC_API_KEY",), urls=("ANTHROPIC_BASE_URL",), model="claude-sonnet-4-6"
    ),
    "openai": Row(wire="responses", base_url="https://api.openai.com/v1", keys=("OPENAI_API_KEY",), urls=("OPENAI_BASE_URL",), model=_OPENAI_MODEL),
    "openai_chat": Row(base_url="https://api.openai.com/v1", keys=("OPENAI_API_KEY",), urls=("OPENAI_BASE_URL",), model=_OPENAI_MODEL, options=_OPENAI_OPTIONS),
    "google": Row(
        wire="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        urls=("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
        model="gemini-2.5-flash",
    ),
    "azure": Row(
        wire="responses",
        keys=("AZURE_OPENAI_API_KEY",),
        urls=("AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
        folder="/openai/v1",
        options={"key_header": "api-key"},
    ),
    "openrouter": Row(base_url="https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",), urls=("OPENROUTER_BASE_URL",)),
    "deepseek": Row(
        base_url="https://api.deepseek.com/v1",
        keys=("DEEPSEEK_API_KEY",),
        urls=("DEEPSEEK_BASE_URL",),
        model="deepseek-chat",
        options={"echo_thinking": True},
    ),
    "groq": Row(base_url="https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",), urls=("GROQ_BASE_URL",)),
    "ollama": Row(base_url="http://127.0.0.1:11434/v1", keys=("OLLAMA_API_KEY",), urls=("OLLAMA_HOST",), needs_key=False),
    "vllm": Row(base_url="http://127.0.0.1:8000/v1", keys=("VLLM_API_KEY",), urls=("VLLM_BASE_URL",), needs_key=False),
    "llamacpp": Row(base_url="http://127.0.0.1:8080/v1", keys=("LLAMACPP_API_KEY",), urls=("LLAMACPP_BASE_URL",), needs_key=False),
    "lmstudio": Row(base_url="http://127.0.0.1:1234/v1", keys=("LMSTUDIO_API_KEY",), urls=("LMSTUDIO_BASE_URL",), needs_key=False),
    "compatible": Row(keys=("OPENPROGRAM_API_KEY",), urls=("OPENPROGRAM_BASE_URL",), needs_key=False),
}
BY_KEY = ("anthropic", "openai", "google")
"""Whose key decides when nothing else does, in that order."""
