"""Which sessions are old enough to go."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from openprogram.context.call import SessionInfo
from openprogram.errors import StoreError, UnknownSessionError, UsageError
from openprogram.store.base import Archive, Store

_PAGE = 500


class Kept(Store, Archive, Protocol):
    """A store whose sessions can be listed and deleted."""


class Pruned(NamedTuple):
    """Sessions that were deleted (with ``dry_run``: would be), and those that were old enough but in use."""

    deleted: list[SessionInfo]
    in_use: list[SessionInfo]


def prune(store: Kept, *, older_than: float | datetime.timedelta | None = None, keep: int | None = None, dry_run: bool = False) -> Pruned:
    """Delete the sessions last written longer ago than ``older_than`` (seconds) and those beyond the ``keep`` that were written last.

    A session in which calls of a living process are open, or which was written to meanwhile, stays. Raises UsageError when neither is given or one is negative.
    """
    seconds = older_than.total_seconds() if isinstance(older_than, datetime.timedelta) else older_than
    if seconds is None and keep is None:
        raise UsageError("say which sessions may go: those older than a time, those beyond a number to keep, or both")
    if (seconds is not None and not seconds >= 0) or (keep is not None and keep < 0):
        raise UsageError(f"neither a time nor a number of sessions can be negative: older_than={seconds!r}, keep={keep!r}")
    found = list(enumerate(_sessions(store)))
    now = time.time()
    old = [info for place, info in found if (seconds is not None and now - info.updated_at > seconds) or (keep is not None and place >= keep)]
    pruned = Pruned([], [])
    for info in reversed(old):
        (pruned.deleted if dry_run or _deleted(store, info) else pruned.in_use).append(info)
    return pruned


def _sessions(store: Kept) -> Iterator[SessionInfo]:
    seen: set[str] = set()
    offset = 0
    # One that is written to meanwhile moves to the front and pushes others back to where they are seen again.
    while page := store.sessions(limit=_PAGE, offset=offset):
        yield from (info for info in page if info.id not in seen)
        seen |= {info.id for info in page}
        offset += len(page)


def _deleted(store: Kept, info: SessionInfo) -> bool:
    try:
        if store.session(info.id).updated_at != info.updated_at:
            return False
        store.delete_session(info.id)
    except UnknownSessionError:  # somebody else deleted it
        return True
    except StoreError:
        return False
    return True
