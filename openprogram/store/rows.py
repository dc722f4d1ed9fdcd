"""A node as it is kept: a flat row whose values are JSON text, made once from the live `Call` and read back into one.

A value of up to `INLINE` characters stands in the row itself, as text. A longer one is kept once in the payload table, under the hash of its text; the row
then holds that key as bytes. So the type of a cell says which of the two it is, and text cells are valid JSON. A payload is text, or bytes when it was
deflated (`squeezed`): two kilobytes of text would otherwise take a page of four.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from openprogram.context.call import Call, Close, Reads
from openprogram.store import values

logger = logging.getLogger("openprogram.store")

INLINE = 1000
# Longer texts fill their pages anyhow, and would keep whoever writes them waiting.
_MOST_SQUEEZED = 1_000_000

Cell = str | bytes | None
Payload = str | bytes


class Row(NamedTuple):
    """The columns of the node table, in order. ``closing`` is the metadata that a node was closed with."""

    id: str
    session: str
    seq: int
    role: str
    name: Cell
    frame: str
    status: str
    caller: str | None
    predecessor: str | None
    reads_frame: str | None
    reads_upto: int | None
    started: float
    ended: float | None
    owner: str | None
    input: Cell
    output: Cell
    exchanges: Cell
    metadata: Cell
    closing: Cell


class Ending(NamedTuple):
    """What closing a node writes."""

    status: str
    ended: float | None
    output: Cell
    exchanges: Cell
    closing: Cell


class Packer:
    """Turns values into cells and collects the payloads that do not fit a row."""

    def __init__(self) -> None:
        self.payloads: dict[bytes, str] = {}

    def cell(self, value: Any) -> Cell:
        """The cell of a value."""
        return self.text(values.encode(value))

    def text(self, text: str) -> Cell:
        """The cell of a value that is JSON text already."""
        if len(text) <= INLINE:
            return text
        key = key_of(text)
        self.payloads[key] = text
        return key

    def row(self, call: Call, owner: str) -> Row:
        """A node's row; what the store fills in is still open."""
        reads = call.reads or (None, None)
        return Row(
            id=call.id,
            session=call.session,
            seq=call.seq,
            role=call.role,
            name=text_cell(call.name),
            frame=call.frame,
            status=call.status,
            caller=call.caller,
            predecessor=call.predecessor,
            reads_frame=reads[0],
            reads_upto=reads[1],
            started=call.started_at,
            ended=call.ended_at,
            owner=owner if call.is_open else None,
            input=self.cell(call.input),
            output=None if call.output is None else self.cell(call.output),
            exchanges=self.cell(list(call.exchanges)) if call.exchanges else None,
            metadata=self.cell(call.metadata),
            closing=None,
        )

    def ending(self, close: Close) -> Ending:
        """The columns that change when a node is closed."""
        return Ending(
            status=close.status,
            ended=close.ended_at,
            output=None if close.output is None else self.cell(close.output),
            exchanges=self.cell(list(close.exchanges)) if close.exchanges else None,
            closing=self.cell(close.metadata) if close.metadata else None,
        )


def key_of(text: str) -> bytes:
    """The key of a payload: the hash of its text."""
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


def squeezed(text: str) -> Payload:
    """A payload as a file keeps it."""
    return zlib.compress(text.encode(), 1) if len(text) <= _MOST_SQUEEZED else text


def text_of_payload(payload: Payload) -> str:
    """The text of a payload. Raises ValueError when it is damaged."""
    if isinstance(payload, str):
        return payload
    try:
        return zlib.decompress(payload).decode()
    except zlib.error as error:
        raise ValueError(f"its payload is damaged ({error})") from error


def text_cell(text: str) -> Cell:
    """Text for a text column; what is no valid UTF-8 goes in as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def text_of(cell: Cell) -> str:
    """The text of a `text_cell`."""
    return cell.decode("utf-8", "surrogatepass") if isinstance(cell, bytes) else cell or ""


def references(row: Row) -> list[bytes]:
    """The keys of the payloads that a row refers to."""
    return [cell for cell in row[14:] if isinstance(cell, bytes)]


def call_of(row: Row, payloads: Mapping[bytes, Payload], *, is_dead: Callable[[str | None], bool]) -> Call:
    """The node of a row. A running node whose owner is dead reads ``interrupted``; a value that cannot be read becomes a form that says so, and is logged."""

    def value(cell: Cell, column: str) -> Any:
        return None if cell is None else _value(cell, payloads, f"{column} of node {row.id}")

    opened = value(row.metadata, "metadata")
    closed = value(row.closing, "metadata")
    return Call(
        id=row.id,
        session=row.session,
        seq=row.seq,
        role=cast("Any", row.role),
        name=text_of(row.name),
        frame=row.frame,
        status=cast("Any", "interrupted" if row.status == "running" and is_dead(row.owner) else row.status),
        caller=row.caller,
        predecessor=row.predecessor,
        reads=None if row.reads_frame is None else Reads(row.reads_frame, row.reads_upto or 0),
        started_at=row.started,
        ended_at=row.ended,
        input=value(row.input, "input"),
        output=value(row.output, "output"),
        exchanges=_listed(value(row.exchanges, "exchanges")),
        metadata=_mapped(opened) | _mapped(closed),
    )


def _listed(value: Any) -> tuple[Any, ...]:
    return () if value is None else tuple(cast("list[Any]", value)) if isinstance(value, list) else (value,)


def _mapped(value: Any) -> dict[str, Any]:
    return {} if value is None else cast("dict[str, Any]", value) if isinstance(value, dict) else {"value": value}


def json_of(cell: str | bytes, payloads: Mapping[bytes, Payload]) -> str:
    """The JSON text of a cell. Raises ValueError, which says why, when it is not there or damaged."""
    if isinstance(cell, str):
        return cell
    if cell not in payloads:
        raise ValueError("its payload is missing")
    return text_of_payload(payloads[cell])


def tree_of(cell: Cell, payloads: Mapping[bytes, Payload]) -> Any:
    """A cell's JSON as it is stored, its forms not restored; None for a cell that is empty or cannot be read."""
    try:
        return None if cell is None else msgspec.json.decode(json_of(cell, payloads))
    except ValueError:
        return None


def _value(cell: str | bytes, payloads: Mapping[bytes, Payload], where: str) -> Any:
    try:
        return values.decode(json_of(cell, payloads))
    except Exception as error:  # one bad cell must not hide the rest of the session
        logger.warning("the %s cannot be read: %s", where, error)
        return unreadable(f"the {where}", error)


def unreadable(what: str, error: Exception) -> dict[str, Any]:
    """What stands in for a value that cannot be read."""
    return {values.MARK: UNREADABLE, "value": f"{what} cannot be read: {error}"}


UNREADABLE = "unreadable"
"""The ``$type`` of what stands in for a value whose stored text is damaged."""
