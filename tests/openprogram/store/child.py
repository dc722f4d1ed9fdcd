"""What the process tests run in other processes: ``python child.py COMMAND FILE …``.

Each command says ``ready`` once everything is imported and begins when it reads a line, so that several begin at the same moment; it says ``done`` at the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openprogram.context.call import Call, Close, new_id
from openprogram.store.base import Store
from openprogram.store.files import OpenersLock
from openprogram.store.migrations import MIGRATIONS, Migration, upgrade
from openprogram.store.sqlite import SqliteStore

NEXT: Migration = ("ALTER TABLE sessions ADD COLUMN colour TEXT", "CREATE TABLE more (id TEXT)")


def say(line: str) -> None:
    print(line, flush=True)


def add(store: Store, session: str, *, close: bool = True) -> str:
    """One node, acknowledged; returns its id."""
    info = store.create_session(session)
    call = store.append(Call(id=new_id("code"), session=session, role="code", name="f", frame=info.frame, input={"text": "x" * 2000}))
    if close:
        store.finish(Close(id=call.id, status="completed", output=call.seq, enters=True))
    return call.id


def write(path: Path, session: str, threads: str, count: str) -> None:
    """Write nodes from several threads; ``{}`` in the session stands for the thread, ``{pid}`` for the process."""
    store = SqliteStore(path)

    def work(thread: int) -> None:
        for _ in range(int(count)):
            add(store, session.format(thread, pid=os.getpid()))

    with ThreadPoolExecutor(int(threads)) as pool:
        list(pool.map(work, range(int(threads))))
    store.close()


def acknowledge(path: Path, session: str) -> None:
    """Write without end and say the id of each node that was acknowledged."""
    store = SqliteStore(path)
    while True:
        say(add(store, session))


def entry(path: Path, session: str) -> None:
    """Write the entry of a node, say its id, and die before it ends."""
    say(add(SqliteStore(path), session, close=False))
    os.kill(os.getpid(), signal.SIGKILL)


def hold(path: Path, session: str) -> None:
    """Write the entry of a node, say its id, and stay until told to go."""
    store = SqliteStore(path)
    say(add(store, session, close=False))
    sys.stdin.readline()
    store.close()


def migrate(path: Path, fatal: str = "") -> None:
    """Bring the file to the version after the last; with ``fatal``, die in the middle of that."""
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.create_function("die", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
        lock = OpenersLock(path)
        lock.share(30)
        step = (*NEXT, "SELECT die()") if fatal else NEXT
        upgrade(connection, path, lock, timeout_s=30, migrations=(*MIGRATIONS, step))
        lock.release()


if __name__ == "__main__":
    say("ready")
    sys.stdin.readline()
    command, file, *arguments = sys.argv[1:]
    {"write": write, "acknowledge": acknowledge, "entry": entry, "hold": hold, "migrate": migrate}[command](Path(file), *arguments)
    say("done")
