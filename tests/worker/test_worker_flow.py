"""Workers under limits and with tenants: nobody above a limit, nobody idle, nobody starved, everything counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from conftest import PATIENCE
from running import ended, until, working

from holdfast import Holdfast, Limit
from holdfast.worker import Worker
from holdfast.worker.lanes import Lanes
from holdfast.worker.loop import TELL_SHARE

Sql = Callable[..., list[tuple[Any, ...]]]
READ = "select coalesce(sum(idx_tup_fetch), 0)::int from pg_stat_user_tables where relname = 'live'"
SLEEPY = {"poll": 60.0, "upkeep": 60.0}  # whatever happens within a test's patience, nobody polled for it


class Gate:
    """Handlers that wait in it, and how many of each key there are at most."""

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


async def test_what_has_to_wait_is_counted_by_key_and_tenant(hf: Holdfast, sql: Sql) -> None:
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


async def test_what_had_to_wait_is_counted_at_once_and_told_when_the_database_has_the_time(
    hf: Holdfast, sql: Sql
) -> None:
    """To store the counts of ten thousand keys takes a while. The next time comes after twenty times as long; whoever
    looks at the worker's own figures, or stops it, does not wait for that."""
    gate = Gate()

    @hf.task(limits=[Limit("domain:{domain}", concurrency=1)])
    async def visit(domain: str) -> None:
        await gate(domain)

    sql(
        "create function pause_a_little() returns trigger language plpgsql as "
        "$$ begin perform pg_sleep(1); return null; end $$"
    )
    sql("create trigger slow before insert on throttled execute function pause_a_little()")
    began = time.monotonic()
    try:
        async with working(hf) as worker:
            for _ in range(2):
                await visit.aenqueue("first")
            await until(lambda: sql("select key from throttled") == [("domain:first",)])
            for _ in range(2):
                await visit.aenqueue("second")
            await until(lambda: ("domain:second", "") in worker.claimer.lanes.throttled)
            assert worker.counts.throttled >= 2
            assert worker._throttled_at >= began + 1 + TELL_SHARE, "a second's insert may be repeated after twenty"
            assert sql("select key from throttled") == [("domain:first",)]
            gate.open.set()
            await until(lambda: worker.finisher.succeeded == 4)
        assert sql("select key from throttled order by 1") == [("domain:first",), ("domain:second",)]
    finally:
        sql("drop trigger slow on throttled")
        sql("drop function pause_a_little()")


async def test_a_worker_that_sleeps_is_told_when_another_frees_a_key(hf: Holdfast, dsn: str, sql: Sql) -> None:
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
    hf.set_limit("tenant:heavy", weight=3)
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
    hf.pause(keys)
    async with working(hf, queues="default,other") as worker:
        read = []
        for _ in range(6):  # the server tells what was read a second later: those that step over the backlog come first
            for _ in range(10):
                await ended(hf, (await quick.aenqueue()).id)
            read.append(sql(READ)[0][0])
        steps = [after - before for before, after in pairwise(read)]
        assert min(steps[2:]) < 3000, f"the backlog was read again: {steps}"
        assert sql("select count(*) from live where task = 'slow' and attempt = 0") == [(3000,)]
        hf.resume(keys)
        await until(lambda: worker.finisher.succeeded == 3060)


@pytest.mark.parametrize("closed", ["full", "paused", "rate"])
async def test_a_worker_that_waits_for_limits_rests(hf: Holdfast, sql: Sql, closed: str) -> None:
    """Not a loop of claims that find nothing: a handful of calls a second, whatever it is that must be waited for."""
    hold = asyncio.Event()
    limit = {"full": {"concurrency": 1}, "paused": {"concurrency": 1}, "rate": {"rate": 1, "per": 3600}}[closed]

    @hf.task(limits=[Limit("key:{n}", **limit)])
    async def one(n: int) -> None:
        await hold.wait()

    for n in range(20):
        await one.aenqueue_many([(n,)] * 5)
        if closed == "paused":
            hf.pause(f"key:{n}")
    async with working(hf, poll=1.0) as worker:
        if closed != "paused":
            await until(lambda: len(worker.hand.running) == 20)
        hold.set() if closed == "rate" else None
        await until(lambda: sql("select count(*) from throttled")[0][0] >= 20)
        await asyncio.sleep(1.0)
        calls = count_claims(worker)
        await asyncio.sleep(2.0)
        assert calls() <= 30
        hold.set()


def count_claims(worker: Worker) -> Callable[[], int]:
    """Counts the claims of a worker from now on."""
    calls, claim = [], worker.claimer._calls.claim

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(args)
        return claim(*args, **more)

    worker.claimer._calls.claim = counted  # type: ignore[method-assign]
    return lambda: len(calls)


