"""What OpenProgram costs, measured beside what it is compared with.

    make bench                     every area
    make bench AREA=imports        one area
    python -m benchmarks [area] [--json]

One row per figure: its name, value, unit, bar, and whether the bar is kept. The exit code is 1 when a bar is missed, 2 for an unknown area.

To add an area, add one file here. Its name is the area's name (one with a leading underscore is a helper), and it has one function::

    def figures() -> Iterator[Figure]:
        yield Figure("startup.imports", value=31.2, unit="ms", bar=60)

Measure both sides in turns (`_measure.interleaved`), so that a busy machine slows both, and take the best of the runs for a cost, the median for what a user
waits. A figure without a bar is reported only. Figures belong here and not into tests, which assert counts and order.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Figure(NamedTuple):
    """One measured number. ``bar`` is the worst value that is good enough, None where there is none; ``better`` says which side of it is."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    better: Literal["lower", "higher"] = "lower"

    @property
    def ok(self) -> bool:
        """Whether the bar is kept."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.better == "lower" else self.value >= self.bar
