"""Durable steps in handlers: stored results, sleeps, signals, children, undo."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from holdfast import CONTEXT, Context, Fail, Holdfast, Retry, Status, SyncContext, UsageError
from tests.support.running import ended, parked, until, working

Sql = Callable[..., list[tuple[Any, ...]]]
AGAIN = Retry.fixed(0, max_attempts=4)


@dataclass
class Charge:
    order: str
    cents: int


@dataclass
class Approval:
    by: str


async def test_a_step_runs_once_however_often_its_job_does(hf: Holdfast) -> None:
    calls: list[str] = []

    async def pay(order: str) -> Charge:
        calls.append(order)
        return Charge(order, 100)

    @hf.task(retry=AGAIN)
    async def order(order: str, *, ctx: Context = CONTEXT) -> str:
        charge = await ctx.step("charge", pay, order)
        assert charge == Charge("o-1", 100)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return f"{charge.order} {ctx.attempt}"

    job = order.enqueue("o-1")
    async with working(hf):
        assert await job.aresult(40) == "o-1 3"
    assert calls == ["o-1"]
    (stored,) = hf.jobs.steps(job.id)
    assert (stored.name, stored.kind, stored.result) == ("charge", "step", {"order": "o-1", "cents": 100})


async def test_a_result_is_the_same_in_every_run(hf: Holdfast) -> None:
    runs: list[str] = []

    async def prices() -> dict[str, Any]:
        return {"zebra": 1, "ab": 1e22, "c": -0.0, "d": "\u2028"}

    async def price(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction():
            pass
        return await prices()

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> None:
        runs.append(repr([await ctx.step("prices", prices), await ctx.step("price", price, ctx)]))
        await ctx.sleep("pause")

    job = order.enqueue()
    async with working(hf):
        await ended(hf, job.id)
    assert runs == [repr([await prices()] * 2)] * 2


async def test_steps_run_in_parallel(hf: Holdfast) -> None:
    both = asyncio.Barrier(2)

    async def half(n: int) -> int:
        await both.wait()
        return n

    @hf.task()
    async def whole(*, ctx: Context = CONTEXT) -> list[int]:
        return await asyncio.gather(*(ctx.step(f"half {n}", half, n) for n in range(2)))

    job = whole.enqueue()
    async with working(hf):
        assert await job.aresult(40) == [0, 1]


@pytest.mark.parametrize("how", ["twice", "another kind", "no name"])
async def test_a_wrong_name_is_an_error_that_says_so(hf: Holdfast, how: str) -> None:
    async def nothing() -> None: ...

    @hf.task(retry=Retry.none())
    async def handler(*, ctx: Context = CONTEXT) -> None:
        await ctx.step("" if how == "no name" else "a", nothing)
        if how == "twice":
            await ctx.step("a", nothing)
        if ctx.attempt == 1:
            await ctx.sleep("nap")

    job = handler.enqueue()
    words = {"twice": "was used twice in one run", "no name": "the name of a step"}
    async with working(hf):
        if how == "another kind":
            assert (await ended(hf, job.id)).status is Status.SUCCEEDED
            return
        info = await ended(hf, job.id)
    assert info.last_error is not None
    assert (info.last_error["type"], words[how] in info.last_error["message"]) == ("UsageError", True)


async def test_a_step_commits_with_the_rows_of_its_function(hf: Holdfast, sql: Sql) -> None:
    sql("create table if not exists public.paid (key text)")
    sql("truncate public.paid")

    async def pay(ctx: Context) -> int:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.paid values (%s)", [ctx.step_key])
            ctx.set_result(7)
        if ctx.attempt == 1:
            raise ValueError("after the commit")
        return 7

    @hf.task(retry=AGAIN)
    async def order(*, ctx: Context = CONTEXT) -> int:
        return await ctx.step("pay", pay, ctx)

    job = order.enqueue()
    async with working(hf):
        assert await job.aresult(40) == 7
    assert sql("table public.paid") == [(f"{job.id}:pay",)]
    sql("drop table public.paid")


async def test_a_step_that_another_run_stored_first_rolls_its_rows_back(hf: Holdfast, sql: Sql) -> None:
    sql("create table if not exists public.paid (key text)")
    sql("truncate public.paid")

    async def pay(ctx: Context) -> int:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.paid values ('second')")
            columns = "job, name, kind, result, started_at, finished_at"
            stored = f"insert into steps ({columns}) values (%s, 'pay', 'step', '1', now(), now())"
            sql(stored, [ctx.job_id])
            ctx.set_result(2)
        return 2

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> int:
        return await ctx.step("pay", pay, ctx)

    job = order.enqueue()
    async with working(hf):
        assert await job.aresult(40) == 1
    assert sql("table public.paid") == []
    sql("drop table public.paid")


async def test_a_step_has_its_own_retries_and_timeout(hf: Holdfast) -> None:
    tries: list[str] = []

    async def hang() -> None:
        tries.append("hang")
        await asyncio.sleep(60)

    async def flaky() -> int:
        tries.append("flaky")
        if tries.count("flaky") < 3:
            raise ConnectionError("again")
        return len(tries)

    @hf.task(retry=Retry.none())
    async def handler(*, ctx: Context = CONTEXT) -> int:
        with pytest.raises(TimeoutError):
            await ctx.step("hang", hang, timeout=0.01)
        return await ctx.step("flaky", flaky, retry=Retry.fixed(0, max_attempts=3))

    job = handler.enqueue()
    async with working(hf):
        assert await job.aresult(40) == 4


async def test_a_result_that_is_too_large_is_a_clear_error(hf: Holdfast) -> None:
    async def large() -> str:
        return "x" * 2000

    @hf.task(retry=Retry.none())
    async def handler(*, ctx: Context = CONTEXT) -> None:
        await ctx.step("large", large)

    job = handler.enqueue()
    async with working(hf, max_result=1000):
        info = await ended(hf, job.id)
    assert info.last_error is not None and "the result of step 'large'" in info.last_error["message"]


async def test_a_sleep_frees_the_slot_and_spends_no_attempt(hf: Holdfast) -> None:
    @hf.task(retry=Retry.none())
    async def handler(*, ctx: Context = CONTEXT) -> int:
        await ctx.sleep("nap", seconds=0.1)
        await ctx.sleep("again", seconds=0.1)
        return ctx.attempt

    jobs = handler.enqueue_many([()] * 5)
    async with working(hf, concurrency=1):
        assert [await job.aresult(40) for job in jobs] == [1] * 5


@pytest.mark.parametrize("first", ["the wait", "the signal"])
async def test_a_signal_reaches_the_job_that_waits_for_it(hf: Holdfast, first: str) -> None:
    @hf.task()
    async def handler(order: str, *, ctx: Context = CONTEXT) -> str:
        approval = await ctx.wait_for(f"approved:{order}", type=Approval)
        return approval.by

    async with working(hf):
        if first == "the signal":
            assert await hf.asignal("approved:1", Approval("ada"))
        job = await handler.aenqueue("1")
        if first == "the wait":
            assert await parked(hf, job) == "signal approved:1"
            assert await hf.asignal("approved:1", Approval("ada"))
        assert not hf.signal("approved:1", Approval("bob"))
        assert await job.aresult(40) == "ada"


async def test_a_signal_counts_when_its_transaction_commits(hf: Holdfast, dsn: str) -> None:
    @hf.task()
    async def handler(*, ctx: Context = CONTEXT) -> Any:
        return await ctx.wait_for("go")

    async with working(hf):
        with psycopg.connect(dsn) as conn:
            hf.signal("go", 1, conn=conn)
            conn.rollback()
            job = await handler.aenqueue()
            await parked(hf, job)
            hf.signal("go", 2, conn=conn)
            conn.commit()
        assert await job.aresult(40) == 2


async def test_a_wait_that_times_out_does_so_in_every_later_run(hf: Holdfast) -> None:
    @hf.task()
    async def handler(*, ctx: Context = CONTEXT) -> str:
        try:
            await ctx.wait_for("never", timeout=0.05)
        except TimeoutError as error:
            await ctx.sleep("nap", seconds=0)
            return str(error)
        return "came"

    job = handler.enqueue()
    async with working(hf):
        assert await job.aresult(40) == "signal 'never' did not come in time"


@pytest.mark.parametrize("number", [0, 3, 50])
async def test_children_are_enqueued_once_and_gathered(hf: Holdfast, number: int) -> None:
    runs: list[int] = []

    @hf.task()
    async def label(n: int) -> int:
        return n * n

    @hf.task(retry=AGAIN)
    async def parent(*, ctx: Context = CONTEXT) -> list[int]:
        runs.append(ctx.attempt)
        async with ctx.batch("labels") as labels:
            for n in range(number):
                label.using(batch=labels).enqueue(n)
        if ctx.attempt == 1:
            raise ValueError("after the children were enqueued")
        done = await ctx.gather(labels)
        assert (done.total, done.succeeded, done.failed) == (number, number, 0)
        return [job.result async for job in done.aresults()]

    job = parent.enqueue()
    async with working(hf):
        assert await job.aresult(40) == [n * n for n in range(number)]
    assert len(hf.jobs.list(task=label.name, limit=200)) == number
    assert len(runs) >= 2


@pytest.mark.parametrize(("allowed", "status"), [(0.0, "failed"), (0.2, "failed"), (0.25, "succeeded")])
async def test_gather_allows_a_share_of_failures(hf: Holdfast, allowed: float, status: str) -> None:
    @hf.task()
    async def label(n: int) -> None:
        if n == 0:
            raise Fail("bad")

    @hf.task()
    async def parent(*, ctx: Context = CONTEXT) -> None:
        async with ctx.batch("labels") as labels:
            label.using(batch=labels).enqueue_many(range(4))
        await ctx.gather(labels, failures=allowed)

    job = parent.enqueue()
    async with working(hf):
        assert (await ended(hf, job.id)).status == status


async def test_a_call_returns_the_childs_result_and_links_both(hf: Holdfast) -> None:
    @hf.task()
    async def ship(order: str) -> Charge:
        return Charge(order, 5)

    @hf.task()
    async def parent(*, ctx: Context = CONTEXT) -> int:
        shipped = await ctx.call("ship", ship, "o-1")
        return shipped.cents

    job = parent.using(tenant="acme").enqueue()
    async with working(hf):
        assert await job.aresult(40) == 5
    (child,) = hf.jobs.relatives(job.id).children
    assert hf.jobs.relatives(child).parent == job.id
    info = hf.jobs.get(child)
    assert info is not None and info.tenant == "acme"


async def test_a_call_raises_what_became_of_the_child(hf: Holdfast) -> None:
    @hf.task()
    async def ship() -> None:
        raise Fail("no stock", code="NO_STOCK")

    @hf.task()
    async def parent(*, ctx: Context = CONTEXT) -> None:
        await ctx.call("ship", ship)

    job = parent.enqueue()
    async with working(hf):
        info = await ended(hf, job.id)
    assert (info.status, info.attempts) == (Status.FAILED, 1)
    assert info.last_error is not None and "is failed: Fail: no stock" in info.last_error["message"]


async def test_a_job_is_rerun_from_a_step(hf: Holdfast) -> None:
    calls: list[str] = []

    async def note(name: str) -> str:
        calls.append(name)
        return name

    @hf.task()
    async def order(*, ctx: Context = CONTEXT) -> str:
        return "".join([await ctx.step(name, note, name) for name in "abc"])

    job = order.enqueue()
    async with working(hf):
        assert await job.aresult(40) == "abc"
        assert await hf.jobs.arerun(job.id, from_step="b")
        await until(lambda: len(calls) == 5)
        assert await job.aresult(40) == "abc"
    assert calls == [*"abc", *"bc"]
    with pytest.raises(UsageError, match="has no step 'x'"):
        hf.jobs.rerun(job.id, from_step="x")


async def test_a_job_starts_after_others(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.task()
    async def note(name: str) -> None:
        order.append(name)
        if name == "bad":
            raise Fail("bad")

    first, second = note.using(delay=0.2).enqueue("first"), note.enqueue("second")
    last = note.using(after=[first, second]).enqueue("last")
    bad = note.enqueue("bad")
    canceled = note.using(after=[bad]).enqueue("canceled")
    skipped = note.using(after=[bad], on_failure="skip").enqueue("skipped")
    went_on = note.using(after=[skipped]).enqueue("went on")
    anyway = note.using(after=[bad, last], on_failure="run").enqueue("anyway")
    async with working(hf):
        for job in (went_on, anyway, canceled):
            await ended(hf, job.id)
    assert order.index("last") > max(order.index("first"), order.index("second"))
    assert "canceled" not in order and "skipped" not in order
    assert order[-1] == "anyway"
    with pytest.raises(UsageError, match="there is no job"):
        note.using(after=[str(uuid.uuid4())]).enqueue("x")
    with pytest.raises(UsageError, match="cannot start after itself"):
        note.using(id=first.id.replace("0", "1"), after=[first.id.replace("0", "1")]).enqueue("x")


async def test_sync_handlers_have_the_same(hf: Holdfast) -> None:
    calls: list[str] = []

    def pay(cents: int) -> Charge:
        calls.append("pay")
        return Charge("o", cents)

    @hf.task()
    def label(n: int) -> int:
        return n + 1

    @hf.task(retry=AGAIN)
    def order(*, ctx: SyncContext) -> list[Any]:
        charge = ctx.step("pay", pay, 3)
        ctx.sleep("nap", seconds=0.05)
        with ctx.batch("labels") as labels:
            label.using(batch=labels).enqueue_many([1, 2])
        done = ctx.gather(labels)
        if ctx.attempt == 1:
            raise ValueError("again")
        child: int = ctx.call("child", label, 41)
        return [charge.cents, ctx.wait_for("go"), [job.result for job in done.results()], child]

    enqueue: Any = order.enqueue
    job = enqueue()
    hf.signal("go", "now")
    async with working(hf):
        assert await job.aresult(40) == [3, "now", [2, 3], 42]
    assert calls == ["pay"]
