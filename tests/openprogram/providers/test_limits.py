"""How many requests go out at once and in a minute."""

from __future__ import annotations

import asyncio
import threading

import pytest

from openprogram.providers.limits import Gate, Limits, gate_of


class Counter:
    """Counts who is inside, from any thread."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.all = 0
        self._lock = threading.Lock()

    async def visit(self, gate: Gate, turns: int = 3) -> None:
        async with gate.place():
            with self._lock:
                self.now += 1
                self.all += 1
                self.most = max(self.most, self.now)
            for _ in range(turns):
                await asyncio.sleep(0)
            with self._lock:
                self.now -= 1


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_allowed_are_inside(limit: int) -> None:
    """Over several loops in several threads, everybody gets in, and never more than the limit at once."""
    gate, counter = Gate(Limits(concurrency=limit)), Counter()

    async def many() -> None:
        await asyncio.gather(*(counter.visit(gate) for _ in range(40)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (counter.all, counter.now) == (120, 0)
    assert 1 <= counter.most <= limit


def test_first_come_first_served() -> None:
    """The order of arrival is the order of entry."""
    gate = Gate(Limits(concurrency=1))
    order: list[int] = []

    async def visit(number: int) -> None:
        async with gate.place():
            order.append(number)
            await asyncio.sleep(0)

    async def many() -> None:
        await asyncio.gather(*(visit(number) for number in range(20)))

    asyncio.run(many())
    assert order == list(range(20))


def test_who_is_cancelled_gives_the_place_back() -> None:
    """Whether it was still waiting, was just let in, or was inside."""
    gate, counter = Gate(Limits(concurrency=1)), Counter()

    async def run() -> None:
        for steps in range(6):
            holder = asyncio.create_task(counter.visit(gate))
            waiter = asyncio.create_task(counter.visit(gate))
            for _ in range(steps):
                await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.gather(holder, waiter, return_exceptions=True)
            holder = asyncio.create_task(counter.visit(gate, turns=10**9))
            await asyncio.sleep(0)
            holder.cancel()
            await asyncio.gather(holder, return_exceptions=True)
        counter.now = 0
        await asyncio.wait_for(counter.visit(gate), 5)

    asyncio.run(run())


def test_a_loop_that_ended_while_it_waited_holds_nobody_up() -> None:
    """Its place goes to the next."""
    gate, counter = Gate(Limits(concurrency=1)), Counter()

    async def give_up() -> None:
        async with gate.place():
            waiting = asyncio.create_task(counter.visit(gate))
            await asyncio.sleep(0)
            assert not waiting.done()

    for _ in range(3):
        asyncio.run(give_up())
    asyncio.run(counter.visit(gate))


def test_a_minute_holds_no_more_than_allowed() -> None:
    """Each request waits until the one that many before it began a minute ago; the clock is the test's own."""
    now = [0.0]
    waits: list[float] = []
    gate = Gate(Limits(requests_per_minute=2), clock=lambda: now[0])
    for later in (0.0, 10.0, 10.0, 0.0, 100.0):
        now[0] += later
        waits.append(gate._until_next())  # pyright: ignore[reportPrivateUsage] - what it waits is all that there is to see
    assert waits == [0.0, 0.0, 40.0, 50.0, 0.0]


def test_gates_are_shared_by_provider_address_and_key() -> None:
    """No limits, no gate; other limits than before make a new one."""
    limits = Limits(concurrency=2)
    assert gate_of("a", "http://x", "k", Limits()) is None
    gate = gate_of("a", "http://x", "k", limits)
    assert gate is gate_of("a", "http://x", "k", Limits(concurrency=2))
    assert gate is not gate_of("a", "http://x", "other", limits)
    assert gate is not gate_of("a", "http://x", "k", Limits(concurrency=3))
