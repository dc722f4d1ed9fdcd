"""What the progress line says while a model loads, and when."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest
from openprogram_cli.progress import LOADING, moments, progress

from openprogram.errors import ConfigurationError
from openprogram.providers.host_process import ModelHost


def test_loading_a_model_is_said_in_the_line(tmp_path: Path) -> None:
    """A model host that loads a file inside the block makes the line say so."""
    pytest.importorskip("xllamacpp", reason="the engine of the local model is an extra")
    path = tmp_path / "any.gguf"
    path.write_bytes(b"GGUF, but no model")
    with progress("waiting") as shown:
        assert shown.doing == "waiting"
        with pytest.raises(ConfigurationError):
            ModelHost(path).start(30.0)
        assert shown.doing == "loading the model any.gguf"


def test_the_line_goes_back_when_the_model_is_loaded() -> None:
    """After loading it says again what it said before."""
    with progress("waiting") as shown:
        for text in ("loading the model any.gguf …", "loaded the model any.gguf in 0.4 s"):
            logging.getLogger(LOADING).info(text)
        assert shown.doing == "waiting"


@pytest.mark.parametrize(("level", "logged"), [(logging.WARNING, []), (logging.INFO, ["loading the model any.gguf …"])])
def test_what_a_program_logs_stays_as_it_was(caplog: pytest.LogCaptureFixture, level: int, logged: list[str]) -> None:
    """A program that logs at INFO still gets the record, another none more; afterwards the logger is as it was."""
    caplog.set_level(level)
    logger = logging.getLogger(LOADING)
    before = (logger.level, logger.propagate, list(logger.handlers))
    with progress("waiting"):
        logger.info("loading the model any.gguf …")
    assert caplog.messages == logged
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


@pytest.mark.parametrize(("terminal", "expected"), [(True, [1, 2, 3, 4, 5]), (False, [1, 10, 60, 120, 180])])
def test_lines_come_ever_further_apart_elsewhere_than_on_a_terminal(terminal: bool, expected: list[float]) -> None:
    """A terminal's line counts the seconds; a log gets one early, and then one a minute for as long as it takes."""
    assert list(itertools.islice(moments(terminal), 5)) == expected
