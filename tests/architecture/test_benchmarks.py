"""The benchmarks' own rules; what they measure is measured by `make bench`."""

from __future__ import annotations

import importlib
from typing import Literal

import pytest

from benchmarks import Figure
from benchmarks.__main__ import areas, main, row


@pytest.mark.parametrize(
    ("value", "bar", "better", "ok"),
    [(60, 60, "lower", True), (60.1, 60, "lower", False), (5, 5, "higher", True), (4.9, 5, "higher", False), (1e9, None, "lower", True)],
)
def test_a_bar_is_the_worst_that_is_good_enough(value: float, bar: float | None, better: Literal["lower", "higher"], ok: bool) -> None:
    """A value at the bar keeps it, one on the wrong side misses it, and a row says which; without a bar there is nothing to miss."""
    figure = Figure("area.name", value, "ms", bar, better)
    assert figure.ok is ok
    assert row(figure).split()[0] == "area.name"
    assert row(figure).split()[-1] == ("ok" if ok else "MISSED")


@pytest.mark.parametrize("area", areas())
def test_every_area_has_figures(area: str) -> None:
    """Each file of benchmarks/ without an underscore can be asked for its figures."""
    assert callable(importlib.import_module(f"benchmarks.{area}").figures)


def test_an_unknown_area_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused before anything is measured, with the areas there are."""
    with pytest.raises(SystemExit) as stop:
        main(["no-such-area"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert all(area in said for area in areas())


@pytest.mark.parametrize(("bar", "code"), [(2.0, 0), (0.5, 1)])
def test_a_missed_bar_is_the_exit_code(bar: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All figures are printed whichever are missed; the exit code says whether one was."""
    figures = [Figure("a.kept", 1.0, "s", bar=1.0), Figure("a.other", 1.0, "s", bar=bar)]
    monkeypatch.setattr("benchmarks.imports.figures", lambda: iter(figures))
    assert main(["imports"]) == code
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["name", "a.kept", "a.other"]
