"""What a call of `exec` says about tools, as it was said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Offer(NamedTuple):
    """The parameters of ``exec`` that are about tools."""

    tools: Iterable[Any] | None = None
    toolset: str | Iterable[str] | None = None
    source: str | None = None
    allow: Iterable[str] | None = None
    deny: Iterable[str] | None = None
    choice: str | dict[str, Any] = "auto"
    parallel: bool = True
    max_iterations: int = 20

    @property
    def is_plain(self) -> bool:
        """Whether nothing was said."""
        return self.tools is None and self[1:] == _NOTHING[1:]


_NOTHING = Offer()
