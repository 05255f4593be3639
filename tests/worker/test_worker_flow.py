"""Workers under limits and with tenants: no limit exceeded, no worker idle, no tenant starved, everything counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Limit
from holdfast.worker import Worker
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]
READ = "select coalesce(sum(idx_tup_fetch), 0)::int from pg_stat_user_tables where relname = 'live'"
SLEEPY = {"poll": 60.0, "upkeep": 60.0}  # whatever happens within a test's patience, it was not polling


class Gate:
    """A gate for handlers that records how many of each key wait in it at most."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.open = asyncio.Event()

    async def __call__(self, key: str) -> None:
        self.inside[key] += 1
        self.most[key] = max(self.most[key], self.inside[key])
        try:
            await self.open.wait()
        finally:
            self.inside[key] -= 1


async def test_waiting_jobs_are_counted_by_key_and_tenant(hf: Holdfast, sql: Sql) -> None:
    gate = Gate()

    @hf.task(limits=[Limit("domain:{domain}", concurrency=1)])
    async def visit(domain: str) -> None:
        await gate(domain)

    async with working(hf) as worker:
        for tenant in ("acme", None):
            for _ in range(3):
                await visit.using(tenant=tenant).aenqueue("a")
        await until(lambda: sql("select count(*) = 2 from throttled")[0][0])
        assert sql("select key, tenant from throttled order by 2") == [("domain:a", ""), ("domain:a", "acme")]
        gate.open.set()
        await until(lambda: worker.finisher.succeeded == 6)
    assert gate.most == {"a": 1}
    assert sql("select attempt, count(*) from history group by 1") == [(1, 6)], "waiting costs no attempts"


async def test_a_worker_and_the_database_count_the_same_when_limits_close_lanes(hf: Holdfast, sql: Sql) -> None:
    """A claim counts what it closes in its own transaction, so both figures are there at once and stay equal."""
    gate = Gate()

    @hf.task(limits=[Limit("domain:{domain}", concurrency=1)])
    async def visit(domain: str) -> None:
        await gate(domain)

    def stored() -> int:
        return int(sql("select coalesce(sum(count), 0) from throttled")[0][0])

    async with working(hf) as worker:
        for domain in ("first", "second"):
            await visit.aenqueue_many([(domain,)] * 5)
            await until(lambda key=f"domain:{domain}": sql("select 1 from throttled where key = %s", [key]))
        await until(lambda: stored() == worker.counts.throttled)
        gate.open.set()
        await until(lambda: worker.finisher.succeeded == 10)
        assert worker.counts.throttled >= 2
    assert stored() == worker.counts.throttled


async def test_a_worker_that_sleeps_starts_a_job_when_another_frees_its_key(hf: Holdfast, dsn: str, sql: Sql) -> None:
    """The first holds the key and is full; the second has slots and nothing to do. It must not wait for its poll."""
    started: list[str] = []

    @hf.task(limits=[Limit("k", concurrency=1)])
    async def one(name: str) -> None:
        started.append(name)
        await (held if name == "first" else asyncio.Event()).wait()

    held = asyncio.Event()
    async with working(hf, concurrency=1, prefetch=0.0, **SLEEPY) as busy:
        await one.aenqueue("first")
        await until(lambda: started == ["first"])
        other = Holdfast(dsn)
        runs: list[str] = []

        @other.task(name=one.name, limits=[Limit("k", concurrency=1)])
        async def same(name: str) -> None:
            runs.append(name)

        async with working(other, **SLEEPY):  # the busy one is full, and not among the sleepers
            await until(lambda: sql("select count(*) > 0 from sleepers")[0][0])
            job = await one.aenqueue("second")
            await until(lambda: sql("select count(*) > 0 from throttled")[0][0])
            busy.claimer.stop()
            held.set()
            await ended(hf, job.id)
            assert runs == ["second"]
        other.close()


async def test_a_small_tenant_is_served_beside_a_large_one(hf: Holdfast, sql: Sql) -> None:
    order: list[str | None] = []

    @hf.task()
    async def note(tenant: str) -> None:
        order.append(tenant)

    await note.using(tenant="large").aenqueue_many([("large",)] * 500)
    await note.using(tenant="small").aenqueue_many([("small",)] * 5)
    async with working(hf, concurrency=1, prefetch=0.0):
        await until(lambda: len(order) == 505)
    assert max(n for n, tenant in enumerate(order) if tenant == "small") < 60


