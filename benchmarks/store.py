"""What the store costs beside the bare `sqlite3` module, on disk and at opening.

The rows that ours wrote are inserted by bare SQL into the same tables of a second file, in transactions of the same size.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

from benchmarks import Figure
from openprogram import Runtime, session
from openprogram.context.call import Call, new_id
from openprogram.providers.scripted import ScriptedProvider
from openprogram.store.rows import Row
from openprogram.store.sqlite import SqliteStore

TURNS = 40
EXECS = 3000
NODES = 100_000
NODES_A_SESSION = 1000
BATCH = 256
COLUMNS = ", ".join(Row._fields)

OPEN = """
import json, pathlib, resource, sys, time
started = time.perf_counter()
from openprogram.store.sqlite import SqliteStore
imported = time.perf_counter()
store = SqliteStore(sys.argv[1])
newest = store.sessions(limit=1)[0]
nodes = store.page(newest.id)
done = time.perf_counter()
assert len(nodes) == newest.nodes == int(sys.argv[2])
# The peak that getrusage tells on Linux begins with that of the process that started this one.
status = pathlib.Path("/proc/self/status")
kilobytes = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")] if status.exists() else []
peak = int(kilobytes[0]) * 1024 if kilobytes else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([done - imported, peak]))
"""


def figures() -> Iterator[Figure]:
    """Appends against bare SQL, bytes against the nodes' own texts, and opening a large store."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _appends(Path(folder))
        yield from _bytes(Path(folder))
        yield from _opening(Path(folder))


def _call(frame: str, number: int) -> Call:
    message = {"role": "user", "blocks": [{"type": "text", "text": f"what is {number}?"}]}
    return Call(
        id=new_id("llm"), session="s", role="llm", name="m", frame=frame, input={"messages": [message]}, metadata={"model": "m"}, started_at=time.time()
    )


def _appends(folder: Path) -> Iterator[Figure]:
    """Both sides take turns, a few rows at a time, so that a busy machine slows both."""
    for name, batch, bar in (("append", 1, 0.6), ("submit", BATCH, None)):
        with contextlib.closing(SqliteStore(folder / name)) as store, _bare(folder / f"bare-{name}") as insert:
            frame = store.create_session("s").frame
            ours: list[float] = []
            bare: list[float] = []
            for turn in range(TURNS):
                calls = [_call(frame, turn * BATCH + number) for number in range(BATCH)]
                ours.append(_timed(lambda calls=calls, write=_append if batch == 1 else _submit: write(store, calls)))
                rows = _rows(folder / name, turn * BATCH)
                bare.append(_timed(lambda rows=rows, batch=batch: insert(rows, batch)))
        mine, theirs = statistics.median(ours) / BATCH, statistics.median(bare) / BATCH
        yield Figure(f"store.{name}", mine * 1e6, "us")
        yield Figure(f"store.{name}_bare", theirs * 1e6, "us")
        yield Figure(f"store.{name}s_a_second_over_bare", theirs / mine, "ratio", bar=bar, better="higher")


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _append(store: SqliteStore, calls: list[Call]) -> None:
    for call in calls:
        store.append(call)


def _submit(store: SqliteStore, calls: list[Call]) -> None:
    wait([store.submit(store.appending(call, None)) for call in calls])


def _rows(path: Path, after: int) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {COLUMNS} FROM nodes WHERE seq > ? ORDER BY seq", (after,)).fetchall()


@contextlib.contextmanager
def _bare(path: Path) -> Generator[Callable[[list[Any], int], None]]:
    """What inserts rows of nodes in batches and counts them in their session, as the store does."""
    with contextlib.closing(SqliteStore(path)) as store:
        store.create_session("s")
    statement = f"INSERT INTO nodes ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")

        def insert(rows: list[Any], batch: int) -> None:
            for start in range(0, len(rows), batch):
                connection.execute("BEGIN IMMEDIATE")
                for row in rows[start : start + batch]:
                    connection.execute(statement, row)
                    connection.execute("UPDATE sessions SET next_seq = ?, updated = ? WHERE id = 's'", (row[2] + 1, row[11]))
                connection.execute("COMMIT")

        yield insert


def _prose(seed: int) -> Callable[[int], str]:
    """Pieces of Python's own documentation, no two alike."""
    text = " ".join(" ".join(importlib.import_module("pydoc_data.topics").topics.values()).split())
    chance = random.Random(seed)

    def piece(length: int) -> str:
        start = chance.randrange(len(text) - length)
        return f"{text[start : start + length - 17]} {chance.getrandbits(64):016x}"

    return piece


def _letters(seed: int) -> Callable[[int], str]:
    """Letters by chance: nothing to compress."""
    chance = random.Random(seed)
    return lambda length: "".join(chance.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ", k=length))


def _bytes(folder: Path) -> Iterator[Figure]:
    shapes = {"reply": (100, 1900, _prose(1)), "halves": (1000, 1000, _prose(2)), "prompt": (1900, 100, _prose(3)), "random": (100, 1900, _letters(4))}
    plain: dict[str, float] = {}
    indexed: dict[str, float] = {}
    for name, (prompt, reply, text) in shapes.items():
        path = folder / f"bytes-{name}"
        texts = _session(path, [text(prompt) for _ in range(EXECS)], [text(reply) for _ in range(EXECS)])
        plain[name] = _size(path) / texts
        with contextlib.closing(SqliteStore(path)) as store:
            taken = _timed(store.index)
        indexed[name] = _size(path) / texts
        if name == "reply":
            yield Figure("store.index_one_node", taken / EXECS * 1000, "ms")
    for name, value in plain.items():
        yield Figure(f"store.bytes_over_text_{name}", value, "ratio", bar=1.5)
    for name, value in indexed.items():
        yield Figure(f"store.bytes_with_index_{name}", value, "ratio", bar=None if name == "random" else 2.3)


def _session(path: Path, prompts: list[str], replies: list[str]) -> int:
    store = SqliteStore(path, search_index=False)
    with contextlib.closing(store), session("s", store=store), Runtime(provider=ScriptedProvider(replies)) as runtime:
        for prompt in prompts:
            runtime.exec(prompt)
    return sum(map(len, prompts)) + sum(map(len, replies))


def _size(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def _opening(folder: Path) -> Iterator[Figure]:
    path, text = folder / "large", _prose(5)
    with contextlib.closing(SqliteStore(path)) as store:
        for number in range(NODES // NODES_A_SESSION):
            frame = store.create_session(f"s{number}").frame
            calls = [Call(id=new_id("code"), session=f"s{number}", role="code", name="f", frame=frame, input=text(500)) for _ in range(NODES_A_SESSION)]
            wait([store.submit(store.appending(call, None)) for call in calls])
        started = time.perf_counter()
        store.search("no such words anywhere", limit=1)
        yield Figure("store.search_unindexed_100k", time.perf_counter() - started, "s")
    runs: list[tuple[float, int]] = []
    for _ in range(5):
        command = [sys.executable, "-c", OPEN, str(path), str(NODES_A_SESSION)]
        runs.append(tuple(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)))
    yield Figure("store.open_100k_nodes", min(seconds for seconds, _ in runs) * 1000, "ms", bar=200)
    yield Figure("store.open_100k_nodes_memory", max(peak for _, peak in runs) / 1e6, "MB", bar=150)
