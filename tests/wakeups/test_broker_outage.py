"""The broker goes away under load and comes back: nothing is lost, no caller notices, and latency falls back.

Here a relay cuts and refuses every connection for two seconds. HOLDFAST_TEST_LONG=1 adds a real RabbitMQ that is killed
with -9 and started again after ten; it takes seven seconds to start, so it is not for every run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from tests.support.broker import Node, Relay, channel, real_broker
from tests.support.running import until, working

Sql = Callable[..., list[Any]]
LONG = os.environ.get("HOLDFAST_TEST_LONG") == "1"
EVERY = 0.025  # seconds between the enqueues of each of two callers
POLL = 0.6
LATE = 1.0  # seconds by which a busy machine may be late
# Seconds that an enqueue may take, 99 of 100 and any, on a busy machine. A wait for a broker would take 5.
USUAL, SLOWEST = 0.5, 2.0
EDGE = 0.3  # seconds around a cut and a return that count as the outage


@dataclass
class Record:
    """What was observed from outside: all times by one monotonic clock."""

    sent: dict[int, tuple[float, float]] = field(default_factory=dict)  # when enqueue was called and when it returned
    starts: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)  # that reached a caller
    ends: dict[str, int] = field(default_factory=dict)  # jobs by final status, as the database has them
    begun: float = 0.0  # worker and callers are connected to the broker
    cut: float = 0.0
    back: float = 0.0  # connected again

    def latencies(self, since: float, until: float) -> list[float]:
        sent = {number: called for number, (called, _) in self.sent.items() if since <= called < until}
        return [self.starts[number][0] - called for number, called in sent.items() if self.starts.get(number)]


def problems(it: Record) -> list[str]:
    """Return every violation in the record."""
    found = [f"an enqueue raised {error}" for error in it.errors]
    found += [f"job {n} was accepted and started {len(it.starts[n])} times" for n in it.sent if len(it.starts[n]) != 1]
    if it.ends != {"succeeded": len(it.sent)}:
        found.append(f"{len(it.sent)} jobs were accepted, the database has {it.ends}")
    taken = sorted(returned - called for called, returned in it.sent.values())
    if taken[-1] > SLOWEST or taken[len(taken) * 99 // 100] > USUAL:
        found.append(f"an enqueue took {taken[-1]:.2f} s, 1 in 100 more than {taken[len(taken) * 99 // 100]:.2f} s")
    before, out = it.latencies(it.begun + EDGE, it.cut - EDGE), it.latencies(it.cut, it.back - EDGE)
    after = it.latencies(it.back + EDGE, float("inf"))
    if min(map(len, (before, out, after))) < 20:
        return [*found, f"too few to judge: {len(before)} before, {len(out)} in and {len(after)} after the outage"]
    usual, then = statistics.median(before), statistics.median(after)
    if usual > POLL / 4:
        found.append(f"hints did not cut the latency before the outage: p50 {usual:.3f} s")
    if statistics.median(out) < POLL / 8:
        found.append("hints came during the outage: there was none")
    if (longest := max(out)) > POLL * 1.25 + LATE:
        found.append(f"a job waited {longest:.2f} s during the outage, more than a poll")
    if then > max(2 * usual, usual + 0.02):
        found.append(f"the latency did not fall back: p50 {usual * 1000:.1f} ms before, {then * 1000:.1f} ms after")
    return found


def figures(it: Record) -> str:
    """Return figures for the log of a failed test."""
    spans = ((it.begun + EDGE, it.cut - EDGE), (it.cut, it.back - EDGE), (it.back + EDGE, float("inf")))
    each = [it.latencies(*span) for span in spans]
    parts = [f"{len(x)} jobs p50 {statistics.median(x) * 1000:.1f} max {max(x) * 1000:.0f} ms" for x in each if x]
    slow = max(it.sent, key=lambda n: it.sent[n][1] - it.sent[n][0])
    called, returned = it.sent[slow]
    return (
        f"before, in, after: {'; '.join(parts)}. Back {it.back - it.cut:.1f} s after the cut. Slowest enqueue "
        f"{returned - called:.3f} s, {called - it.cut:+.1f} s from the cut"
    )


class Load:
    """Callers that enqueue at a steady pace, one on the event loop and one in a thread, until stopped."""

    def __init__(self, task: Any, record: Record) -> None:
        self._task, self._record = task, record
        self._numbers = itertools.count()
        self._over = threading.Event()

    async def run(self) -> None:
        await asyncio.gather(self._on_the_loop(), asyncio.to_thread(self._in_a_thread))

    def stop(self) -> None:
        self._over.set()

    async def _on_the_loop(self) -> None:
        while not self._over.is_set():
            with self._noted() as number:
                await self._task.aenqueue(number)
            await asyncio.sleep(EVERY)

    def _in_a_thread(self) -> None:
        while not self._over.wait(EVERY):
            with self._noted() as number:
                self._task.enqueue(number)

    @contextlib.contextmanager
    def _noted(self) -> Iterator[int]:
        number, called = next(self._numbers), time.monotonic()
        try:
            yield number
        except Exception as error:
            self._record.errors.append(repr(error))
        self._record.sent[number] = called, time.monotonic()


async def outage(dsn: str, exchange: str, broker: Relay | Node, seconds: float, sql: Sql) -> Record:
    """Put load on an application whose broker goes and comes, and return the record."""
    record = Record()
    await broker.up()
    with Holdfast(dsn, amqp_enabled=True, amqp_url=broker.url, amqp_exchange=exchange) as hf:

        @hf.task(name="note")
        async def note(number: int) -> None:
            record.starts[number].append(time.monotonic())

        def connected() -> bool:
            consumer, thread = getattr(worker, "consumer", None), hf.database.publisher.thread
            return bool(consumer and consumer.connected and thread and thread.connection.connected)

        async with working(hf, notify=False, poll=POLL) as worker:
            load = Load(note, record)
            loading = asyncio.create_task(load.run())
            try:
                await until(connected)
                record.begun, sent = time.monotonic(), len(record.sent)
                await until(lambda: len(record.sent) > sent + 80)
                record.cut = time.monotonic()
                await broker.down()
                await asyncio.sleep(seconds)
                await broker.up()
                await until(connected)
                record.back, sent = time.monotonic(), len(record.sent)
                await until(lambda: len(record.sent) > sent + 100)
            finally:
                load.stop()
                await loading
            await until(lambda: not sql("select 1 from jobs where status not in ('succeeded', 'failed', 'dead')"))
        record.ends = dict(sql("select status::text, count(*)::int from jobs group by 1"))
    return record


async def test_a_broker_that_goes_and_comes_costs_latency_and_nothing_else(dsn: str, sql: Sql) -> None:
    real_broker()
    relay, exchange = Relay(), f"holdfast-test-{os.urandom(4).hex()}"
    async with channel(exchange):
        try:
            record = await outage(dsn, exchange, relay, 2.0, sql)
        finally:
            await relay.down()
    print(figures(record))
    assert problems(record) == []


@pytest.mark.skipif(not LONG, reason="A REAL BROKER IS KILLED FOR 10 S ONLY WITH HOLDFAST_TEST_LONG=1")
async def test_a_real_broker_that_is_killed_for_ten_seconds_loses_nothing(dsn: str, sql: Sql, tmp_path: Path) -> None:
    node = Node(tmp_path)
    try:
        record = await outage(dsn, "holdfast", node, 10.0, sql)
    finally:
        await node.down()
    print(figures(record))
    assert problems(record) == []


def sound() -> Record:
    """Return a record without fault: 50 jobs before, in and after an outage from 10 to 20."""
    record = Record(begun=0.0, cut=10.0, back=20.0, ends={"succeeded": 150})
    for n in range(150):
        called = 1.0 + n / 10 if n < 50 else 11 + (n - 50) / 10 if n < 100 else 21 + (n - 100) / 10
        record.sent[n] = called, called + 0.01
        record.starts[n] = [called + (0.3 if 50 <= n < 100 else 0.01)]
    return record


def _spoil(record: Record, name: str) -> None:
    if name == "lost":
        del record.starts[70]
    elif name == "twice":
        record.starts[70].append(19.0)
    elif name == "not succeeded":
        record.ends = {"succeeded": 149, "dead": 1}
    elif name == "one slow enqueue":
        record.sent[70] = record.sent[70][0], record.sent[70][0] + 5.0
    elif name == "slow enqueues":
        record.sent |= {n: (record.sent[n][0], record.sent[n][0] + 0.6) for n in range(70, 74)}
    elif name == "error":
        record.errors.append("OSError()")
    elif name == "deaf after":
        record.starts |= {n: [record.sent[n][0] + 0.3] for n in range(100, 150)}
    elif name == "deaf before":
        record.starts |= {n: [record.sent[n][0] + 0.3] for n in range(50)}
    elif name == "no outage":
        record.starts |= {n: [record.sent[n][0] + 0.01] for n in range(50, 100)}
    elif name == "later than a poll":
        record.starts[70] = [record.sent[70][0] + 2.0]
    else:
        record.back = record.cut


@pytest.mark.parametrize(
    "fault",
    [
        "lost",
        "twice",
        "not succeeded",
        "one slow enqueue",
        "slow enqueues",
        "error",
        "deaf after",
        "deaf before",
        "no outage",
        "later than a poll",
        "too few",
    ],
)
def test_each_fault_would_be_found(fault: str) -> None:
    assert problems(sound()) == []
    spoilt = sound()
    _spoil(spoilt, fault)
    assert problems(spoilt) != []