async def test_a_tenant_with_many_limited_keys_is_no_larger_than_one_with_few(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.task(limits=[Limit("host:{host}", concurrency=2)])
    async def visit(host: str) -> None:
        order.append(host)
        await asyncio.sleep(0.02)

    await visit.using(tenant="whale").aenqueue_many([(f"w{n}",) for n in range(1000)])
    await visit.using(tenant="minnow").aenqueue_many([(f"m{n}",) for n in range(10)])
    async with working(hf, concurrency=8, prefetch=0.0):
        await until(lambda: len(order) > 500)
    last = max(n for n, host in enumerate(order) if host[0] == "m")
    assert last < 200, f"ten jobs took their turn after {last} of the other's"


async def test_weights_change_the_shares(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.task()
    async def note(tenant: str) -> None:
        order.append(tenant)
        await asyncio.sleep(0.005)

    for tenant in ("heavy", "light"):
        await note.using(tenant=tenant).aenqueue_many([(tenant,)] * 400)
    hf.limits.set("tenant:heavy", weight=3)
    async with working(hf, concurrency=4, prefetch=0.0):
        await until(lambda: len(order) > 400)
    half = Counter(order[40:340])
    assert 2 < half["heavy"] / half["light"] < 4.5


@pytest.mark.parametrize("keys", ["queue:default", "task:slow", "tenant:acme"])
async def test_a_pause_steps_over_a_backlog_once_and_for_all(hf: Holdfast, sql: Sql, keys: str) -> None:
    """Jobs that may run are found behind any number that may not, and those are not read again by every claim."""

    @hf.task(name="slow")
    async def slow() -> None: ...

    @hf.task(name="quick", queue="other" if keys == "queue:default" else "default")
    async def quick() -> None: ...

    tenant = "acme" if keys == "tenant:acme" else None
    await slow.using(tenant=tenant).aenqueue_many([()] * 3000)
    hf.limits.pause(keys)
    async with working(hf, queues="default,other") as worker:
        read = []
        for _ in range(6):  # the server reports reads a second later: those that step over the backlog come first
            for _ in range(10):
                await ended(hf, (await quick.aenqueue()).id)
            read.append(sql(READ)[0][0])
        steps = [after - before for before, after in pairwise(read)]
        assert min(steps[2:]) < 3000, f"the backlog was read again: {steps}"
        assert sql("select count(*) from live where task = 'slow' and attempt = 0") == [(3000,)]
        hf.limits.resume(keys)
        await until(lambda: worker.finisher.succeeded == 3060)


@pytest.mark.parametrize("closed", ["full", "paused", "rate"])
async def test_a_worker_that_waits_for_limits_rests(hf: Holdfast, sql: Sql, closed: str) -> None:
    """Not a loop of claims that find nothing: a handful of calls a second, whatever is waited for."""
    hold = asyncio.Event()
    limit = {"full": {"concurrency": 1}, "paused": {"concurrency": 1}, "rate": {"rate": 1, "per": 3600}}[closed]

    @hf.task(limits=[Limit("key:{n}", **limit)])
    async def one(n: int) -> None:
        await hold.wait()

    for n in range(20):
        await one.aenqueue_many([(n,)] * 5)
        if closed == "paused":
            hf.limits.pause(f"key:{n}")
    async with working(hf, poll=1.0) as worker:
        if closed != "paused":
            await until(lambda: len(worker.buffer.running) == 20)
        hold.set() if closed == "rate" else None
        await until(lambda: sql("select count(*) from throttled")[0][0] >= 20)
        await asyncio.sleep(1.0)
        calls = count_claims(hf)
        await asyncio.sleep(2.0)
        assert calls() <= 30
        hold.set()


def count_claims(hf: Holdfast) -> Callable[[], int]:
    """Count the claims of an application's workers from now on."""
    calls, claim = [], hf.database.calls.jobs.claim

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(args)
        return claim(*args, **more)

    hf.database.calls.jobs.claim = counted  # type: ignore[method-assign]
    return lambda: len(calls)


async def test_a_run_until_idle_leaves_nothing_that_may_start(hf: Holdfast, sql: Sql, dsn: str) -> None:
    """Another claim has the ring for a while: all jobs with tenants or limits wait for it, and are not forgotten."""
    keys, ran, held = 40, Counter[int](), False
    other = psycopg.connect(dsn, options=f"-c search_path={hf.settings.schema}")

    @hf.task(limits=[Limit("k:{n}", concurrency=1)])
    async def runs(n: int, jobs: int) -> None:
        nonlocal held
        ran[n] += 1
        if not held and sum(ran.values()) >= 2 * keys:
            held = other.execute("select lock_ring()").fetchone() == (True,)
            other.execute("set local idle_in_transaction_session_timeout = 0")

    async def let_go(worker: Worker) -> None:
        await until(lambda: held and worker.counts.contention >= 5)
        other.rollback()

    with other:
        for jobs in (4, 5, 6):
            ran.clear()
            held = False
            await runs.aenqueue_many([(n, jobs) for n in range(keys) for _ in range(jobs)])
            worker = Worker(hf, concurrency=400)
            letting_go = asyncio.create_task(let_go(worker))
            await worker.run(until_idle=True)
            await letting_go
            assert sql("select count(*) from live") == [(0,)]
            assert ran == dict.fromkeys(range(keys), jobs)
