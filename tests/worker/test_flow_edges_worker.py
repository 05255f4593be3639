"""Workers at limits: they claim when there is room, and are quiet while there is none."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Limit, Status
from holdfast.store.jobs import JobCalls
from holdfast.worker import Worker
from holdfast.worker.sleeper import Sleeper
from tests.support import flow
from tests.support.running import ended, until, working

POLL = 60.0  # a worker that is not woken would not look again within the test
SPAN = 5.0  # seconds for which a worker is watched


def calls_of(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[float]:
    """Record when a method is called, from now on."""
    made: list[float] = []
    method = getattr(owner, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        made.append(time.monotonic())
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, called)
    return made


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When workers claimed."""
    return calls_of(monkeypatch, JobCalls, "claim")


@pytest.mark.parametrize("jobs", [1, 50])
async def test_a_ring_that_a_transaction_holds_for_long_is_not_hammered(
    hf: Holdfast, dsn: str, sql: Any, claims: list[float], jobs: int
) -> None:
    @hf.task(name="t", limits=[Limit("k", concurrency=5)])
    async def t() -> None: ...

    @hf.task(name="plain")
    async def plain() -> None: ...

    async with working(hf) as worker:
        await until(lambda: sql("select 1 from sleepers"))
        with psycopg.connect(dsn, options="-c search_path=holdfast") as other:
            other.execute("select lock_ring()")
            other.execute("set local idle_in_transaction_session_timeout = 0")
            ids = (await t.aenqueue_many([{}] * jobs)).ids
            await until(lambda: worker.counts.contention > 10)
            before = len(claims)
            await asyncio.sleep(2)  # the one thing that only time can show
            assert len(claims) - before <= 20
            assert (await ended(hf, (await plain.aenqueue()).id)).status is Status.SUCCEEDED, "it needs no ring"
            assert sql("select count(*) from live where task = 't' and token is null") == [(jobs,)]
            other.rollback()
            assert (await ended(hf, ids[-1])).status is Status.SUCCEEDED
    await hf.aclose()


async def test_no_open_transaction_of_an_operator_holds_up_a_claim(hf: Holdfast, dsn: str, sql: Any) -> None:
    @hf.task(name="t", limits=[Limit("k:{n}", concurrency=1)])
    async def t(n: int) -> None: ...

    changes = [
        "set_limit('k:1', '{\"concurrency\": 0}')",
        "set_limit('k:{n}', '{\"concurrency\": 0}')",
        "pause('k:1')",
        "pause('queue:default')",
        "pause('task:t')",
        "pause('tenant:a')",
        "resume('k:2')",
        "clear_limit('k:2')",
        "reset_breaker('k:1')",
    ]
    hf.limits.pause("k:2")
    async with working(hf, poll=POLL) as worker:
        await ended(hf, (await t.using(tenant="a").aenqueue(1)).id)
        for change in changes:
            with psycopg.connect(dsn, options="-c search_path=holdfast") as other:
                other.execute(f"select {change}")
                assert (await ended(hf, (await t.using(tenant="a").aenqueue(1)).id)).status is Status.SUCCEEDED, change
                other.rollback()
        assert worker.counts.contention == 0
    await hf.aclose()


async def test_a_job_runs_at_once_when_a_job_of_another_tenant_makes_room(hf: Holdfast, sql: Any) -> None:
    """The one that ends was on another worker, which does not serve the queue of the other."""
    gate = asyncio.Event()

    @hf.task(name="shared", limits=[Limit("k", concurrency=1)])
    async def shared(wait: bool) -> None:
        if wait:
            await gate.wait()

    first = await shared.using(tenant="a").aenqueue(True)
    async with working(hf, poll=POLL, concurrency=1):
        await until(lambda: sql("select 1 from claims"))
        async with working(hf, poll=POLL, queues="other"):
            second = await shared.using(tenant="b", queue="other").aenqueue(False)
            await until(lambda: sql("select 1 from lanes where queue = 'other' and closed_by = 'k'"))
            await until(lambda: sql("select 1 from sleepers where queue = 'other'"))
            assert "key" in hf.jobs.why(second.id).reasons[0].facts
            gate.set()
            assert (await ended(hf, second.id)).status is Status.SUCCEEDED
            await ended(hf, first.id)
    await hf.aclose()


