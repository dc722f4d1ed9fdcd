"""What each model can do and costs, as data: the first row whose pattern fits a model's name counts.

Names change faster than this table. A model that no row knows gets its provider's own row of ``*``, without a price; what a user's configuration says wins (see
`openprogram.providers.config`). Prices are list prices in US dollars per million tokens.
"""

from __future__ import annotations

import fnmatch
import functools

import msgspec

from openprogram.providers.base import Finish, Price, Profile

_OPENAI = Profile(schema=True, schema_dialect="openai", images=True, web_search=True, context_window=128_000, max_output_tokens=16_384)
_OPENAI_THINKS = msgspec.structs.replace(_OPENAI, thinking="effort", context_window=400_000, max_output_tokens=128_000)
_CAN_STOP = msgspec.structs.replace(_OPENAI_THINKS, thinking_off="none")
_CLAUDE = Profile(schema=True, schema_dialect="anthropic", images=True, web_search=True, thinking="adaptive", context_window=200_000, max_output_tokens=64_000)
_CLAUDE_BUDGET = msgspec.structs.replace(_CLAUDE, thinking="budget")
_CLAUDE_FREE = msgspec.structs.replace(_CLAUDE_BUDGET, schema=False, schema_dialect="")
_GEMINI = Profile(
    parallel_tools=False,
    schema=True,
    schema_dialect="gemini",
    images=True,
    audio=True,
    video=True,
    web_search=True,
    thinking="level",
    thinking_off="minimal",
    context_window=1_048_576,
    max_output_tokens=65_536,
)
_COMPATIBLE = Profile(images=True)
_CONSTRAINED = Profile(schema=True, images=True)
"""Servers that hold any model they run to a schema; what others promise differs from model to model."""


def _with(profile: Profile, price: Price | None = None, **fields: object) -> Profile:
    return msgspec.structs.replace(profile, price=price, **fields)


def _openai(input: float, output: float, cache_read: float) -> Price:
    return Price(input=input, output=output, cache_read=cache_read)


def _claude(input: float, output: float) -> Price:
    return Price(input=input, output=output, cache_read=input * 0.1, cache_create=input * 1.25)


