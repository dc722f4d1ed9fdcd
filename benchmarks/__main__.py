"""``python -m benchmarks [area] [--json]``."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator, Sequence

import benchmarks
from benchmarks import Figure


def areas() -> list[str]:
    """The names of all areas."""
    return sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_"))


def measured(names: Sequence[str]) -> Iterator[Figure]:
    """The figures of these areas, each as soon as it is known."""
    for name in names:
        yield from importlib.import_module(f"benchmarks.{name}").figures()


def row(figure: Figure) -> str:
    """A figure as a line of the table."""
    sign = "<=" if figure.better == "lower" else ">="
    bar = "-" if figure.bar is None else f"{sign} {figure.bar:g}"
    return f"{figure.name:<40} {figure.value:>12.3f} {figure.unit:<10} {bar:<12} {'ok' if figure.ok else 'MISSED'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure OpenProgram against its bars.")
    parser.add_argument("area", nargs="?", choices=areas(), metavar="area", help=f"one of: {', '.join(areas())} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    if not options.json:
        print(f"{'name':<40} {'value':>12} {'unit':<10} {'bar':<12} ok")
    done: list[Figure] = []
    for figure in measured([options.area] if options.area else areas()):
        done.append(figure)
        if not options.json:
            print(row(figure), flush=True)
    if options.json:
        print(json.dumps({"figures": [{**figure._asdict(), "ok": figure.ok} for figure in done]}, indent=2))
    return 0 if all(figure.ok for figure in done) else 1


if __name__ == "__main__":
    sys.exit(main())
