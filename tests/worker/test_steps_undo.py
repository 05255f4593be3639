"""Undo of durable steps: which jobs undo them, and with which options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import CONTEXT, Context, Dedupe, Fail, Holdfast, Limit, Retry, Status, UsageError
from tests.support.running import ended, parked, until, working

Sql = Callable[..., list[tuple[Any, ...]]]


@dataclass
class Charge:
    order: str
    cents: int


async def test_a_job_that_fails_is_undone_in_reverse(hf: Holdfast) -> None:
    undone: list[Any] = []

    @hf.task()
    async def refund(charge: Charge) -> None:
        undone.append(charge)

    @hf.task()
    async def restock() -> None:
        undone.append("restock")

    async def pay(cents: int) -> Charge:
        return Charge("o", cents)

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> None:
        await ctx.step("pay", pay, 1, undo=refund)
        await ctx.step("reserve", pay, 2, undo=restock)
        await ctx.step("pay more", pay, 3, undo=refund)
        await ctx.wait_for("never")

    job = order.enqueue()
    async with working(hf):
        await parked(hf, job)
        await hf.jobs.acancel(job.id)
        await until(lambda: len(undone) == 3)
    assert undone == [Charge("o", 3), "restock", Charge("o", 1)]


async def test_an_undo_that_is_no_task_is_refused_before_the_step(hf: Holdfast) -> None:
    async def plain() -> None: ...

    @hf.task(retry=Retry.none())
    async def order(*, ctx: Context = CONTEXT) -> None:
        undo: Any = plain
        with pytest.raises(UsageError, match=r"undo is a task.*decorate .* with @hf.task"):
            await ctx.step("pay", plain, undo=undo)

    job = order.enqueue()
    async with working(hf):
        assert (await ended(hf, job.id)).status is Status.SUCCEEDED


async def test_an_undo_with_a_dedupe_key_is_one_of_its_tenant(hf: Holdfast) -> None:
    undone: list[str | None] = []

    @hf.task(dedupe=Dedupe(scope="running"))
    async def refund(charge: int, *, ctx: Context = CONTEXT) -> None:
        undone.append(ctx.tenant)

    async def pay() -> int:
        return 7

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> None:
        await ctx.step("pay", pay, undo=refund)
        await ctx.step("pay more", pay, undo=refund.using(tenant="other"))
        raise Fail("sold out")

    order.using(tenant="acme").enqueue()
    async with working(hf):
        await until(lambda: len(undone) == 2)
    assert undone == ["other", "acme"]


async def test_undo_jobs_have_the_limits_of_their_task(hf: Holdfast, sql: Sql) -> None:
    @hf.task(queue="undo", limits=[Limit("charge:{charge}", concurrency=1), Limit("tenant:{tenant}", rate=9)])
    async def refund(charge: str) -> None: ...

    @hf.task(queue="undo", limits=[Limit("number:{n}", concurrency=1)])
    async def unfit(n: int) -> None: ...

    async def pay() -> str:
        return "c-1"

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> None:
        await ctx.step("pay", pay, undo=refund)
        await ctx.step("pay more", pay, undo=unfit)
        raise Fail("sold out")

    job = order.using(tenant="acme").enqueue()
    async with working(hf, queues="default"):
        await ended(hf, job.id)
        await until(lambda: all(each.undo_job for each in hf.jobs.steps(job.id)))
    keys = [
        sql("select keys from live where id = %(id)s union all select keys from later where id = %(id)s", {"id": id_})
        for id_ in (each.undo_job for each in hf.jobs.steps(job.id))
    ]
    assert keys == [[(["charge:c-1", "tenant:acme"],)], [(None,)]], "an undo whose arguments do not fit only fails"


@pytest.mark.parametrize(
    ("option", "value"),
    [("delay", 5), ("run_at", datetime.now(UTC)), ("deadline", 60), ("after", []), ("batch", "b"), ("id", "x")],
)
async def test_an_undo_with_an_option_of_one_job_is_refused_before_the_step(
    hf: Holdfast, option: str, value: Any
) -> None:
    calls: list[int] = []

    @hf.task()
    async def refund() -> None: ...

    async def pay() -> None:
        calls.append(1)

    @hf.task(retry=Retry.none())
    async def order(*, ctx: Context = CONTEXT) -> None:
        with pytest.raises(UsageError, match=f"undo cannot have {option}="):
            await ctx.step("pay", pay, undo=refund.using(**{option: value}))

    job = order.enqueue()
    async with working(hf):
        assert (await ended(hf, job.id)).status is Status.SUCCEEDED
    assert calls == []
