"""Reading the store: sessions and nodes by id or the beginning of one. Looking never makes a store that is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from openprogram_protocol import paths

from openprogram_cli.exits import usage

if TYPE_CHECKING:
    from openprogram.context.call import Call, SessionInfo
    from openprogram.store.base import Store

PAGE = 500


@contextlib.contextmanager
def opened(*, local: bool) -> Generator[Store | None]:
    """The daemon's store, or with ``local`` the file itself; None when nothing was ever recorded there. Raises Stop, StoreError."""
    if local:
        yield open_existing()
        return
    from openprogram.remote import RemoteStore
    from openprogram_cli.shared import connected

    with connected() as client:
        yield RemoteStore(client.connection)


def open_existing() -> Store | None:
    """The store of this home; None when nothing was ever recorded there. Raises StoreError when it cannot be reached or opened."""
    from openprogram.store.files import exists

    if not exists(paths.store_file()):
        return None
    from openprogram.store.registry import open_store

    return open_store()


def all_sessions(store: Store) -> Iterator[SessionInfo]:
    """Every session, the one written last first."""
    offset = 0
    while page := store.sessions(limit=PAGE, offset=offset):
        yield from page
        offset += len(page)


def find_session(store: Store | None, wanted: str | None) -> SessionInfo:
    """The session of that id or of the only id that begins so; the one written last without an id. Raises Stop (2)."""
    newest = next(all_sessions(store), None) if store else None
    if store is None or newest is None:
        raise usage(f"no session was recorded in {paths.home()} yet; `openprogram run` records one")
    if wanted is None:
        return newest
    found = list(all_sessions(store))
    matches = [info for info in found if info.id == wanted] or [info for info in found if wanted and info.id.startswith(wanted)]
    if not matches:
        raise usage(f"there is no session {wanted!r}; `openprogram sessions` lists them")
    if len(matches) > 1:
        raise usage(f"{wanted!r} is the beginning of several sessions: {', '.join(info.id for info in matches[:6])}")
    return matches[0]


def nodes_of(store: Store, session_id: str) -> list[Call]:
    """Every node of a session, by seq."""
    nodes: list[Call] = []
    while page := store.page(session_id, after=nodes[-1].seq if nodes else 0, limit=PAGE):
        nodes += page
    return nodes


def short(node_id: str) -> str:
    """An id as lists show it: ``llm-1a2b3c4d``."""
    kind, dash, digits = node_id.partition("-")
    return f"{kind}-{digits[:8]}" if dash and len(digits) > 12 else node_id


def _begun_so(nodes: list[Call], wanted: str) -> list[Call]:
    return [node for node in nodes if wanted and (node.id.startswith(wanted) or node.id.partition("-")[2].startswith(wanted))]


def _in_another(store: Store, session: SessionInfo, wanted: str) -> list[Call]:
    for other in all_sessions(store):
        if other.id != session.id and (found := _begun_so(nodes_of(store, other.id), wanted)):
            return found
    return []


def find_node(store: Store, session: SessionInfo, wanted: str, *, anywhere: bool) -> Call:
    """The node of that id, of the only id in the session that begins so (with or without its ``llm-``), or of that seq. Raises Stop (2).

    ``anywhere``: when the session has none, that of the session written last that has one; a seq says nothing of other sessions.
    """
    nodes = nodes_of(store, session.id)
    matches = [node for node in nodes if wanted == node.id]
    if not matches and wanted.isdecimal() and len(wanted) < 8:
        matches = [node for node in nodes if str(node.seq) == wanted]
    matches = matches or _begun_so(nodes, wanted)
    if not matches and anywhere:
        whole = store.node(wanted)
        matches = [whole] if whole is not None else _in_another(store, session, wanted)
    if not matches and anywhere:
        raise usage(f"there is no node {wanted!r} in any session; `openprogram sessions` lists them, `openprogram dag SESSION` shows their nodes")
    if not matches:
        raise usage(f"there is no node {wanted!r} in session {session.id}; `openprogram dag {session.id}` shows them")
    if len(matches) > 1:
        raise usage(f"{wanted!r} is the beginning of several nodes: {', '.join(short(node.id) for node in matches[:6])}")
    return matches[0]
