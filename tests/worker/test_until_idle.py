"""A worker that stops by itself when nothing is due, nor under way that could make more of it."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import CONTEXT, Context, Holdfast, Retry, Status
from holdfast.store.wire.session import Session
from holdfast.worker import Worker


async def run(hf: Holdfast, **settings: object) -> Worker:
    worker = Worker(hf, **settings)
    async with asyncio.timeout(40):
        await worker.run(until_idle=True)
    return worker


async def test_everything_due_is_run_children_included_and_the_worker_ends(hf: Holdfast) -> None:
    @hf.task()
    async def spread(n: int) -> None:
        if n:
            await spread.aenqueue_many([n - 1, n - 1])

    await spread.aenqueue_many([3] * 40)
    await spread.using(delay=60).aenqueue(0)
    worker = await run(hf, concurrency=20)
    assert worker.finisher.succeeded == 40 * 15
    assert [job.status for job in hf.jobs.list(status="queued")] == [Status.QUEUED]


async def test_an_empty_queue_ends_it_at_once(hf: Holdfast) -> None:
    assert (await run(hf)).claimer.intake.counts.claimed == 0


async def test_it_waits_for_a_running_job_that_may_still_enqueue(hf: Holdfast) -> None:
    @hf.task()
    async def late() -> None:
        await idle.wait()
        await child.aenqueue()

    @hf.task()
    async def child() -> None: ...

    async def claim_while_it_ends(call: Any) -> Any:
        """Claim and find nothing, while the job enqueues its child and ends."""
        rows = await Session.run(worker.claimer.intake.session, call)
        idle.set()
        while worker.buffer.running and not rows:  # noqa: ASYNC110 - no signal for it
            await asyncio.sleep(0.001)
        return rows

    idle = asyncio.Event()
    await late.aenqueue()
    worker = Worker(hf, concurrency=5, poll=0.05)
    running = asyncio.create_task(worker.run(until_idle=True))
    async with asyncio.timeout(40):
        while not worker.buffer.running:  # noqa: ASYNC110 - no signal for it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # several looks at a queue that is empty while the job runs
        assert not running.done() and worker.claimer.intake.counts.claimed == 1
        worker.claimer.intake.session.run = claim_while_it_ends  # type: ignore[method-assign]
        await running
    assert worker.finisher.succeeded == 2


async def test_a_retry_that_is_due_at_once_belongs_to_the_run(hf: Holdfast) -> None:
    @hf.task(retry=Retry.fixed(0, max_attempts=3))
    async def third(*, ctx: Context = CONTEXT) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    job = await third.aenqueue()
    await run(hf, concurrency=1, prefetch=0.0)
    assert await job.aresult(0.1) == 3


async def test_it_can_be_stopped_before(hf: Holdfast) -> None:
    @hf.task()
    async def again() -> None:
        await again.aenqueue()
        if worker.finisher.succeeded > 20:
            worker.stop()

    await again.aenqueue()
    worker = Worker(hf, concurrency=1)
    async with asyncio.timeout(40):
        await worker.run(until_idle=True)
    assert len(hf.jobs.list(status="queued")) == 1
