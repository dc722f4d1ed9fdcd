"""A session as a file: JSON Lines, one for the session, then one for each frame, branch, node and view log, and one that says that this was all.

Values stand there in their stored form (`openprogram.store.values`), so that a session reads back exactly, wherever it was written. Nothing is imported from
a file that is cut off or does not fit together.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from openprogram.context.call import Branch, Frame, LogEntry, SessionInfo
from openprogram.errors import StoreError
from openprogram.store import rows, values
from openprogram.store.base import Archive
from openprogram.store.ids import check_session_id

VERSION = 1

T = TypeVar("T")


class Dump(NamedTuple):
    """A whole session, checked. ``payloads`` holds the long values that rows refer to, by key."""

    info: SessionInfo
    frames: list[Frame]
    branches: list[Branch]
    nodes: list[rows.Row]
    payloads: dict[bytes, str]
    logs: dict[str, list[LogEntry]]


# A field that is not there, told from one that holds null by its identity.
_NOTHING = msgspec.Raw(b"null")


class _Session(msgspec.Struct, kw_only=True):
    id: str
    title: msgspec.Raw
    frame: str
    nodes: int
    created_at: float
    updated_at: float


class _Node(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A row without its session. ``metadata`` is what the node was opened with, ``closing`` what it was closed with."""

    id: str
    seq: int
    role: str
    name: msgspec.Raw
    frame: str
    status: str
    caller: str | None = None
    predecessor: str | None = None
    reads: tuple[str, int] | None = None
    started_at: float
    ended_at: float | None = None
    input: msgspec.Raw = _NOTHING
    output: msgspec.Raw = _NOTHING
    exchanges: msgspec.Raw = _NOTHING
    metadata: msgspec.Raw = _NOTHING
    closing: msgspec.Raw = _NOTHING


