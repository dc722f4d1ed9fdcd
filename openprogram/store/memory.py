"""A store that lives as long as the object: for tests, and for a session nobody needs afterwards.

It keeps encoded rows, never the caller's live objects, so that what is read is a snapshot in the same form as from a file. It cannot survive its process,
and a fork copies it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

import msgspec

from openprogram.context.call import MAIN, TERMINAL, Branch, Call, Close, Frame, LogEntry, Reads, SessionInfo, new_id
from openprogram.errors import StoreClosedError, StoreError, UnknownSessionError
from openprogram.store import branching, forks, rows, search, transfer
from openprogram.store.base import Hit, in_use
from openprogram.store.ids import check_branch_name, check_session_id


class MemoryStore:
    """A `Store` in this process's memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._clear()
        forks.guard(self)

    def _clear(self) -> None:
        self._sessions: dict[str, SessionInfo] = {}
        self._order: dict[str, list[str]] = {}
        self._rows: dict[str, rows.Row] = {}
        self._payloads: dict[bytes, str] = {}
        self._frames: dict[str, Frame] = {}
        self._opened_by: dict[str, str] = {}
        self._logs: dict[str, list[LogEntry]] = {}
        self._branches: dict[str, Branch] = {}

    @contextmanager
    def _open(self) -> Generator[None]:
        with self._lock:
            if self._closed:
                raise StoreClosedError("the memory store was closed; make a new one")
            yield

    def before_fork(self) -> None:
        """Keep the lock free of other threads while the process is copied."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Let the others go on."""
        self._lock.release()

    def create_session(self, session_id: str, *, title: str = "") -> SessionInfo:
        """See `Store.create_session`."""
        check_session_id(session_id)
        with self._open():
            info = self._sessions.get(session_id)
            if info is None:
                now = time.time()
                info = SessionInfo(id=session_id, title=title, frame=new_id("frame"), created_at=now, updated_at=now)
                self._order[session_id] = []
                self._add_frame(Frame(id=info.frame, session=session_id))
            elif title and not info.title:
                info = msgspec.structs.replace(info, title=title)
            self._sessions[session_id] = info
            return info

    def session(self, session_id: str) -> SessionInfo:
        """See `Store.session`."""
        with self._open():
            return self._session(session_id)

    def _session(self, session_id: str) -> SessionInfo:
        if (info := self._sessions.get(session_id)) is None:
            raise UnknownSessionError(f"no session {session_id!r} in the memory store")
        return info

    def sessions(self, *, limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """See `Store.sessions`."""
        with self._open():
            # The dict is kept in the order of the last write, oldest first.
            newest = list(reversed(self._sessions.values()))
            return newest[max(0, offset) :][: max(0, limit)]

    def _touch(self, session_id: str, *, added: int) -> SessionInfo:
        info = self._sessions.pop(session_id)
        self._sessions[session_id] = info = msgspec.structs.replace(info, nodes=info.nodes + added, updated_at=max(info.updated_at, time.time()))
        return info

    def _add_frame(self, frame: Frame) -> None:
        self._frames[frame.id] = frame
        self._logs[frame.id] = []
        if frame.owner is not None:
            self._opened_by[frame.owner] = frame.id

    def append(self, call: Call, *, opens: Frame | None = None) -> Call:
        """See `Store.append`."""
        packer = rows.Packer()
        row = packer.row(call, "")
        with self._open():
            self._check(call, opens)
            log = self._logs[call.frame]
            predecessor = call.predecessor or (log[-1].node if log else self._before(call))
            reads = call.reads or (Reads(call.frame, len(log)) if call.role == "llm" else None)
            seq = self._touch(call.session, added=1).nodes
            self._payloads.update(packer.payloads)
            self._order[call.session].append(call.id)
            self._rows[call.id] = row._replace(seq=seq, predecessor=predecessor, reads_frame=reads and reads.frame, reads_upto=reads and reads.upto)
            if opens is not None:
                base = len(self._logs[opens.parent]) if opens.parent is not None else 0
                self._add_frame(msgspec.structs.replace(opens, base=base))
        return msgspec.structs.replace(call, seq=seq, predecessor=predecessor, reads=reads)

    def _before(self, call: Call) -> str | None:
        """What the first node of a branch follows: the entry after which the branch was made."""
        frame = self._frames[call.frame]
        while frame.owner is None and frame.parent is not None:
            if frame.base:
                log = self._logs.get(frame.parent, [])
                if len(log) < frame.base:
                    raise branching.broken(call.id, frame)
                return log[frame.base - 1].node
            frame = self._frames[frame.parent]
        return None

    def _check(self, call: Call, opens: Frame | None) -> None:
        self._session(call.session)
        frame = self._frames.get(call.frame)
        if frame is None or frame.session != call.session:
            raise StoreError(f"node {call.id} cannot enter frame {call.frame!r}: session {call.session!r} has no such frame")
        if call.id in self._rows:
            raise StoreError(f"a node {call.id} exists already; nothing that was written is overwritten")
        if call.predecessor is not None and (call.predecessor not in self._rows or self._rows[call.predecessor].session != call.session):
            raise branching.unknown_predecessor(call.id, call.predecessor, call.session)
        if opens is None:
            return
        if opens.id in self._frames or (opens.owner is not None and opens.owner in self._opened_by):
            raise StoreError(f"frame {opens.id} exists already, or its owner has one")
        if opens.session != call.session or (opens.parent is not None and opens.parent not in self._frames):
            raise StoreError(f"frame {opens.id} cannot be opened in frame {opens.parent!r}: session {call.session!r} has no such frame")

    def finish(self, close: Close) -> Call:
        """See `Store.finish`."""
        packer = rows.Packer()
        ending = packer.ending(close)
        if close.status not in TERMINAL:
            raise StoreError(f"node {close.id} cannot be closed as {close.status!r}; a terminal state is one of {', '.join(sorted(TERMINAL))}")
        with self._open():
            row = self._rows.get(close.id)
            if row is None:
                raise StoreError(f"no node {close.id} in the memory store; append it before it is finished")
            if row.status == "running":
                self._payloads.update(packer.payloads)
                self._rows[close.id] = row = row._replace(**ending._asdict())
                self._touch(row.session, added=0)
                if close.enters:
                    inner = len(self._logs[self._opened_by[close.id]]) if close.id in self._opened_by else 0
                    self._logs[row.frame].append(LogEntry(close.id, inner))
            return self._calls([row])[0]

    def node(self, node_id: str) -> Call | None:
        """See `Store.node`."""
        found = self.nodes([node_id])
        return found[0] if found else None

    def nodes(self, node_ids: Iterable[str]) -> list[Call]:
        """See `Store.nodes`."""
        wanted = list(node_ids)
        with self._open():
            return self._calls(self._rows[node_id] for node_id in wanted if node_id in self._rows)

    def page(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Call]:
        """See `Store.page`."""
        with self._open():
            self._session(session_id)
            # Sequence numbers are given without gaps, from 1.
            return self._calls(self._rows[node_id] for node_id in self._order[session_id][max(0, after) :][: max(0, limit)])

    def _calls(self, found: Iterable[rows.Row]) -> list[Call]:
        return [rows.call_of(row, self._payloads, is_dead=lambda _: False) for row in found]

    def frame(self, frame_id: str) -> Frame | None:
        """See `Store.frame`."""
        with self._open():
            return self._frames.get(frame_id)

    def log(self, frame_id: str, start: int = 0, stop: int | None = None) -> Sequence[LogEntry]:
        """See `Store.log`."""
        with self._open():
            return self._logs.get(frame_id, [])[max(0, start) : None if stop is None else max(0, stop)]

    def open_branch(self, branch: Branch) -> Branch:
        """See `Branching.open_branch`."""
        if branch.name:
            check_branch_name(branch.name)
        with self._open():
            info = self._session(branch.session)
            names = {MAIN, *(other.name for other in self._branches.values() if other.session == branch.session)}
            parent = None if branch.parent is None else self._frames.get(branch.parent)
            length = len(self._logs.get(branch.parent or "", []))
            branching.check(branch, parent, length, taken=branch.name in names, exists=branch.id in self._frames)
            branch = msgspec.structs.replace(branch, name=branch.name or branching.made_up_name(names), created_at=branch.created_at or time.time())
            self._add_frame(Frame(id=branch.id, session=info.id, parent=branch.parent, base=branch.base))
            self._branches[branch.id] = branch
            return branch

    def branches(self, session_id: str) -> list[Branch]:
        """See `Branching.branches`."""
        with self._open():
            info = self._session(session_id)
            return [branching.main_branch(info), *(branch for branch in self._branches.values() if branch.session == session_id)]

    def search(self, query: str, *, session: str | None = None, limit: int = 20, offset: int = 0) -> list[Hit]:
        """See `Archive.search`."""
        wanted = search.Query(query)
        with self._open():
            if session is not None:
                self._session(session)
            hits = (hit for row in reversed(self._rows.values()) if session in {None, row.session} and (hit := wanted.hit(row, self._payloads)))
            return list(itertools.islice(hits, max(0, offset), max(0, offset) + max(0, limit)))

    def rename_session(self, session_id: str, title: str) -> SessionInfo:
        """See `Archive.rename_session`."""
        with self._open():
            self._sessions[session_id] = info = msgspec.structs.replace(self._session(session_id), title=title)
            return info

    def delete_session(self, session_id: str, *, force: bool = False) -> SessionInfo:
        """See `Archive.delete_session`."""
        with self._open():
            self._session(session_id)
            running = sum(self._rows[node_id].status == "running" for node_id in self._order[session_id])
            if running and not force:
                raise in_use(session_id, running, "this process")
            for node_id in self._order.pop(session_id):
                del self._rows[node_id]
            for frame in [frame for frame in self._frames.values() if frame.session == session_id]:
                del self._frames[frame.id], self._logs[frame.id]
                self._branches.pop(frame.id, None)
                self._opened_by.pop(frame.owner or "", None)
            used = {key for row in self._rows.values() for key in rows.references(row)}
            self._payloads = {key: text for key, text in self._payloads.items() if key in used}
            return self._sessions.pop(session_id)

    def export(self, session_id: str, write: Callable[[bytes], object]) -> SessionInfo:
        """See `Archive.export`."""
        with self._open():
            info = self._session(session_id)
            frames = [frame for frame in self._frames.values() if frame.session == session_id]
            branches = [branch for branch in self._branches.values() if branch.session == session_id]
            nodes = [self._rows[node_id] for node_id in self._order[session_id]]
            lines = [*transfer.head(info, frames, branches), *(transfer.node(row, self._payloads) for row in nodes)]
            lines += [transfer.log(frame.id, self._logs[frame.id]) for frame in frames if self._logs[frame.id]]
        for line in [*lines, transfer.end(len(nodes))]:
            write(line)
        return info

    def load(self, dump: transfer.Dump) -> SessionInfo:
        """See `Archive.load`."""
        info = msgspec.structs.replace(dump.info, nodes=len(dump.nodes))
        with self._open():
            if info.id in self._sessions or any(row.id in self._rows for row in dump.nodes) or any(frame.id in self._frames for frame in dump.frames):
                raise transfer.there_already(info.id)
            self._sessions = dict(sorted([*self._sessions.items(), (info.id, info)], key=lambda item: item[1].updated_at))
            for frame in dump.frames:
                self._add_frame(frame)
            self._branches |= {branch.id: branch for branch in dump.branches}
            self._rows |= {row.id: row for row in dump.nodes}
            self._order[info.id] = [row.id for row in dump.nodes]
            self._payloads |= dump.payloads
            self._logs |= {frame: list(entries) for frame, entries in dump.logs.items()}
        return info

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            self._clear()