_OPENAI_ROWS = (
    ("gpt-5.4-nano*", _with(_CAN_STOP, _openai(0.2, 1.25, 0.02))),
    ("gpt-5.4-mini*", _with(_CAN_STOP, _openai(0.75, 4.5, 0.075))),
    ("gpt-5.4*", _with(_CAN_STOP, _openai(2.5, 15, 0.25))),
    ("gpt-5.2-pro*", _CAN_STOP),
    ("gpt-5.2*", _with(_CAN_STOP, _openai(1.75, 14, 0.175))),
    ("gpt-5.1*", _with(_CAN_STOP, _openai(1.25, 10, 0.125))),
    ("gpt-5-nano*", _with(_OPENAI_THINKS, _openai(0.05, 0.4, 0.005), thinking_off="minimal")),
    ("gpt-5-mini*", _with(_OPENAI_THINKS, _openai(0.25, 2, 0.025), thinking_off="minimal")),
    ("gpt-5-pro*", _OPENAI_THINKS),
    ("gpt-5-chat*", _with(_OPENAI, _openai(1.25, 10, 0.125))),
    ("gpt-5-2*", _with(_OPENAI_THINKS, _openai(1.25, 10, 0.125), thinking_off="minimal")),
    ("gpt-5", _with(_OPENAI_THINKS, _openai(1.25, 10, 0.125), thinking_off="minimal")),
    ("gpt-4.1-nano*", _with(_OPENAI, _openai(0.1, 0.4, 0.025), context_window=1_047_576, max_output_tokens=32_768)),
    ("gpt-4.1-mini*", _with(_OPENAI, _openai(0.4, 1.6, 0.1), context_window=1_047_576, max_output_tokens=32_768)),
    ("gpt-4.1*", _with(_OPENAI, _openai(2, 8, 0.5), context_window=1_047_576, max_output_tokens=32_768)),
    ("gpt-4o-audio*", _with(_OPENAI, audio=True, images=False, schema=False)),
    ("gpt-audio*", _with(_OPENAI, audio=True, images=False, schema=False)),
    ("gpt-4o-mini*", _with(_OPENAI, _openai(0.15, 0.6, 0.075))),
    ("gpt-4o*", _with(_OPENAI, _openai(2.5, 10, 1.25))),
    ("o4-mini*", _with(_OPENAI_THINKS, _openai(1.1, 4.4, 0.275), context_window=200_000, max_output_tokens=100_000)),
    ("o3-mini*", _with(_OPENAI_THINKS, _openai(1.1, 4.4, 0.55), images=False, context_window=200_000, max_output_tokens=100_000)),
    ("o3*", _with(_OPENAI_THINKS, _openai(2, 8, 0.5), context_window=200_000, max_output_tokens=100_000)),
    ("o1*", _with(_OPENAI_THINKS, _openai(15, 60, 7.5), context_window=200_000, max_output_tokens=100_000)),
    ("gpt-4*", _with(_OPENAI, schema=False)),
    ("gpt-3.5*", _with(_OPENAI, schema=False, images=False, context_window=16_385, max_output_tokens=4_096)),
    ("*", _CAN_STOP),
)
_ANTHROPIC_ROWS = (
    ("claude-opus-4-6*", _with(_CLAUDE, _claude(5, 25), max_output_tokens=128_000)),
    ("claude-opus-4-[78]*", _with(_CLAUDE, _claude(5, 25), max_output_tokens=128_000, sampling=False)),
    ("claude-sonnet-4-6*", _with(_CLAUDE, _claude(3, 15))),
    ("claude-opus-4-5*", _with(_CLAUDE_BUDGET, _claude(5, 25))),
    ("claude-sonnet-4-5*", _with(_CLAUDE_BUDGET, _claude(3, 15))),
    ("claude-haiku-4-5*", _with(_CLAUDE_BUDGET, _claude(1, 5))),
    ("claude-opus-4-1*", _with(_CLAUDE_BUDGET, _claude(15, 75), max_output_tokens=32_000)),
    ("claude-opus-4*", _with(_CLAUDE_FREE, _claude(15, 75), max_output_tokens=32_000)),
    ("claude-sonnet-4*", _with(_CLAUDE_FREE, _claude(3, 15))),
    ("claude-3-7*", _with(_CLAUDE_FREE, _claude(3, 15))),
    ("claude-3-5-haiku*", _with(_CLAUDE_FREE, _claude(0.8, 4), thinking=None, max_output_tokens=8_192)),
    ("claude-3*", _with(_CLAUDE_FREE, thinking=None, max_output_tokens=4_096)),
    ("*", msgspec.structs.replace(_CLAUDE, sampling=False)),
)
_GOOGLE_ROWS = (
    ("gemini-2.5-flash-lite*", _with(_GEMINI, Price(input=0.1, output=0.4, cache_read=0.01), thinking="budget", thinking_off="0")),
    ("gemini-2.5-flash*", _with(_GEMINI, Price(input=0.3, output=2.5, cache_read=0.03), thinking="budget", thinking_off="0")),
    ("gemini-2.5-pro*", _with(_GEMINI, Price(input=1.25, output=10, cache_read=0.125), thinking="budget", thinking_off="128")),
    ("gemini-2.0*", _with(_GEMINI, Price(input=0.1, output=0.4), thinking=None, thinking_off=None, max_output_tokens=8_192)),
    ("gemini-1*", _with(_GEMINI, thinking=None, thinking_off=None, max_output_tokens=8_192)),
    ("gemini-3-pro*", _with(_GEMINI, Price(input=2, output=12, cache_read=0.2), thinking_off="low")),
    ("gemini-3.1-pro*", _with(_GEMINI, Price(input=2, output=12, cache_read=0.2), thinking_off="low")),
    ("gemini-3-flash*", _with(_GEMINI, Price(input=0.5, output=3, cache_read=0.05))),
    ("*", _GEMINI),
)
_DEEPSEEK_ROWS = (
    ("deepseek-reasoner*", _with(_COMPATIBLE, Price(input=0.28, output=0.42, cache_read=0.028), images=False, context_window=128_000)),
    ("*", _with(_COMPATIBLE, Price(input=0.28, output=0.42, cache_read=0.028), images=False, context_window=128_000)),
)
ROWS: dict[str, tuple[tuple[str, Profile], ...]] = {
    "openai": _OPENAI_ROWS,
    "openai_chat": _OPENAI_ROWS,
    "azure": _OPENAI_ROWS,
    "anthropic": _ANTHROPIC_ROWS,
    "google": _GOOGLE_ROWS,
    "deepseek": _DEEPSEEK_ROWS,
    "llamacpp": (("*", msgspec.structs.replace(_CONSTRAINED, grammar=True)),),
    "ollama": (("*", _CONSTRAINED),),
    "vllm": (("*", _CONSTRAINED),),
    "lmstudio": (("*", _CONSTRAINED),),
}


@functools.lru_cache(maxsize=512)
def profile_of(provider: str, model: str) -> Profile:
    """What the table says of a model; any provider that it does not know is taken for an OpenAI-compatible one."""
    for pattern, profile in ROWS.get(provider, ()):
        if fnmatch.fnmatchcase(model, pattern):
            return profile
    return _COMPATIBLE


def priced(finish: Finish, profile: Profile) -> Finish:
    """The Finish with the cost of its tokens, where the server told none and the price is known."""
    usage, price = finish.usage, profile.price
    if usage is None or price is None or usage.cost is not None:
        return finish
    plain = max(0, usage.input_tokens - usage.cache_read - usage.cache_create)
    read = usage.cache_read * (price.input if price.cache_read is None else price.cache_read)
    create = usage.cache_create * (price.input if price.cache_create is None else price.cache_create)
    cost = (plain * price.input + read + create + usage.output_tokens * price.output) / 1_000_000
    return msgspec.structs.replace(finish, usage=msgspec.structs.replace(usage, cost=cost))
