"""What operators change acts at once on workers that run and on what already waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast, Limit, Status, Task
from holdfast.worker import Worker
from tests.support.running import ended, until, working

JOBS = 6
POLL = 60.0  # a worker without a notification would not look again within the test


@pytest.fixture
async def worker(hf: Holdfast) -> AsyncIterator[Worker]:
    async with working(hf, poll=POLL) as worker:
        yield worker
    await hf.aclose()


@pytest.fixture
def visit(hf: Holdfast) -> Task[[str], None]:
    @hf.task(name="app.visit", limits=[Limit("domain:{domain}", concurrency=2)])
    async def visit(domain: str) -> None: ...

    return visit


async def enqueue(visit: Task[[str], None]) -> list[str]:
    return (await visit.using(tenant="acme").aenqueue_many(["a.example"] * JOBS)).ids


async def statuses(hf: Holdfast, ids: list[str]) -> set[Status]:
    return {info.status for info in await hf.database.async_pool.run(hf.database.calls.jobs.get_many(ids))}


@pytest.mark.parametrize("key", ["queue:default", "task:app.visit", "tenant:acme", "domain:a.example"])
async def test_paused_jobs_wait_until_they_are_resumed(
    hf: Holdfast, visit: Task[[str], None], worker: Worker, key: str
) -> None:
    await hf.limits.apause(key, reason="on fire", by="ann")
    ids = await enqueue(visit)
    other = await visit.using(tenant="bree", queue="default").aenqueue("b.example")
    if key in ("tenant:acme", "domain:a.example"):
        assert (await ended(hf, other.id)).status is Status.SUCCEEDED, "what is not paused goes on beside it"
    report = await hf.jobs.awhy(ids[-1])
    assert (report.reasons[0].kind, report.reasons[0].facts["key"]) == ("paused", key)
    assert await statuses(hf, ids) == {Status.QUEUED}
    assert await hf.limits.aresume(key) is True
    infos = await asyncio.gather(*(ended(hf, id_) for id_ in ids))
    assert [(info.status, info.attempts) for info in infos] == [(Status.SUCCEEDED, 1)] * JOBS


async def test_a_pause_with_an_end_goes_on_by_itself(hf: Holdfast, visit: Task[[str], None], worker: Worker) -> None:
    await hf.limits.apause("tenant:acme", for_=1.0)
    (id_, *_) = await enqueue(visit)
    assert await statuses(hf, [id_]) == {Status.QUEUED}
    assert (await ended(hf, id_)).status is Status.SUCCEEDED


async def test_a_limit_that_is_set_acts_on_what_waits(hf: Holdfast, visit: Task[[str], None], worker: Worker) -> None:
    await hf.limits.aset("domain:a.example", concurrency=0)
    ids = await enqueue(visit)
    report = await hf.jobs.awhy(ids[0])
    assert report.sentence.startswith("domain:a.example has a concurrency of 0, set ")
    assert "nothing starts under it" in report.sentence
    await hf.limits.aclear("domain:a.example")
    await asyncio.gather(*(ended(hf, id_) for id_ in ids))
    assert hf.limits.list("domain:")[0].concurrency == 2


async def test_a_breaker_that_is_reset_lets_what_waits_start(
    hf: Holdfast, visit: Task[[str], None], worker: Worker
) -> None:
    await hf.limits.aset("domain:a.example", breaker_after=1, breaker_pause=3600)
    opened = (
        "INSERT INTO holdfast.limits (key, open_until, failure_streak) "
        "VALUES ('domain:a.example', now() + interval '1 h', 1) "
        "ON CONFLICT (key) DO UPDATE SET open_until = excluded.open_until, failure_streak = 1"
    )
    async with hf.database.async_pool.lent() as conn:
        await conn.execute(opened)
    (id_, *_) = await enqueue(visit)
    assert (await hf.jobs.awhy(id_)).reasons[0].kind == "breaker"
    assert await hf.limits.areset_breaker("domain:a.example") is True
    assert (await ended(hf, id_)).status is Status.SUCCEEDED


async def test_a_job_at_a_full_key_names_the_holders(hf: Holdfast) -> None:
    go = asyncio.Event()

    @hf.task(limits=[Limit("domain:{domain}", concurrency=2)])
    async def hold(domain: str) -> None:
        await go.wait()

    async with working(hf) as worker:
        ids = (await hold.aenqueue_many(["a.example"] * 3)).ids

        async def two_run() -> bool:
            found = await hf.limits.alist("domain:a.example")
            return bool(found) and found[0].running == 2

        await until(two_run)
        infos = await hf.database.async_pool.run(hf.database.calls.jobs.get_many(ids))
        waits = [info.id for info in infos if info.status is Status.QUEUED]
        report = await hf.jobs.awhy(waits[0])
        assert report.reasons[0].kind == "concurrency"
        assert sorted(holder["id"] for holder in report.reasons[0].facts["holders"]) == sorted(set(ids) - set(waits))
        assert {holder["worker"] for holder in report.reasons[0].facts["holders"]} == {worker.id}
        go.set()
        await asyncio.gather(*(ended(hf, id_) for id_ in ids))
    assert hf.database.sync_pool.run(hf.limits.calls.reconcile(repair=False)) == []
    await hf.aclose()