LIMITED = ["queue:default", "task:t", "tenant:a", "k"]


@pytest.mark.parametrize("key", LIMITED)
async def test_a_limit_is_used_to_the_full_without_notifications(hf: Holdfast, claims: list[float], key: str) -> None:
    @hf.task(name="t", limits=[Limit("k", concurrency=1)] if key == "k" else [])
    async def t() -> None: ...

    await hf.limits.aset(key, concurrency=1)
    began = time.monotonic()
    ids = (await t.using(tenant="a" if key == "tenant:a" else None).aenqueue_many([{}] * 20)).ids
    async with working(hf, poll=POLL, notify=False):
        for id_ in ids:
            await ended(hf, id_)
        assert time.monotonic() - began < 8
        await asyncio.sleep(1.5)
        before = len(claims)
        await asyncio.sleep(1)  # the one thing that only time can show
        assert len(claims) - before <= 5
    await hf.aclose()


@pytest.mark.parametrize("key", LIMITED)
async def test_a_worker_that_sleeps_starts_a_job_when_another_makes_room(hf: Holdfast, sql: Any, key: str) -> None:
    """The one that ends its job is stopped meanwhile: it starts nothing more."""
    gates = [asyncio.Event(), asyncio.Event()]

    @hf.task(name="t", limits=[Limit("k", concurrency=1)] if key == "k" else [])
    async def t(n: int) -> None:
        await gates[n].wait()

    await hf.limits.aset(key, concurrency=1)
    using = t.using(tenant="a" if key == "tenant:a" else None)
    first = await using.aenqueue(0)
    async with working(hf, poll=POLL, notify=False) as busy:
        await until(lambda: busy.buffer.running)
        async with working(hf, poll=POLL):
            second = await using.aenqueue(1)
            gates[1].set()
            await until(lambda: sql("select 1 from throttled where key = %s", [key]))
            await until(lambda: sql("select 1 from sleepers"))
            busy.claimer.stop()
            gates[0].set()
            assert (await ended(hf, first.id)).status is Status.SUCCEEDED
            assert (await ended(hf, second.id)).status is Status.SUCCEEDED
    await hf.aclose()


async def test_a_worker_at_thousands_of_full_keys_is_quiet(
    hf: Holdfast, sql: Any, claims: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from its first claim on, not after a pause: a slow machine claims later, and must not fail
    for claims that then fall into the measured time."""
    sleeps = calls_of(monkeypatch, Sleeper, "sleep")

    @hf.task(name="t", limits=[Limit("k:{n}", concurrency=1)])
    async def t(n: int) -> None: ...

    async with working(hf):  # registers the rule
        await until(lambda: sql("select 1 from limit_rules"))
    claims.clear()
    sleeps.clear()
    await t.aenqueue_many([(n,) for n in range(3000)])
    assert sum(len(flow.claim(sql, "other", 2000, ttl=600)) for _ in range(2)) == 3000
    await t.aenqueue_many([(n,) for n in range(3000)])
    worker = Worker(hf)
    running = asyncio.create_task(worker.run())
    await until(lambda: claims and sql("select count(*) = 3000 from lanes where closed_by is not null")[0][0])
    await asyncio.sleep(claims[0] + SPAN - time.monotonic())  # the one thing that only time can show
    worker.stop()
    await running
    awake, made = (sum(at < claims[0] + SPAN for at in each) for each in (sleeps, claims))
    assert sql("select sum(count) from throttled") == [(3000,)], "each is closed once, and left alone until it has room"
    assert awake <= 15  # a poll takes half a second
    assert made <= 150  # many lanes in each
    await hf.aclose()
