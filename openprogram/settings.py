"""``[tool.openprogram]`` of a workspace's pyproject.toml: the one place that reads it. A mistake in it is told, never raised and never passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

KEYS = ("functions", "model")


class Settings(NamedTuple):
    """The values; ``problem`` says why there are none, ``unknown`` names the keys that nothing reads."""

    model: str | None = None
    functions: tuple[str, ...] | None = None
    problem: str | None = None
    unknown: tuple[str, ...] = ()

    def warning(self, file: Path) -> str | None:
        """What the user should be told of keys that nothing reads."""
        if not self.unknown:
            return None
        import difflib

        near = {key: difflib.get_close_matches(key, KEYS, n=1) for key in self.unknown}
        named = ", ".join(f"{key!r} (did you mean {near[key][0]!r}?)" if near[key] else repr(key) for key in self.unknown)
        return f"{file}: [tool.openprogram] has no key {named}; it has {' and '.join(KEYS)}"


def settings_of(root: Path) -> Settings:
    """Read the table of a folder; an absent table or file is empty settings."""
    try:
        data = (root / "pyproject.toml").read_bytes()
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        return Settings(problem=f"the file cannot be read: {error.strerror or error}")
    import tomllib

    try:
        table: Any = tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n")).get("tool", {})
    except ValueError as error:
        return Settings(problem=str(error))
    own: Any = cast("dict[str, Any]", table).get("openprogram") if isinstance(table, dict) else None
    return _checked(cast("dict[str, Any]", own)) if isinstance(own, dict) else Settings()


def _checked(table: dict[str, Any]) -> Settings:
    model, functions = table.get("model"), table.get("functions")
    problem = None
    if model is not None and not isinstance(model, str):
        problem = f"[tool.openprogram] model = {model!r} must be a string such as 'anthropic:claude-sonnet-4-6'"
    if isinstance(functions, str):
        functions = [functions]
    if functions is not None and not (isinstance(functions, list) and all(isinstance(item, str) for item in cast("list[Any]", functions))):
        problem = f"[tool.openprogram] functions = {functions!r} must be a list of paths or globs"
    unknown = tuple(key for key in table if key not in KEYS)
    if problem:
        return Settings(problem=problem, unknown=unknown)
    return Settings(model, None if functions is None else tuple(cast("list[str]", functions)), None, unknown)
