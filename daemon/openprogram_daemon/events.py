"""Events: numbered in one sequence for this life of the daemon, kept for a while, sent to whoever subscribed.

Each run has a ring of 4 MiB, so that a client that comes back reads on from where it left off; each session, and all else, a smaller one; those used least
give way when all together hold too much. Where a ring no longer reaches back far enough, or the client's number is of another life of the daemon, the answer
is ``gap``: read again what you show.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import msgspec
from openprogram_protocol import admin, rpc

from openprogram_daemon.outbox import Gap, Text

RUN_RING = 4 * 1024 * 1024
OTHER_RING = 1024 * 1024
MOST_RINGS = 256
MOST_BYTES = 64 * 1024 * 1024
TOPICS = ("run", "dag", "functions", "status")
_TEXTS = ("output", "delta")
# Numbered only once somebody has asked for them.
_ON_DEMAND = frozenset({"dag", "functions"})


class Key(NamedTuple):
    """What an event is about: a topic, and a run, session or workspace in it."""

    topic: str
    about: str


class Receiver(Protocol):
    """A connection that events are sent to."""

    def event(self, body: bytes, gap: Gap) -> None: ...

    def text(self, text: Text, gap: Gap) -> None: ...


class Subscription(NamedTuple):
    """What a connection wants to hear of; ``about`` narrows topics down to runs or sessions."""

    topics: frozenset[str]
    about: dict[str, str]

    def wants(self, key: Key) -> bool:
        """Whether an event is among it."""
        return key.topic in self.topics and self.about.get(key.topic, key.about) == key.about


class _Ring:
    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0
        self.dropped = 0
        self.kept: deque[tuple[int, bytes]] = deque()

    def add(self, seq: int, body: bytes) -> int:
        """By how many bytes it has grown."""
        before = self.size
        self.kept.append((seq, body))
        self.size += len(body)
        while self.size > self.most:
            self.dropped, old = self.kept.popleft()
            self.size -= len(old)
        return self.size - before


class Events:
    """Publish, subscribe and replay; only ever used on the loop."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self.seq = 0
        self._rings: OrderedDict[Key, _Ring] = OrderedDict()
        self._forgotten = 0
        self._bytes = 0
        self._subscribed: dict[str, tuple[Receiver, Subscription]] = {}
        self._asked: set[str] = set()
        self._count = 0

    def publish(self, key: Key, make: Callable[[int], Any]) -> None:
        """Number an event, keep it, send it. ``make`` gets the number and returns the struct of its notification."""
        self.seq += 1
        event = make(self.seq)
        body = _body(key.topic, event)
        self._bytes += self._ring(key).add(self.seq, body)
        self._forget()
        receivers = {id(receiver): receiver for receiver, wanted in self._subscribed.values() if wanted.wants(key)}
        for receiver in receivers.values():
            self._hand(receiver, key, event, body)

    def _hand(self, receiver: Receiver, key: Key, event: Any, body: bytes) -> None:
        if isinstance(event, admin.RunEvent) and event.kind in _TEXTS:
            run: admin.RunEvent = event

            def joined(text: str) -> Any:
                return _message(key.topic, msgspec.structs.replace(run, data=text))

            receiver.text(Text((run.run_id, run.kind), str(run.data), joined), self._gap(key))
        else:
            receiver.event(body, self._gap(key))

    def _gap(self, key: Key) -> Gap:
        return Gap(key, lambda: _body(key.topic, _gap_of(key, self.seq)))

    def wanted(self, topic: str) -> bool:
        """Whether anybody has asked for a topic in this life of the daemon; before that nobody can miss anything of it."""
        return topic in self._asked

    def _ring(self, key: Key) -> _Ring:
        if key not in self._rings:
            self._rings[key] = _Ring(RUN_RING if key.topic == "run" else OTHER_RING)
        self._rings.move_to_end(key)
        return self._rings[key]

    def _forget(self) -> None:
        while len(self._rings) > MOST_RINGS or self._bytes > MOST_BYTES:
            _, old = self._rings.popitem(last=False)
            self._bytes -= old.size
            self._forgotten = max(self._forgotten, old.kept[-1][0] if old.kept else old.dropped)

    def subscribe(self, receiver: Receiver, wanted: Subscription, since: admin.Since | None) -> admin.SubscribeResult:
        """From now on, and what came after ``since`` as far as it is kept."""
        self._count += 1
        unheard = wanted.topics & _ON_DEMAND - self._asked
        self._asked |= wanted.topics
        name = f"s{self._count}"
        self._subscribed[name] = (receiver, wanted)
        gap = since is not None and (self._replay(receiver, wanted, since) or (bool(unheard) and since.seq < self.seq))
        return admin.SubscribeResult(subscription=name, epoch=self.epoch, seq=self.seq, gap=gap)

    def _replay(self, receiver: Receiver, wanted: Subscription, since: admin.Since) -> bool:
        """Send what is kept; True when something is missing."""
        if since.epoch != self.epoch:
            return True
        rings = [(key, ring) for key, ring in self._rings.items() if wanted.wants(key)]
        found = sorted((seq, body, key) for key, ring in rings for seq, body in ring.kept if seq > since.seq)
        for _, body, key in found:
            receiver.event(body, self._gap(key))
        return since.seq < self._forgotten or any(ring.dropped > since.seq for _, ring in rings)

    def unsubscribe(self, names: Iterable[str], receiver: Receiver) -> None:
        """End subscriptions of a connection."""
        for name in names:
            if name in self._subscribed and self._subscribed[name][0] is receiver:
                del self._subscribed[name]

    def leave(self, receiver: Receiver) -> None:
        """The connection is gone."""
        self.unsubscribe([name for name, (who, _) in self._subscribed.items() if who is receiver], receiver)


def _gap_of(key: Key, seq: int) -> Any:
    if key.topic == "run":
        return admin.RunEvent(seq=seq, run_id=key.about, kind="gap", gap=True)
    if key.topic == "dag":
        return admin.DagEvent(seq=seq, session=key.about, gap=True)
    if key.topic == "functions":
        return admin.FunctionsEvent(seq=seq, workspace=key.about, file="", gap=True)
    return admin.StatusEvent(seq=seq, kind="gap", gap=True)


def _message(topic: str, event: Any) -> rpc.Request:
    return rpc.Request(method=f"openprogram/event/{topic}", params=event)


def _body(topic: str, event: Any) -> bytes:
    return rpc.encode(_message(topic, event))
