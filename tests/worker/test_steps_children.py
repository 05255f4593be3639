"""Children of durable jobs: calls and batches whose reply was lost, and batches that are not enqueued."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import CONTEXT, Context, Holdfast, Retry, SyncContext
from holdfast.errors import DatabaseUnavailable
from holdfast.store.enqueue import job_fields
from tests.support.running import ended, working


async def test_a_call_whose_reply_was_lost_goes_on(hf: Holdfast) -> None:
    @hf.task()
    async def ship(order: str) -> str:
        return f"{order} is on its way"

    async def nothing() -> None: ...

    @hf.task(retry=Retry.none())
    async def order(*, ctx: Context = CONTEXT) -> str:
        await ctx.step("read the steps", nothing)
        started = len(await hf.jobs.asteps(ctx.job_id)) > 1
        if not started:  # what the pool has sent before it repeats the call
            child = job_fields(ship.new_job(("o-1",), {}))
            call = hf.database.calls.steps.start_child(ctx.job_id, ctx.token, "ship", child)
            assert await hf.database.async_pool.run(call) == "started"
        return await ctx.call("ship", ship, "o-1")

    job = order.enqueue()
    async with working(hf):
        assert await job.aresult(40) == "o-1 is on its way"
    assert len(hf.jobs.relatives(job.id).children) == 1


@pytest.mark.parametrize("side", ["async", "sync"])
async def test_a_batch_whose_commit_was_not_confirmed_goes_on(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    sync_pool, async_pool = hf.database.sync_pool, hf.database.async_pool
    together, atogether = sync_pool.run_together, async_pool.run_together

    def run_together(parts: Sequence[Any]) -> None:
        together(parts)
        raise DatabaseUnavailable("server closed the connection unexpectedly")

    async def arun_together(parts: Sequence[Any]) -> None:
        await atogether(parts)
        raise DatabaseUnavailable("server closed the connection unexpectedly")

    monkeypatch.setattr(sync_pool, "run_together", run_together)
    monkeypatch.setattr(async_pool, "run_together", arun_together)

    @hf.task()
    async def label(n: int) -> None: ...

    @hf.task(name="async", retry=Retry.none())
    async def order(*, ctx: Context = CONTEXT) -> int:
        async with ctx.batch("labels") as labels:
            label.using(batch=labels).enqueue_many([1, 2])
        return (await ctx.gather(labels)).succeeded

    @hf.task(name="sync", retry=Retry.none())
    def sync_order(*, ctx: SyncContext) -> int:
        with ctx.batch("labels") as labels:
            label.using(batch=labels).enqueue_many([1, 2])
        return ctx.gather(labels).succeeded

    job: Any = hf.registry.tasks[side].enqueue()
    async with working(hf):
        assert await job.aresult(40) == 2


async def test_a_batch_that_was_not_committed_fails_its_attempt(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_together(parts: Sequence[Any]) -> None:
        raise DatabaseUnavailable("server closed the connection unexpectedly")

    monkeypatch.setattr(hf.database.async_pool, "run_together", run_together)

    @hf.task(retry=Retry.none())
    async def order(*, ctx: Context = CONTEXT) -> None:
        async with ctx.batch("labels"):
            pass

    job = order.enqueue()
    async with working(hf):
        info = await ended(hf, job.id)
    assert info.last_error is not None and info.last_error["type"] == "DatabaseUnavailable"


@pytest.mark.parametrize("how", ["inside", "failed", "never entered"])
async def test_a_batch_is_gathered_after_it_was_enqueued(hf: Holdfast, how: str) -> None:
    @hf.task()
    async def label(n: int) -> None: ...

    @hf.task(retry=Retry.none())
    async def order(*, ctx: Context = CONTEXT) -> None:
        labels = ctx.batch("labels")
        if how == "inside":
            async with labels:
                label.using(batch=labels).enqueue(1)
                await ctx.gather(labels)
        if how == "failed":
            with contextlib.suppress(ValueError):
                async with labels:
                    raise ValueError
        await ctx.gather(labels)

    job = order.enqueue()
    async with working(hf):
        info = await ended(hf, job.id)
    assert info.last_error is not None
    assert info.last_error["message"] == (
        "batch 'labels' is not enqueued: it is when its `with ctx.batch(...)` block ends; gather it after that"
    )
