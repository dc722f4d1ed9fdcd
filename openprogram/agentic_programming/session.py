"""``openprogram.session(...)``: record what runs inside in a session of a store."""

from __future__ import annotations

import datetime
import os
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING

from openprogram.context import scope as scopes
from openprogram.context.call import Call
from openprogram.context.view import view_of
from openprogram.errors import StoreError

if TYPE_CHECKING:
    from openprogram.store.base import Store


class Session:
    """A session that is being written. Use it as a context manager, sync or async; it may be entered again after it was left."""

    def __init__(self, id: str | None = None, *, title: str | None = None, store: Store | None = None) -> None:
        if store is None:
            from openprogram.store.registry import open_store

            store = open_store()
        self.id = id if id is not None else _made_up_id()
        self.store: Store = store
        self.info = store.create_session(self.id, title=title or "")
        self._tokens: list[Token[scopes.Scope | None]] = []

    def nodes(self) -> list[Call]:
        """Every node of the session, by ``seq``."""
        nodes: list[Call] = []
        while page := self.store.page(self.id, after=nodes[-1].seq if nodes else 0):
            nodes += page
        return nodes

    def __enter__(self) -> Session:
        view = view_of(self.store, self.info.frame)
        if view is None:
            raise StoreError(f"session {self.id!r} has no main branch in the store; `openprogram doctor` checks the file")
        self._tokens.append(scopes.current.set(scopes.Scope(store=self.store, session=self.id, view=view)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        scopes.current.reset(self._tokens.pop())

    async def __aenter__(self) -> Session:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.__exit__(kind, error, trace)


def _made_up_id() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{os.urandom(4).hex()}"


def session(id: str | None = None, *, title: str | None = None, store: Store | None = None) -> Session:
    """Record the calls made inside ``with session(...)`` in the session ``id`` (a new one without it; an existing one goes on).

    ``store`` is a `Store`, by default the one file of ``OPENPROGRAM_HOME``. Raises ValueError for an id that cannot be one, StoreError when the store cannot
    be opened.
    """
    return Session(id, title=title, store=store)
