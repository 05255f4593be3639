"""hf.tick(): a bounded pass that is fair to tenants, safe beside other passes, and returns what it did."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import CONTEXT, Context, DatabaseUnavailable, Fail, Holdfast, Limit, Retry, Status, UsageError
from tests.support import flow

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def ran(hf: Holdfast) -> list[str | None]:
    """The tenants of the jobs that were run, in order; `hf` has a task `note`."""
    calls: list[str | None] = []

    @hf.task(name="note")
    async def note(*, ctx: Context = CONTEXT) -> None:
        calls.append(ctx.tenant)

    return calls


def test_a_tenant_with_a_thousand_jobs_gets_25_of_a_tick(hf: Holdfast, sql: Sql, ran: list[str | None]) -> None:
    """FAIR1."""
    flow.put(sql, task="note", tenant="flood", number=1000)
    flow.put(sql, task="note", tenant="small", number=3)
    done = hf.tick()
    assert Counter(ran) == done.tenants == {"flood": 25, "small": 3}
    assert (done.claimed, done.processed, done.succeeded, done.failed, done.depth) == (28, 28, 28, 0, 975)
    assert hf.tick(per_tenant=4).tenants == {"flood": 4}


def test_a_tenant_that_had_its_part_is_counted_as_throttled_and_loses_no_attempts(
    hf: Holdfast, sql: Sql, ran: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    flow.put(sql, task="note", tenant="flood", number=60)
    flow.put(sql, task="note", tenant="even", number=25)
    with caplog.at_level("INFO", "holdfast"):
        assert hf.tick().throttled == 1
    (fields,) = (each.fields for each in caplog.records if getattr(each, "event", "") == "tick")
    assert fields["skipped_throttle"] == 1
    assert not [each for each in caplog.records if getattr(each, "event", "") == "window"]
    assert sql("select distinct key, tenant from throttled") == [("tenant:flood", "flood")]
    assert sql("select distinct attempt from live") == [(0,)]
    assert hf.tick(max_jobs=25).throttled == 0, "it was the tick that was full"


def test_forty_tenants_all_advance_in_every_tick_of_200(hf: Holdfast, sql: Sql, ran: list[str | None]) -> None:
    """FAIR2, with one of them flooding and work at two priorities."""
    for n in range(40):
        flow.put(sql, task="note", tenant=f"t{n}", number=20 if n else 1000)
        flow.put(sql, task="note", tenant=f"t{n}", priority=1, number=1)
    for _ in range(4):
        done = hf.tick(max_jobs=200)
        assert done.claimed == 200
        assert len(done.tenants) == 40 and max(done.tenants.values()) <= 25, done.tenants


@pytest.mark.parametrize(("tenants", "room"), [(39, 175), (41, 200), (7, 9), (150, 200)])
def test_all_tenants_advance_where_the_room_cannot_be_divided_by_them(
    hf: Holdfast, sql: Sql, ran: list[str | None], tenants: int, room: int
) -> None:
    """FAIR2: the document ranks jobs within their tenant, so no second job comes before another tenant's first."""
    for n in range(tenants):
        flow.put(sql, task="note", tenant=f"t{n}", number=20)
    done = hf.tick(max_jobs=room)
    assert (done.claimed, len(done.tenants)) == (room, tenants)
    assert max(done.tenants.values()) - min(done.tenants.values()) <= 1, done.tenants


def test_a_tenants_part_is_counted_over_priorities_queues_and_limits(
    hf: Holdfast, sql: Sql, ran: list[str | None]
) -> None:
    for n in range(60):
        flow.put(sql, task="note", tenant="a", priority=n % 4, queue=["default", "mail"][n % 2], keys=[f"k{n % 7}"])
    assert hf.tick(queues="mail,default").tenants == {"a": 25}


def test_jobs_without_a_tenant_have_no_cap(hf: Holdfast, sql: Sql, ran: list[str | None]) -> None:
    flow.put(sql, task="note", number=190)
    flow.put(sql, task="note", tenant="a", number=40)
    done = hf.tick()
    assert done.tenants == {"": 175, "a": 25}


def test_more_than_there_are_slots_is_run_to_the_end(hf: Holdfast, sql: Sql) -> None:
    """What was claimed belongs to the pass, however long it waits for a slot."""
    most, now = 0, 0

    @hf.task(name="slow")
    async def slow() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.25)
        now -= 1

    flow.put(sql, task="slow", number=24)
    done = hf.tick(concurrency=3, poll=0.1)
    assert (done.claimed, done.succeeded, most) == (24, 24, 3)
    assert done.seconds > 1.9
    assert {row[0] for row in sql("select attempt from history")} == {1}