class _Log(msgspec.Struct, kw_only=True):
    frame: str
    entries: list[tuple[str, int]]


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line; exactly one of its fields is there, with ``session`` also ``openprogram``, the version of the format."""

    openprogram: int | None = None
    session: _Session | None = None
    frame: Frame | None = None
    branch: Branch | None = None
    node: _Node | None = None
    log: _Log | None = None
    end: int | None = None


def _line(**fields: Any) -> bytes:
    return msgspec.json.encode(_Line(**fields)) + b"\n"


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(values.encode(value).encode())


def _session(info: SessionInfo) -> _Session:
    return _Session(id=info.id, title=_raw(info.title), frame=info.frame, nodes=info.nodes, created_at=info.created_at, updated_at=info.updated_at)


def head(info: SessionInfo, frames: Iterable[Frame], branches: Iterable[Branch]) -> Iterator[bytes]:
    """The lines before the nodes. ``branches`` are those besides the main one."""
    yield _line(openprogram=VERSION, session=_session(info))
    yield from (_line(frame=frame) for frame in frames)
    yield from (_line(branch=branch) for branch in branches)


def node(row: rows.Row, payloads: Mapping[bytes, rows.Payload]) -> bytes:
    """The line of a node. What cannot be read is said so in its place."""

    def raw(cell: rows.Cell) -> msgspec.Raw:
        if cell is None:
            return _NOTHING
        try:
            return msgspec.Raw(rows.json_of(cell, payloads).encode())
        except ValueError as error:
            return _raw(rows.unreadable(f"a value of node {row.id}", error))

    line = _Node(
        id=row.id,
        seq=row.seq,
        role=row.role,
        name=_raw(rows.text_of(row.name)),
        frame=row.frame,
        status=row.status,
        caller=row.caller,
        predecessor=row.predecessor,
        reads=None if row.reads_frame is None else (row.reads_frame, row.reads_upto or 0),
        started_at=row.started,
        ended_at=row.ended,
        input=raw(row.input),
        output=raw(row.output),
        exchanges=raw(row.exchanges),
        metadata=raw(row.metadata),
        closing=raw(row.closing),
    )
    return _line(node=line)


def log(frame: str, entries: Iterable[LogEntry]) -> bytes:
    """The line of a view log."""
    return _line(log=_Log(frame=frame, entries=[(entry.node, entry.inner) for entry in entries]))


def end(nodes: int) -> bytes:
    """The last line."""
    return _line(end=nodes)


def export_session(store: Archive, session_id: str, path: str | Path) -> SessionInfo:
    """Write a session into a file, which is whole whenever it is there; an older one is replaced. Raises UnknownSessionError, OSError."""
    target = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            info = store.export(session_id, file.write)
        unfinished.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    return info


def import_session(store: Archive, path: str | Path, *, session_id: str | None = None) -> SessionInfo:
    """Write the session of such a file into a store, under another id if one is given; calls that were open are ``interrupted`` there.

    Raises StoreError, which names the line, for a file that is no session or is cut off, and when the session is there already; OSError.
    """
    with Path(path).open("rb") as file:
        return store.load(read(file, str(path), session_id=session_id))


def read(lines: Iterable[bytes], source: str, *, session_id: str | None = None) -> Dump:
    """The session that lines hold; ``source`` names them in errors. Raises StoreError."""
    reader = _Reader(source, session_id)
    for number, line in enumerate(lines, 1):
        reader.take(number, line)
    return reader.dump()


def there_already(session_id: str) -> StoreError:
    """For a session that cannot be imported."""
    return StoreError(f"session {session_id!r}, or a node of it, is in the store already; nothing was imported: delete the one that is there first")


class _Reader:
    """What was read so far, each line checked against those before it."""

    def __init__(self, source: str, session_id: str | None) -> None:
        self._source = source
        self._session_id = session_id
        self._info: SessionInfo | None = None
        self._ended = False
        self._packer = rows.Packer()
        self._frames: dict[str, Frame] = {}
        self._branches: list[Branch] = []
        self._nodes: dict[str, rows.Row] = {}
        self._seqs: set[int] = set()
        self._logs: dict[str, list[LogEntry]] = {}

    def take(self, number: int, text: bytes) -> None:
        where = f"{self._source} line {number}"
        try:
            line = msgspec.json.decode(text, type=_Line)
        except ValueError as error:
            raise StoreError(f"{where} is no line of an exported session: {error}") from error
        if self._info is None:
            self._info = self._begun(where, line)
            return
        session = self._info.id
        if line.frame is not None:
            self._frames[line.frame.id] = msgspec.structs.replace(line.frame, session=session)
        elif line.branch is not None:
            self._branches.append(msgspec.structs.replace(line.branch, session=session))
        elif line.node is not None:
            self._take_node(where, line.node)
        elif line.log is not None:
            self._logs[self._known(where, line.log.frame, self._frames)] = [
                LogEntry(self._known(where, node_id, self._nodes), inner) for node_id, inner in line.log.entries
            ]
        elif line.end is not None:
            self._ended = line.end == len(self._nodes)

    def _begun(self, where: str, line: _Line) -> SessionInfo:
        if line.session is None:
            raise StoreError(f"{where} is not the beginning of an exported session")
        if line.openprogram != VERSION:
            raise StoreError(f"{where}: the export has version {line.openprogram}, this OpenProgram knows {VERSION}; install a newer OpenProgram")
        title = str(values.decode(bytes(line.session.title)))
        session_id = check_session_id(line.session.id if self._session_id is None else self._session_id)
        found = line.session
        return SessionInfo(id=session_id, title=title, frame=found.frame, nodes=found.nodes, created_at=found.created_at, updated_at=found.updated_at)

    def _known(self, where: str, name: str, things: Mapping[str, object]) -> str:
        if name not in things:
            raise StoreError(f"{where} names {name!r}, which no line before it holds")
        return name

    def _take_node(self, where: str, line: _Node) -> None:
        if line.id in self._nodes or line.seq in self._seqs or line.seq < 1:
            raise StoreError(f"{where} holds node {line.id} with seq {line.seq}, one of which was there before")
        self._known(where, line.frame, self._frames)
        assert self._info is not None
        reads = line.reads or (None, None)
        self._seqs.add(line.seq)
        self._nodes[line.id] = rows.Row(
            id=line.id,
            session=self._info.id,
            seq=line.seq,
            role=line.role,
            name=rows.text_cell(str(values.decode(bytes(line.name)))),
            frame=line.frame,
            status="interrupted" if line.status == "running" else line.status,
            caller=line.caller,
            predecessor=line.predecessor,
            reads_frame=reads[0],
            reads_upto=reads[1],
            started=line.started_at,
            ended=line.ended_at,
            owner=None,
            **{field: self._cell(getattr(line, field)) for field in ("input", "output", "exchanges", "metadata", "closing")},
        )

    def _cell(self, raw: msgspec.Raw) -> rows.Cell:
        return None if raw is _NOTHING else self._packer.text(bytes(raw).decode())

    def dump(self) -> Dump:
        if self._info is None or not self._ended or self._info.frame not in self._frames:
            raise StoreError(f"{self._source} is cut off: it does not end with the line that says how many nodes it holds; export the session again")
        nodes = sorted(self._nodes.values(), key=lambda row: row.seq)
        # A store counts without gaps.
        nodes = [row._replace(seq=seq) for seq, row in enumerate(nodes, 1)]
        return Dump(self._info, list(self._frames.values()), self._branches, nodes, self._packer.payloads, self._logs)
