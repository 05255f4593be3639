"""Steps that run in parallel, and sync functions of steps: what becomes of them when the handler ends before them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import CONTEXT, Context, Delivery, Fail, Holdfast, Retry, Status, SyncContext
from tests.support import sql_core as core
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]


def running(hf: Holdfast, id_: str) -> bool:
    info = hf.jobs.get(id_)
    return info is not None and info.status is Status.RUNNING


@pytest.mark.parametrize("how", ["gather", "task", "parked"])
async def test_a_step_that_runs_when_its_handler_ends_is_canceled_before_the_outcome(hf: Holdfast, how: str) -> None:
    began, notes = asyncio.Event(), list[str]()

    async def charge() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("canceled")

    async def reserve() -> None:
        await began.wait()
        raise Fail("sold out")

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> None:
        charging = asyncio.ensure_future(ctx.step("charge", charge))
        await began.wait()
        if how == "gather":
            await asyncio.gather(charging, ctx.step("reserve", reserve))
        if how == "parked":
            await ctx.wait_for("never")

    hf.registry.on_failure.append(lambda _: notes.append("failed"))
    job = order.enqueue()
    async with working(hf):
        if how != "parked":
            await ended(hf, job.id)
        await until(lambda: notes)
    assert notes == ["canceled", "failed"] if how == "gather" else ["canceled"]
    assert [each.name for each in hf.jobs.steps(job.id)] == (["never"] if how == "parked" else [])


@pytest.mark.parametrize("runner", ["async", "thread"])
async def test_what_completes_when_its_handler_fails_is_stored_and_undone(hf: Holdfast, runner: Any) -> None:
    began, failing, over, undone = threading.Event(), threading.Event(), threading.Event(), list[int]()

    @hf.task()
    async def refund(charge: int) -> None:
        undone.append(charge)

    async def charge_on_the_loop() -> int:
        failing.set()
        return 7  # it is being stored while the handler fails

    def charge_in_a_thread() -> int:
        began.set()
        failing.wait()
        over.wait(0.5)  # the job must not end before this function does
        return 7

    async def reserve() -> None:
        await until(began.is_set if runner == "thread" else failing.is_set)
        raise Fail("sold out")

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> None:
        charge: Any = charge_in_a_thread if runner == "thread" else charge_on_the_loop
        try:
            await asyncio.gather(ctx.step("charge", charge, undo=refund), ctx.step("reserve", reserve))
        finally:
            failing.set()

    job = order.enqueue()
    async with working(hf):
        assert (await ended(hf, job.id)).status is Status.FAILED
        over.set()
        await until(lambda: undone)
    assert undone == [7]


async def test_a_step_that_is_being_stored_when_its_task_times_out_is_undone(hf: Holdfast, dsn: str) -> None:
    undone, charging, over = list[int](), asyncio.Event(), asyncio.Event()
    hf.registry.on_failure.append(lambda _: over.set())

    @hf.task()
    async def refund(charge: int) -> None:
        undone.append(charge)

    async def charge() -> int:
        await charging.wait()
        return 7

    @hf.task(retry=Retry.none(), timeout=0.3)
    async def order(*, ctx: Context = CONTEXT) -> None:
        await ctx.step("charge", charge, undo=refund)
        await ctx.wait_for("never")

    job = order.enqueue()
    async with working(hf):
        await until(lambda: running(hf, job.id))
        with core.session(dsn, autocommit=False) as other:
            other.execute("select from live where id = %s for update", [job.id])
            charging.set()
            with contextlib.suppress(TimeoutError):  # the attempt must not end before its step is stored
                await asyncio.wait_for(over.wait(), 0.6)
            other.commit()
        assert (await ended(hf, job.id)).status is Status.DEAD
        await until(lambda: undone)


@pytest.fixture
def paid(sql: Sql) -> Iterator[None]:
    sql("create table public.paid (key text)")
    yield
    sql("drop table public.paid")


@pytest.mark.parametrize("runner", ["async", "thread"])
async def test_parallel_steps_have_a_transaction_each(hf: Holdfast, sql: Sql, paid: None, runner: str) -> None:
    """All are open at once, also when the first of them commits, which marks the job as one with steps."""
    both, both_threads = asyncio.Barrier(3), threading.Barrier(3)

    async def pay(n: int, ctx: Context) -> int:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.paid values (%s)", [ctx.step_key])
            await ctx.aemit("ledger", n, key=f"{ctx.step_key} {n}")
            await both.wait()
            ctx.set_result(n)
        return n

    def pay_in_a_thread(n: int, ctx: SyncContext) -> int:
        with ctx.transaction() as conn:
            conn.execute("insert into public.paid values (%s)", [ctx.step_key])
            ctx.emit("ledger", n, key=f"{ctx.step_key} {n}")
            both_threads.wait()
            ctx.set_result(n)
        return n

    @hf.task(retry=Retry.none())
    async def order(*, ctx: Context = CONTEXT) -> list[int]:
        function: Any = pay if runner == "async" else pay_in_a_thread
        return await asyncio.gather(*(ctx.step(f"pay {n}", function, n, ctx) for n in range(3)))

    @hf.channel("ledger", queue="elsewhere")
    async def deliver(message: Delivery[int]) -> None: ...

    job = order.enqueue()
    async with working(hf, queues="default"):
        assert await job.aresult(40) == [0, 1, 2]
    assert sorted(sql("table public.paid")) == [(f"{job.id}:pay {n}",) for n in range(3)]
    assert sql("select count(*) from outbox where channel = 'ledger'") == [(3,)]


async def test_a_step_has_no_transaction_inside_the_jobs(hf: Holdfast) -> None:
    async def pay(ctx: Context) -> None:
        ctx.transaction()

    @hf.task(retry=Retry.none())
    async def order(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction():
            await ctx.step("pay", pay, ctx)

    job = order.enqueue()
    async with working(hf):
        info = await ended(hf, job.id)
    assert info.last_error is not None and "has a transaction open already" in info.last_error["message"]


async def test_a_handler_that_has_ended_starts_no_more_steps(hf: Holdfast) -> None:
    errors: list[str] = []

    async def nothing() -> None: ...

    async def goes_on(ctx: Context) -> None:
        try:
            await ctx.step("hang", asyncio.Event().wait)
        except asyncio.CancelledError:
            try:
                await ctx.step("more", nothing)
            except Exception as error:
                errors.append(str(error))

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> None:
        going = asyncio.ensure_future(goes_on(ctx))
        await asyncio.sleep(0)
        del going
        raise Fail("no")

    job = order.enqueue()
    async with working(hf):
        await ended(hf, job.id)
    assert errors == [f"the handler of job {job.id} has ended; it must await the steps that it starts"]


async def test_hung_functions_of_steps_take_no_thread_from_others(hf: Holdfast) -> None:
    """Neither from steps, nor from the loop's executor, which resolves names."""
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    release, threads = threading.Event(), list[str]()

    def quick() -> int:
        threads.append(threading.current_thread().name)
        return 1

    @hf.task(retry=Retry.none())
    async def hangs(*, ctx: Context = CONTEXT) -> str:
        with pytest.raises(TimeoutError, match=r"step 'hang' took longer than 0.01 s; its thread runs on"):
            await ctx.step("hang", release.wait, timeout=0.01)
        return "went on"

    @hf.task(retry=Retry.none())
    async def runs(*, ctx: Context = CONTEXT) -> int:
        return await ctx.step("quick", quick, timeout=20)

    jobs = [hangs.enqueue() for _ in range(3)]
    async with working(hf, concurrency=5) as worker:
        assert [await each.aresult(40) for each in jobs] == ["went on"] * 3
        await until(lambda: worker.buffer.lingering == 3)  # their slots wait for the threads
        assert await runs.enqueue().aresult(40) == 1
        assert await asyncio.to_thread(lambda: 2) == 2
        release.set()
        await until(lambda: worker.buffer.lingering == 0)
    assert threads[0].startswith("holdfast-job-")


async def test_a_stopping_worker_releases_a_job_whose_step_hangs_in_a_thread(hf: Holdfast) -> None:
    began, release = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        release.wait()

    @hf.task()
    async def hangs(*, ctx: Context = CONTEXT) -> None:
        await ctx.step("hang", hang)

    job = hangs.enqueue()
    async with working(hf, grace=0.1):
        await until(began.is_set)
    info = hf.jobs.get(job.id)
    release.set()
    assert info is not None and (info.status, info.attempts) == (Status.QUEUED, 0)


async def test_a_task_times_out_though_its_steps_thread_hangs(hf: Holdfast) -> None:
    release = threading.Event()

    @hf.task(retry=Retry.none(), timeout=0.2)
    async def hangs(*, ctx: Context = CONTEXT) -> None:
        await ctx.step("hang", release.wait)

    job = hangs.enqueue()
    async with working(hf):
        info = await ended(hf, job.id)
        release.set()
    assert info.last_error is not None and info.last_error["code"] == "TIMEOUT"
