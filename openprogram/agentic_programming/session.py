"""``openprogram.session(...)``: record what runs inside in a branch of a session of a store.

Entering sets the scope of the calls made inside and leaving restores the one around, in the thread or task that does it and nowhere else: one session may be
entered by many at once, and again after it was left.
"""

from __future__ import annotations

import datetime
import os
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any

from openprogram.context import branches
from openprogram.context import scope as scopes
from openprogram.context.call import MAIN, Branch, Call
from openprogram.context.view import View, view_of
from openprogram.errors import StoreCorruptError

if TYPE_CHECKING:
    from openprogram.store.base import Store

_entered: ContextVar[tuple[tuple[Session, scopes.Scope | None], ...]] = ContextVar("openprogram_sessions", default=())
"""The sessions that were entered here, each with the scope around it. Scopes are set back by value: a token could not be used from another context."""


class Session:
    """A branch of a session that is being written. Use it as a context manager, sync or async.

    ``id``, ``store``, ``info`` and ``branch`` say what and where. On a branch that `retry` or `edit` made, ``replaces`` is the node whose place is free and
    ``content`` what to ask there.
    """

    replaces: Call | None = None
    content: Any = None

    def __init__(self, id: str | None = None, *, title: str | None = None, store: Store | None = None, branch: str | None = None) -> None:
        if store is None:
            from openprogram.store.registry import open_store

            store = open_store()
        self.id = id if id is not None else _made_up_id()
        self.store: Store = store
        self.info = store.create_session(self.id, title=title or "")
        if branch is None or branch == MAIN:
            self.branch = Branch(id=self.info.frame, session=self.id, name=MAIN, created_at=self.info.created_at)
        else:
            self.branch = branches.find(store, self.id, branch)
        self._kept: View | None = None

    def nodes(self) -> list[Call]:
        """Every node of the session, by ``seq``, of all branches."""
        nodes: list[Call] = []
        while page := self.store.page(self.id, after=nodes[-1].seq if nodes else 0):
            nodes += page
        return nodes

    def branches(self) -> list[Branch]:
        """The branches of the session, the main one first. Raises StoreError where the store keeps only that one."""
        return branches.branching(self.store).branches(self.id)

    def conversation(self) -> list[Call]:
        """The nodes that stand on this branch, from the beginning to its head. Raises StoreCorruptError for a broken chain, naming the node."""
        return branches.conversation(self.store, self.branch.id)

    @property
    def head(self) -> str | None:
        """The node that the next one on this branch will follow."""
        return branches.head(self.store, self.branch.id)

    def fork(self, after: Call | str | None = None, *, name: str = "") -> Session:
        """A new branch that goes on after a node (by default the head), with a name that is made up where it is empty.

        Raises UsageError for a node that is unknown, inside a function, or no part of the conversation; StoreError for a name that is taken.
        """
        return self._on(branches.fork(self.store, self.branch, _id_of(after), name=name))

    def retry(self, node: Call | str, *, name: str = "") -> Session:
        """A new branch on which a node has not happened: ``with recorded.retry(node) as again: runtime.exec(again.content)``.

        What runs on it first gets the same predecessor as the node. Nothing is asked by this itself. Raises UsageError for a node that is unknown or inside a
        function.
        """
        made = self._on(branches.sibling(self.store, self.id, _id_of(node), name=name))
        made.replaces = self.store.node(_id_of(node))
        made.content = None if made.replaces is None else branches.content_of(made.replaces)
        return made

    def edit(self, node: Call | str, content: Any, *, name: str = "") -> Session:
        """`retry` with another ``content``."""
        made = self.retry(node, name=name)
        made.content = content
        return made

    def spawn(self, *, name: str = "") -> Session:
        """A new branch of this session that sees nothing of the others."""
        return self._on(branches.spawn(self.store, self.id, name=name))

    def _on(self, branch: Branch) -> Session:
        return Session(self.id, store=self.store, branch=branch.id)

    def _view(self) -> View:
        if self._kept is None:
            self._kept = view_of(self.store, self.branch.id)
        if self._kept is None:
            raise StoreCorruptError(f"session {self.id!r} has no branch {self.branch.name!r} in the store; `openprogram store check` says what is missing")
        return self._kept

    def __enter__(self) -> Session:
        scope = scopes.Scope(store=self.store, session=self.id, view=self._view())
        _entered.set((*_entered.get(), (self, scopes.current.get())))
        scopes.current.set(scope)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        entered = _entered.get()
        for place in range(len(entered) - 1, -1, -1):
            session, outer = entered[place]
            if session is self:
                _entered.set(entered[:place])
                scopes.current.set(outer)
                return

    async def __aenter__(self) -> Session:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.__exit__(kind, error, trace)


def _id_of(node: Any) -> Any:
    return node.id if isinstance(node, Call) else node


def _made_up_id() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{os.urandom(4).hex()}"


def session(id: str | None = None, *, title: str | None = None, store: Store | None = None, branch: str | None = None) -> Session:
    """Record the calls made inside ``with session(...)`` in the session ``id`` (a new one without it; an existing one goes on).

    ``store`` is a `Store`, by default the one file of ``OPENPROGRAM_HOME``. ``branch`` names one that was made by `Session.fork` and its like; by default the
    main one. Raises ValueError for an id or branch that cannot be one, StoreError when the store cannot be opened.
    """
    return Session(id, title=title, store=store, branch=branch)