@pytest.mark.parametrize("crowded", [True, False])
async def test_where_places_are_scarce_a_worker_gives_its_own_back_before_it_claims(
    hf: Holdfast, sql: Sql, dsn: str, monkeypatch: pytest.MonkeyPatch, crowded: bool
) -> None:
    let_go = asyncio.Event()

    @hf.task()
    async def waits(n: int) -> None:
        if n == 0:
            await let_go.wait()

    monkeypatch.setattr(Lanes, "crowded", crowded)
    monkeypatch.setattr("holdfast.worker.finish.LONGEST_WAIT", PATIENCE)
    await waits.aenqueue(0)
    async with working(hf, concurrency=1, prefetch=0) as worker:
        await until(lambda: worker.hand.running)
        second = await waits.aenqueue(1)
        claimed = f"select 1 from live where id = '{second.id}' and token is not null"
        over = f"select 1 from history where id = '{second.id}'"
        with psycopg.connect(dsn) as other:
            other.execute(f"lock table {hf.settings.schema}.history in share mode")  # nothing that ended can be stored
            let_go.set()
            await until(lambda: not worker.finisher.idle)
            if crowded:
                with pytest.raises(TimeoutError):
                    await until(lambda: sql(claimed) or sql(over), 0.5)
            else:
                await until(lambda: sql(claimed) or sql(over))
        await until(lambda: sql(over))


async def test_nobody_waits_for_ever_for_what_the_database_does_not_store(
    hf: Holdfast, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.finish.LONGEST_WAIT", 0.1)

    @hf.task()
    async def ends() -> None: ...

    async with working(hf) as worker:
        with psycopg.connect(dsn) as other:
            other.execute(f"lock table {hf.settings.schema}.history")
            await ends.aenqueue()
            await until(lambda: not worker.finisher.idle)
            async with asyncio.timeout(PATIENCE):
                await worker.finisher.caught_up()
            monkeypatch.setattr("holdfast.worker.finish.LONGEST_WAIT", 2 * PATIENCE)
            async with asyncio.timeout(PATIENCE):  # not for the same flush again
                await worker.finisher.caught_up()
            assert not worker.finisher.idle
        await until(lambda: worker.finisher.idle)
        await worker.finisher.caught_up()


async def test_a_worker_that_is_stopped_while_it_waits_for_its_ends_claims_nothing_more(
    hf: Holdfast, sql: Sql, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = asyncio.Event()

    @hf.task()
    async def waits() -> None:
        await let_go.wait()

    monkeypatch.setattr(Lanes, "crowded", True)
    monkeypatch.setattr("holdfast.worker.finish.LONGEST_WAIT", PATIENCE)
    first = await waits.aenqueue()
    async with working(hf, concurrency=1, prefetch=0) as worker:
        await until(lambda: worker.hand.running)
        second = await waits.aenqueue()
        with psycopg.connect(dsn) as other:
            other.execute(f"lock table {hf.settings.schema}.history in share mode")  # nothing that ended can be stored
            let_go.set()
            await until(lambda: not worker.finisher.idle)
            worker.stop()
    assert sql("select attempt from live where id = %s", [second.id]) == [(0,)]
    assert sql("select 1 from history where id = %s", [first.id])


async def test_a_run_until_idle_leaves_nothing_that_may_start(hf: Holdfast, sql: Sql, dsn: str) -> None:
    """Somebody takes the limits of some keys, until the others' jobs are done: their lanes are left to that one."""
    free, held, ran, taken = 60, 20, Counter[int](), 0
    other = psycopg.connect(dsn, options=f"-c search_path={hf.settings.schema}")
    theirs = [f"k:{n}" for n in range(free, free + held)]

    @hf.task(limits=[Limit("k:{n}", concurrency=1)])
    async def runs(n: int, jobs: int) -> None:
        nonlocal taken
        ran[n] += 1
        if not taken and all(ran[each] >= 2 for each in range(free + held)):
            query = "select 1 from limits where key = any (%s) for update skip locked"
            taken = len(other.execute(query, [theirs]).fetchall())
        if all(ran[each] == jobs for each in range(free)):
            other.rollback()

    with other:
        for jobs in (11, 12, 13, 14):
            ran.clear()
            taken = 0
            await runs.aenqueue_many([(n, jobs) for n in range(free + held) for _ in range(jobs)])
            await Worker(hf, concurrency=400).run(until_idle=True)
            assert taken and sql("select count(*) from live") == [(0,)]
            assert set(ran.values()) == {jobs}
