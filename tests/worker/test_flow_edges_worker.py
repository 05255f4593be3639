"""Workers at limits: they look when there is room, and are quiet while there is none."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import flow
import psycopg
import pytest
from running import ended, until, working

from holdfast import Holdfast, Limit, Status
from holdfast.worker import Worker
from holdfast.worker.claim import Claimer
from holdfast.worker.lanes import Closed

POLL = 60.0  # a worker that is not told would not look again within the test
SPAN = 5.0  # seconds for which a worker is watched


def calls_of(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[float]:
    """When a method was called, from now on."""
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
    return calls_of(monkeypatch, Claimer, "_claim")


@pytest.mark.parametrize("jobs", [1, 50])
async def test_a_limit_that_a_transaction_holds_for_long_is_not_hammered(
    hf: Holdfast, dsn: str, sql: Any, claims: list[float], jobs: int
) -> None:
    @hf.task(name="t", limits=[Limit("k", concurrency=5)])
    async def t() -> None: ...

    flow.limit(sql, "k", concurrency=5)
    async with working(hf):
        await until(lambda: sql("select 1 from sleepers"))
        with psycopg.connect(dsn, options="-c search_path=holdfast") as other:
            other.execute("select 1 from limits for update")
            ids = (await t.aenqueue_many([{}] * jobs)).ids
            await until(lambda: len(claims) > 10)
            before = len(claims)
            await asyncio.sleep(2)  # the one thing that only time can show
            assert len(claims) - before <= 20
            other.rollback()
            assert (await ended(hf, ids[-1])).status is Status.SUCCEEDED
    await hf.aclose()


async def test_a_job_runs_at_once_when_a_job_of_another_tenant_makes_room(
    hf: Holdfast, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that ends was on another worker, which does not serve the queue of the other."""
    monkeypatch.setattr("holdfast.worker.lanes.FIRST_LOOK", POLL)
    gate = asyncio.Event()

    @hf.task(name="shared", limits=[Limit("k", concurrency=1)])
    async def shared(wait: bool) -> None:
        if wait:
            await gate.wait()

    first = await shared.using(tenant="a").aenqueue(True)
    async with working(hf, poll=POLL, concurrency=1):
        await until(lambda: sql("select 1 from claims"))
        async with working(hf, poll=POLL, queues="other") as idle:
            second = await shared.using(tenant="b", queue="other").aenqueue(False)
            await until(lambda: sql("select 1 from sleepers where queue = 'other'"))
            await until(lambda: "key" in hf.why(second.id).reasons[0].facts)
            await until(lambda: idle.claimer.lanes.closed)
            gate.set()
            assert (await ended(hf, second.id)).status is Status.SUCCEEDED
            await ended(hf, first.id)
    await hf.aclose()


async def test_a_limit_of_a_queue_is_used_to_the_full_without_notifications(hf: Holdfast, claims: list[float]) -> None:
    @hf.task(name="t")
    async def t() -> None: ...

    await hf.aset_limit("queue:default", concurrency=1)
    began = time.monotonic()
    ids = (await t.aenqueue_many([{}] * 20)).ids
    async with working(hf, poll=POLL, notify=False):
        for id_ in ids:
            await ended(hf, id_)
        assert time.monotonic() - began < 8
        await asyncio.sleep(1.5)
        before = len(claims)
        await asyncio.sleep(1)  # the one thing that only time can show
        assert len(claims) - before <= 5
    await hf.aclose()


async def test_a_worker_at_thousands_of_full_keys_is_quiet(
    hf: Holdfast, sql: Any, claims: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from its first claim on, not after a pause: a slow machine is later with its looks, and must not be
    blamed for those that then fall into the time it is watched. The bounds leave room above what was measured."""
    sleeps = calls_of(monkeypatch, Claimer, "_sleep")
    answers = calls_of(monkeypatch, Closed, "add")  # a lane was visited, and must wait

    @hf.task(name="t")
    async def t() -> None: ...

    sql("insert into limits (key, concurrency, running) select 'k' || i, 1, 1 from generate_series(1, 3000) i")
    sql("insert into live (id, task, keys, lane) "
        "select gen_random_uuid(), 't', array['k' || i], lane_of(null, array['k' || i]) "
        "from generate_series(1, 3000) i")  # fmt: skip
    worker = Worker(hf)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(answers) >= 3000)
    await asyncio.sleep(claims[0] + SPAN - time.monotonic())  # the one thing that only time can show
    worker.stop()
    await running
    awake, visits, made = (sum(at < claims[0] + SPAN for at in each) for each in (sleeps, answers, claims))
    assert awake <= 25  # twice a second however many keys there are, and once more where a lap has to be affordable
    assert visits <= 5 * 3000  # a key that stays full is left alone for longer each time; laps meet some once more
    assert made <= 150  # many lanes in each
    await hf.aclose()
