"""What a forked child must not inherit: a held lock, a thread that is not there, a database connection.

Everything guarded is told before `os.fork`, in the forking thread, and again on both sides after it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something that can stand a fork."""

    def before_fork(self) -> None:
        """Take the lock and let go of what cannot be shared."""
        ...

    def after_fork(self) -> None:
        """Release the lock; called in the parent and in the child."""
        ...


_guarded: weakref.WeakSet[Forkable] = weakref.WeakSet()
_held: list[Forkable] = []
# One fork at a time: two that take the same locks in another order would wait for each other.
_forking = threading.Lock()


def guard(thing: Forkable) -> None:
    """Tell ``thing`` of forks for as long as it lives."""
    with _forking:
        _guarded.add(thing)


def _before() -> None:
    _forking.acquire()
    for thing in list(_guarded):
        thing.before_fork()
        _held.append(thing)


def _after() -> None:
    while _held:
        _held.pop().after_fork()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
