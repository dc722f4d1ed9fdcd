"""The tools that models may call: ``@function``, and the one registry that ``@agentic_function`` shares with it."""

from __future__ import annotations

from openprogram.functions.decorated import PlainFunction
from openprogram.functions.options import DEFAULT_HEAD_RATIO, DEFAULT_MAX_RESULT_CHARS
from openprogram.functions.plain import function
from openprogram.functions.registry import isolated, registered, unregister

__all__ = ["DEFAULT_HEAD_RATIO", "DEFAULT_MAX_RESULT_CHARS", "PlainFunction", "function", "isolated", "registered", "unregister"]
