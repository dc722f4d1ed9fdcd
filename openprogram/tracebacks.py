"""The traceback of user code: from the user's file on, without the frames of OpenProgram and of the import machinery."""

from __future__ import annotations

import importlib.util
import os
import traceback
from pathlib import Path

_PACKAGES = ("openprogram", "openprogram_cli", "openprogram_clients", "openprogram_daemon", "openprogram_protocol")


def _folders() -> tuple[str, ...]:
    found: list[str] = []
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None:
            found += [str(Path(place).resolve()) + os.sep for place in spec.submodule_search_locations or ()]
    return tuple(found)


def users_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, user frames only; an exception that no user frame took part in is left out of the chain."""
    report = traceback.TracebackException.from_exception(error, compact=True)
    folders = _folders()
    _strip(report, folders, set())
    text = "".join(report.format())
    return text if report.stack else "".join(report.format_exception_only())


def _strip(report: traceback.TracebackException, folders: tuple[str, ...], seen: set[int]) -> None:
    todo = [report]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        frames = [frame for frame in part.stack if not _is_ours(frame.filename, folders)]
        part.stack = traceback.StackSummary.from_list(_from_first_user_frame(frames))
        for name in ("__cause__", "__context__"):
            linked = getattr(part, name)
            if linked is None:
                continue
            if all(_is_ours(frame.filename, folders) for frame in linked.stack) and not getattr(linked, "exceptions", None):
                setattr(part, name, None)
            else:
                todo.append(linked)
        todo += part.exceptions or []


def _is_ours(filename: str, folders: tuple[str, ...]) -> bool:
    if filename.startswith("<frozen "):
        return True
    return filename.startswith(folders) or os.path.realpath(filename).startswith(folders)


def _from_first_user_frame(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Without the leading frames of the standard library that lead to user code (asyncio, runpy); nothing when they lead to none."""
    standard = str(Path(os.__file__).resolve().parent) + os.sep
    for index, frame in enumerate(frames):
        if not frame.filename.startswith(standard) or "site-packages" in frame.filename:
            return frames[index:]
    return []
