"""How hard a model is asked to think: one word for all providers, ``off``, ``low``, ``medium``, ``high`` or ``xhigh``."""

from __future__ import annotations

from openprogram.errors import UsageError
from openprogram.providers.base import Profile

LEVELS = ("off", "low", "medium", "high", "xhigh")
_BUDGETS = {"low": 2048, "medium": 8192, "high": 16384, "xhigh": 32000}


def check_level(level: str | None) -> str | None:
    """The level. Raises UsageError for a word that is none."""
    if level is not None and level not in LEVELS:
        raise UsageError(f"thinking is one of {', '.join(LEVELS)}, not {level!r}")
    return level


def effort(level: str | None, profile: Profile) -> str | None:
    """The effort to send; None for nothing. A model that cannot be asked to think is not."""
    if check_level(level) is None or profile.thinking is None:
        return None
    return profile.thinking_off if level == "off" else level


def budget(level: str | None) -> int | None:
    """Tokens that a model may think with; None for ``off`` and where nothing was said."""
    return _BUDGETS.get(check_level(level) or "")
