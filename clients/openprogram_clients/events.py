"""Subscriptions: events wait in an inbox until they are taken.

An inbox is bounded: when its owner falls behind, the oldest events go and the next one says ``gap``. The end of the connection ends it, after what had arrived.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import msgspec
from openprogram_protocol.admin import DagEvent, FunctionsEvent, RunEvent, Since, StatusEvent, SubscribeParams, SubscribeResult, UnsubscribeParams
from openprogram_protocol.runs import RunInfo

from openprogram_clients.connection import Connection
from openprogram_clients.errors import ConnectionLost

Event = RunEvent | DagEvent | FunctionsEvent | StatusEvent

LIMIT = 10_000


class Inbox:
    """What one subscription has received. ``wake`` is called, in any thread, when there is something to take."""

    def __init__(self, connection: Connection, params: SubscribeParams, wake: Callable[[], None], *, limit: int = LIMIT) -> None:
        unknown = set(params.topics) - {"run", "dag", "functions", "status"}
        if unknown or not params.topics:
            raise ValueError(f"unknown topics {sorted(unknown)}; choose from run, dag, functions, status")
        self.params = params
        self._connection = connection
        self._wake = wake
        self._limit = limit
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self._answer: SubscribeResult | None = None
        self._seen = -1
        self._gap = False
        self._closed = False
        self._lost: ConnectionLost | None = None
        self._undo = [connection.on(f"openprogram/event/{topic}", self._arrived) for topic in set(params.topics)]
        self._undo.append(connection.at_end(self._ended))

    @property
    def request(self) -> tuple[str, SubscribeParams]:
        return "openprogram/subscribe", self.params

    @property
    def since(self) -> Since | None:
        """Where the next subscription goes on after this one."""
        return None if self._answer is None else Since(epoch=self._answer.epoch, seq=self._seen)

    def answered(self, answer: SubscribeResult) -> None:
        """The subscription stands: what came before it was meant for another one."""
        since = self.params.since
        goes_on = since is not None and since.epoch == answer.epoch
        with self._lock:
            self._answer = answer
            self._seen = since.seq if goes_on and since is not None else answer.seq
            self._gap = answer.gap
            closed = self._closed
        if closed:  # before the answer came
            self._unsubscribe(answer.subscription)
        self._wake()

    def settle(self, answer: Future[SubscribeResult]) -> None:
        """`answered`, for a subscription whose reply is not waited for."""
        error = answer.exception()
        if error is None:
            self.answered(answer.result())
        else:
            self._ended(error if isinstance(error, ConnectionLost) else ConnectionLost(f"the daemon refused the subscription: {error}"))

    def take(self) -> Event | None:
        """The next event, None when there is none yet. Raises ConnectionLost when none will come."""
        with self._lock:
            while self._answer is not None and self._events:
                event = self._events.popleft()
                # Events of one gap have one number, and what is replayed for another subscription an old one.
                if event.seq > self._seen or event.gap:
                    self._seen = max(self._seen, event.seq)
                    gap, self._gap = self._gap, False
                    return msgspec.structs.replace(event, gap=True) if gap else event
            if self._lost is not None:
                raise ConnectionLost(*self._lost.args)
            if not self._connection.is_ours:
                raise ConnectionLost("a subscription cannot be used in a forked process; subscribe again in it")
            return None

    def close(self) -> None:
        """Receive no more, and tell the daemon. May be called twice."""
        for undo in self._undo:
            undo()
        with self._lock:
            answer = None if self._closed else self._answer
            self._closed = True
        self._ended(ConnectionLost("this subscription was closed"))
        if answer is not None:
            self._unsubscribe(answer.subscription)

    def _unsubscribe(self, subscription: str) -> None:
        if self._connection.is_open:
            self._connection.request("openprogram/unsubscribe", UnsubscribeParams(subscription=subscription), wait=False)

    def _arrived(self, event: Event) -> None:
        if isinstance(event, RunEvent) and self.params.run_id not in (None, event.run_id):
            return
        if isinstance(event, DagEvent) and self.params.session not in (None, event.session):
            return
        if isinstance(event, RunEvent) and event.kind in ("started", "finished"):
            event = msgspec.structs.replace(event, data=msgspec.convert(event.data, RunInfo))
        with self._lock:
            if len(self._events) >= self._limit:
                self._events.popleft()
                self._gap = True
            self._events.append(event)
        self._wake()

    def _ended(self, why: ConnectionLost) -> None:
        with self._lock:
            self._lost = self._lost or why
        self._wake()


class Events:
    """An iterator over events; leaving its ``with`` block, or `close`, ends it. It raises ConnectionLost when the connection ends: subscribe anew ``since``."""

    def __init__(self, connection: Connection, params: SubscribeParams) -> None:
        self._ready = threading.Event()
        self.inbox = Inbox(connection, params, self._ready.set)
        self._closed = False

    @property
    def since(self) -> Since | None:
        """What to pass to the next subscription, so that it goes on where this one is."""
        return self.inbox.since

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.next()
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout_s: float | None = None) -> Event | None:
        """Wait for the next event; None when none came within ``timeout_s``, and at the end."""
        while not self._closed:
            self._ready.clear()
            event = self.inbox.take()
            if event is not None or not self._ready.wait(timeout_s):
                return event
        return None

    def close(self) -> None:
        """End the subscription, also for a thread that waits in it."""
        self._closed = True
        self.inbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
