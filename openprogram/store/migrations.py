"""The store's schema, as numbered steps.

`user_version` is the number of the last step that was applied. All steps that are missing run in one immediate transaction, so that a process killed in the
middle leaves the old version whole, and of several that start at once one does it and the others find it done. A new file needs no more than that. A file
with content is backed up first and migrated only while nobody else has it open.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from openprogram.errors import StoreError, StoreVersionError
from openprogram.store.files import OpenersLock

APPLICATION_ID = 0x4F50524D  # "OPRM"

FIRST = (
    """CREATE TABLE sessions (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, frame TEXT NOT NULL, next_seq INTEGER NOT NULL, created REAL NOT NULL, updated REAL NOT NULL)""",
    """CREATE TABLE nodes (
        id TEXT PRIMARY KEY, session TEXT NOT NULL, seq INTEGER NOT NULL, role TEXT NOT NULL, name TEXT NOT NULL, frame TEXT NOT NULL, status TEXT NOT NULL,
        caller TEXT, predecessor TEXT, reads_frame TEXT, reads_upto INTEGER, started REAL NOT NULL, ended REAL, owner TEXT,
        input TEXT, output TEXT, exchanges TEXT, metadata TEXT, closing TEXT)""",
    "CREATE UNIQUE INDEX nodes_in_order ON nodes (session, seq)",
    "CREATE INDEX nodes_running ON nodes (owner) WHERE status = 'running'",
    "CREATE TABLE frames (id TEXT PRIMARY KEY, session TEXT NOT NULL, parent TEXT, base INTEGER NOT NULL, owner TEXT)",
    "CREATE UNIQUE INDEX frames_by_owner ON frames (owner) WHERE owner IS NOT NULL",
    "CREATE TABLE log (frame TEXT NOT NULL, pos INTEGER NOT NULL, node TEXT NOT NULL, inner_length INTEGER NOT NULL, PRIMARY KEY (frame, pos)) WITHOUT ROWID",
    "CREATE TABLE payloads (key BLOB PRIMARY KEY, json TEXT NOT NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

SECOND = (
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY, digest BLOB NOT NULL, function TEXT NOT NULL, workspace TEXT NOT NULL, session TEXT NOT NULL, node TEXT NOT NULL,
        state TEXT NOT NULL, owner TEXT NOT NULL, started REAL NOT NULL, ended REAL, details TEXT)""",
    "CREATE INDEX runs_by_start ON runs (started)",
    "CREATE INDEX runs_active ON runs (started) WHERE ended IS NULL",
)

THIRD = (
    # A branch is a frame without owner; the main one of a session is named in its row.
    "CREATE TABLE branches (frame TEXT PRIMARY KEY, session TEXT NOT NULL, name TEXT NOT NULL, created REAL NOT NULL)",
    "CREATE UNIQUE INDEX branches_by_name ON branches (session, name)",
)

FOURTH = (
    # Numbers of nodes, for the full-text index: unlike SQLite's own they stay when the file is rewritten.
    "ALTER TABLE nodes RENAME TO unnumbered",
    """CREATE TABLE nodes (
        n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, session TEXT NOT NULL, seq INTEGER NOT NULL, role TEXT NOT NULL, name TEXT NOT NULL,
        frame TEXT NOT NULL, status TEXT NOT NULL, caller TEXT, predecessor TEXT, reads_frame TEXT, reads_upto INTEGER, started REAL NOT NULL, ended REAL,
        owner TEXT, input TEXT, output TEXT, exchanges TEXT, metadata TEXT, closing TEXT)""",
    """INSERT INTO nodes SELECT rowid, id, session, seq, role, name, frame, status, caller, predecessor, reads_frame, reads_upto, started, ended,
        iif(status = 'running', owner, NULL), input, output, exchanges, metadata, closing FROM unnumbered ORDER BY rowid""",
    "DROP TABLE unnumbered",
    "CREATE UNIQUE INDEX nodes_in_order ON nodes (session, seq)",
    "CREATE INDEX nodes_running ON nodes (owner) WHERE status = 'running'",
    # One row: up to which node the index goes, how often nodes were deleted, and how often since the index was begun anew.
    "CREATE TABLE upkeep (indexed INTEGER NOT NULL, deletions INTEGER NOT NULL, stale INTEGER NOT NULL)",
    "INSERT INTO upkeep VALUES (0, 0, 0)",
    "CREATE TABLE unindexed (n INTEGER PRIMARY KEY)",
)

# How long the processes that have an old store open are waited for: they may be about to end.
_PATIENCE_S = 5.0

Migration = Sequence[str]
MIGRATIONS: Sequence[Migration] = (FIRST, SECOND, THIRD, FOURTH)


def version_of(connection: sqlite3.Connection, path: Path, latest: int = len(MIGRATIONS)) -> int:
    """The schema's version, 0 for a new file. Raises StoreVersionError for a newer one, StoreError for another program's database."""
    version, owner, tables = _state(connection)
    if owner != APPLICATION_ID and (version or tables):
        raise StoreError(f"{path} is a database of another program, not a store of OpenProgram; nothing was written, name another file")
    if version > latest:
        raise StoreVersionError(f"the store {path} has schema version {version}, this OpenProgram knows up to {latest}; install a newer OpenProgram")
    return version


def _state(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Schema version, application id and number of tables, all of one moment: another process may be creating them."""
    begun = not connection.in_transaction
    if begun:
        connection.execute("BEGIN")
    try:
        queries = ("SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version")
        tables, owner, version = (int(connection.execute(query).fetchone()[0]) for query in queries)
        return version, owner, tables
    finally:
        if begun:
            connection.execute("ROLLBACK")


def upgrade(connection: sqlite3.Connection, path: Path, lock: OpenersLock, *, timeout_s: float, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the file to the last version; see the module for what is promised."""
    version = version_of(connection, path, len(migrations))
    if version == len(migrations):
        return
    if version == 0:
        _apply(connection, path, migrations)
        return
    deadline = time.monotonic() + min(timeout_s, _PATIENCE_S)
    lock.leave()
    # Whoever has it alone first does the work; it may have been done, and the store be open elsewhere, by the next look.
    while (version := version_of(connection, path, len(migrations))) < len(migrations):
        if lock.take_alone():
            if version_of(connection, path, len(migrations)) == version:
                back_up(connection, path, version)
                _apply(connection, path, migrations)
        elif time.monotonic() > deadline:
            raise StoreError(f"the store {path} needs a migration but is open in process {lock.holders()}; stop it and try again")
        else:
            time.sleep(0.01)
    lock.share(timeout_s)


def _apply(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited to begin.
        for migration in migrations[version_of(connection, path, len(migrations)) :]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def back_up(connection: sqlite3.Connection, path: Path, version: int) -> Path:
    """Copy the whole store to ``<name>.v<version>.bak`` beside it, replacing an older copy of the same version once the new one is complete."""
    target = path.with_name(f"{path.name}.v{version}.bak")
    unfinished = path.with_name(f"{target.name}.{os.getpid()}.tmp")
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with contextlib.closing(sqlite3.connect(unfinished)) as copy:
        connection.backup(copy)
    return unfinished.replace(target)