def test_failures_throttled_lanes_and_the_rest_are_counted_and_stored(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="hopeless")
    async def hopeless() -> None:
        raise Fail("never works")

    @hf.task(name="again", retry=Retry.fixed(60))
    async def again() -> None:
        raise ConnectionError("not now")

    flow.pause(sql, "closed")
    flow.put(sql, task="hopeless", tenant="a", number=2)
    flow.put(sql, task="again", number=3, max_attempts=5)
    sql("update live set retry = null")
    flow.put(sql, task="again", tenant="b", keys=["closed"], number=9)
    done = hf.tick()
    assert (done.claimed, done.processed, done.succeeded, done.failed, done.throttled) == (5, 5, 0, 5, 1)
    assert done.depth == 9
    columns = "id::text, worker, claimed, processed, succeeded, failed, throttled, contention, depth, tenants"
    assert sql(f"select {columns} from ticks") == [(done.id, done.worker, 5, 5, 0, 5, 1, 0, 9, {"": 3, "a": 2})]
    ((took,),) = sql("select extract(epoch from ended_at - started_at)::float8 from ticks")
    assert took == pytest.approx(done.seconds, 0.01)


def test_work_under_a_limit_is_run_as_its_places_come_free(hf: Holdfast) -> None:
    together: list[int] = []
    now: list[int] = []

    @hf.task(limits=[Limit("site:{site}", concurrency=2)])
    async def fetch(site: str) -> None:
        now.append(1)
        together.append(len(now))
        await asyncio.sleep(0.01)
        now.pop()

    fetch.enqueue_many([("a",)] * 10)
    done = hf.tick()
    assert max(together) == 2
    assert 2 <= done.claimed <= 10 and done.claimed == done.succeeded == 10 - done.depth


def test_a_tick_does_the_upkeep_that_is_due(hf: Holdfast, sql: Sql, ran: list[str | None]) -> None:
    """Where there are ticks only, a tick must reclaim lost jobs and promote what has come due."""
    flow.put(sql, task="note", number=2)
    assert len(flow.claim(sql, "gone", 1)) == 1
    sql("update claims set expires_at = now() - interval '1 minute'")
    sql(
        "insert into later (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, payload) "
        "select uuid7(), 'default', 2, 0, now() - interval '1 hour', now(), 0, 5, 'note', '{}'"
    )
    assert hf.tick().succeeded == 3


def test_an_empty_queue_ends_it_at_once(hf: Holdfast, sql: Sql) -> None:
    done = hf.tick()
    assert (done.claimed, done.depth, done.tenants) == (0, 0, {})
    assert done.seconds < 3
    assert sql("select count(*) from workers") == [(0,)]


async def test_it_is_awaited_in_an_event_loop(hf: Holdfast, sql: Sql, ran: list[str | None]) -> None:
    flow.put(sql, task="note")
    assert (await hf.atick()).succeeded == 1
    with pytest.raises(UsageError, match="await hf"):
        hf.tick()
    with pytest.raises(UsageError, match="must be at least 1"):
        await hf.atick(max_jobs=0)


def test_a_database_that_is_away_is_an_error() -> None:
    with Holdfast("postgresql://nobody@127.0.0.1:1/none", connect_timeout=1) as hf, pytest.raises(DatabaseUnavailable):
        hf.tick()


def test_handlers_that_enqueue_leave_no_connection_behind(hf: Holdfast) -> None:
    @hf.task(retry=Retry.none())
    async def parent(n: int) -> None:
        if n:
            await parent.aenqueue(n - 1)

    parent.enqueue(2)
    assert [hf.tick().succeeded for _ in range(4)][-1] == 0
    assert {job.status for job in hf.jobs.list()} == {Status.SUCCEEDED}


def test_many_ticks_at_once_run_nothing_twice_and_keep_their_caps(dsn: str, sql: Sql) -> None:
    """Eight at a time, each with an application of its own, in threads."""
    counts: Counter[str] = Counter()
    guard = threading.Lock()
    for n in range(12):
        flow.put(sql, task="count", tenant=f"t{n}", keys=["narrow"] if n == 5 else (), number=60 if n else 300)
    flow.limit(sql, "narrow", concurrency=1)

    def one(_: int) -> Any:
        with Holdfast(dsn, concurrency=10, poll=0.1) as hf:

            @hf.task(name="count")
            async def count(*, ctx: Context = CONTEXT) -> None:
                with guard:
                    counts[ctx.job_id] += 1

            return hf.tick(max_jobs=50, per_tenant=6)

    with ThreadPoolExecutor(8) as pool:
        ticks = list(pool.map(one, range(16)))
    assert all(tick.claimed <= 50 and max(tick.tenants.values()) <= 6 for tick in ticks)
    assert set(counts.values()) == {1}
    assert sum(tick.succeeded for tick in ticks) == len(counts) == sql("select count(*) from history")[0][0] > 400
    assert flow.drift(sql) == [] and flow.held(sql) == {}
