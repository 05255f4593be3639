"""What a handler may do and what may happen to it: cancel, deadline, progress, results, errors."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import CONTEXT, Context, Dead, Holdfast, Retry, Status, UsageError
from holdfast.model.job import Job
from holdfast.store.call import Call
from holdfast.store.wire.session import Session
from holdfast.worker.link import Progress
from holdfast.worker.messages import Progressed
from holdfast.worker.prefetch import Lease
from tests.support.running import ended, until, waiting, working

Sql = Callable[..., list[tuple[Any, ...]]]


# -- cancel


async def test_a_running_async_handler_is_canceled_at_its_next_await(hf: Holdfast) -> None:
    entered, undone = asyncio.Event(), asyncio.Event()

    @hf.task()
    async def slow() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            undone.set()

    async with working(hf):
        job = await slow.aenqueue()
        await entered.wait()
        assert await hf.jobs.acancel(job.id) == {job.id: "canceling"}
        assert await hf.jobs.acancel(job.id) in ({job.id: "canceling"}, {job.id: "finished"})
        info = await ended(hf, job.id)
        assert undone.is_set()
        assert info.status is Status.CANCELED and info.last_error and info.last_error["code"] == "CANCELED"
        assert await hf.jobs.acancel(job.id) == {job.id: "finished"}


async def test_a_handler_in_a_thread_sees_that_it_is_canceled(hf: Holdfast) -> None:
    entered = threading.Event()

    @hf.task()
    def loops(*, ctx: Context = CONTEXT) -> None:
        entered.set()
        while True:
            ctx.raise_if_canceled()
            time.sleep(0.005)

    async with working(hf):
        job = await loops.aenqueue()
        await asyncio.to_thread(entered.wait, 40)
        assert await hf.jobs.acancel(job.id) == {job.id: "canceling"}
        assert (await ended(hf, job.id)).status is Status.CANCELED


async def test_a_cancel_whose_notification_is_lost_is_found_by_looking(hf: Holdfast) -> None:
    entered = asyncio.Event()

    @hf.task()
    async def slow() -> None:
        entered.set()
        await asyncio.sleep(60)

    async with working(hf, notify=False):
        job = await slow.aenqueue()
        await entered.wait()
        await hf.jobs.acancel(job.id)
        assert (await ended(hf, job.id)).status is Status.CANCELED


async def test_a_job_that_is_to_be_canceled_is_not_tried_again(hf: Holdfast) -> None:
    entered, go = threading.Event(), threading.Event()

    @hf.task(retry=Retry.fixed(0, max_attempts=5))
    def fails() -> None:
        entered.set()
        go.wait(40)
        raise ValueError("no")

    async with working(hf):
        job = await fails.aenqueue()
        await asyncio.to_thread(entered.wait, 40)
        await hf.jobs.acancel(job.id)
        go.set()
        info = await ended(hf, job.id)
    assert (info.status, info.attempts) == (Status.CANCELED, 1)
    assert info.last_error and info.last_error["type"] == "ValueError"


async def test_a_job_that_succeeds_before_it_is_stopped_has_succeeded(hf: Holdfast) -> None:
    entered, go = threading.Event(), threading.Event()

    @hf.task()
    def succeeds() -> int:
        entered.set()
        go.wait(40)
        return 7

    async with working(hf):
        job = await succeeds.aenqueue()
        await asyncio.to_thread(entered.wait, 40)
        await hf.jobs.acancel(job.id)
        go.set()
        assert await job.aresult(40) == 7


async def test_a_claimed_job_that_has_not_started_is_canceled_unrun(hf: Holdfast) -> None:
    go = asyncio.Event()
    ran: list[int] = []

    @hf.task()
    async def each(n: int) -> None:
        ran.append(n)
        await go.wait()

    first, second = each.enqueue(1), each.enqueue(2)
    async with working(hf, concurrency=1, prefetch=1000) as worker:  # it claims far ahead
        await until(lambda: bool(ran) and bool(worker.buffer.ready))
        assert await hf.jobs.acancel(second.id) == {second.id: "canceling"}
        assert (await ended(hf, second.id)).status is Status.CANCELED
        go.set()
        assert (await ended(hf, first.id)).status is Status.SUCCEEDED
    assert ran == [1]


async def test_a_notification_alone_cancels_no_job(hf: Holdfast, sql: Sql) -> None:
    """Every user of the database may notify; only those with the right to call cancel() may cancel."""
    entered, go = asyncio.Event(), asyncio.Event()

    @hf.task()
    async def slow() -> None:
        entered.set()
        await go.wait()

    async with working(hf) as worker:
        job = await slow.aenqueue()
        await entered.wait()
        for payload in (f"{worker.id} cancel {job.id}", f"{worker.id} cancel", f"{worker.id} cancel {job.id} {job.id}"):
            sql("select pg_notify('holdfast_wake', %s)", [payload])
        other = await hf.task(name="other")(_nothing).aenqueue()
        await ended(hf, other.id)  # a wake-up after those notifications has come through
        await asyncio.sleep(0.1)
        go.set()
        assert (await ended(hf, job.id)).status is Status.SUCCEEDED


async def _nothing() -> None: ...


async def test_many_jobs_of_a_worker_are_canceled_at_once(hf: Holdfast, sql: Sql) -> None:
    running = 0

    @hf.task()
    async def slow(n: int) -> None:
        nonlocal running
        running += 1
        await asyncio.sleep(60)

    async with working(hf, concurrency=200):
        ids = (await slow.aenqueue_many(range(200))).ids
        await until(lambda: running == 200)
        assert set((await hf.jobs.acancel(*ids)).values()) == {"canceling"}
        all_of_them = "select 1 from jobs where status = 'canceled' having count(*) = 200"
        await until(lambda: asyncio.to_thread(sql, all_of_them))


# -- deadline


async def test_a_job_past_its_deadline_is_never_started(hf: Holdfast, sql: Sql) -> None:
    ran = []

    @hf.task()
    async def each(n: int) -> None:
        ran.append(n)

    late, early = each.using(deadline=30).enqueue(1), each.using(deadline=3000).enqueue(2)
    waits = each.using(delay=3600, deadline=3700).enqueue(3)
    sql("update live set deadline = now() where id = %s", [late.id])
    sql("update later set deadline = now() where id = %s", [waits.id])
    async with working(hf):
        for job in (late, waits):
            info = await ended(hf, job.id)
            assert info.status is Status.CANCELED and info.last_error and info.last_error["code"] == "DEADLINE_EXPIRED"
        assert (await ended(hf, early.id)).status is Status.SUCCEEDED
    assert ran == [2]


async def test_a_retry_that_its_deadline_prevents_leaves_the_error_that_requested_it(hf: Holdfast, sql: Sql) -> None:
    @hf.task(retry=Retry.fixed(60))
    async def each() -> None:
        raise ValueError("the reason")

    async with working(hf):
        job = await each.using(deadline=3000).aenqueue()
        await waiting(hf, job.id)
        sql("update later set deadline = now()")
        info = await ended(hf, job.id)
    error = info.last_error or {}
    assert (info.status, info.attempts, error["code"]) == (Status.CANCELED, 1, "DEADLINE_EXPIRED")
    assert error["message"] == "its deadline passed while it waited to be started"
    assert error["cause"]["message"] == "the reason"


def test_a_deadline_before_the_job_may_start_is_refused(hf: Holdfast) -> None:
    @hf.task()
    async def each() -> None: ...

    with pytest.raises(UsageError, match="a deadline of 00:00:05 is not after the time the job may start"):
        each.using(delay=10, deadline=5).enqueue()
    with pytest.raises(UsageError, match="deadline must be a number of seconds from now"):
        each.using(deadline=0)


# -- progress, results, log


async def test_progress_can_be_read_while_a_job_runs_and_after_it_has_ended(hf: Holdfast) -> None:
    go = asyncio.Event()

    @hf.task()
    async def counts(*, ctx: Context = CONTEXT) -> None:
        for n in range(1000):
            ctx.progress(n, 1000, f"row {n}")
        await go.wait()
        ctx.progress(1000, 1000, "done")

    async with working(hf):
        job = await counts.aenqueue()

        async def stored_progress() -> Any:
            info = await hf.jobs.aget(job.id)
            return info and info.progress

        progress = await until(stored_progress)
        assert (progress["done"], progress["total"], progress["message"]) == (999, 1000, "row 999")
        go.set()
        assert ((await ended(hf, job.id)).progress or {})["message"] == "done"


async def test_the_end_of_a_job_waits_for_its_last_report_that_is_on_its_way(hf: Holdfast) -> None:
    gate = asyncio.Event()

    class Slow(Session):
        async def run(self, call: Call[Any]) -> Any:
            await gate.wait()
            return await super().run(call)

    progress, slow, quick = Progress(hf.database.calls), Slow(hf.settings, "slow"), Session(hf.settings, "quick")
    row = (str(uuid.uuid4()), 1, "t", "{}", 1, 1, "default", 2, None, 0.0, None, None, 0, None, None)
    progress.report(Job(row, Lease(1, 1, 0.0, 1.0)), Progressed(0, 1, None, None))
    on_its_way = asyncio.create_task(progress.store(slow))
    await asyncio.sleep(0)
    before_the_end = asyncio.create_task(progress.store(quick))
    await asyncio.sleep(0)
    assert not before_the_end.done(), "the job would be ended now, and its last report refused"
    gate.set()
    await asyncio.gather(on_its_way, before_the_end)
    await slow.close()


async def test_progress_that_is_no_number_is_refused(hf: Holdfast) -> None:
    @hf.task(retry=Retry.none())
    async def wrong(*, ctx: Context = CONTEXT) -> None:
        ctx.progress(float("nan"))

    async with working(hf):
        info = await ended(hf, (await wrong.aenqueue()).id)
    assert info.last_error and "progress must be a finite number, got nan" in info.last_error["message"]


@dataclass
class Point:
    x: int
    y: int


async def test_a_result_comes_back_as_the_type_the_handler_returns(hf: Holdfast) -> None:
    @hf.task()
    async def make() -> list[Point]:
        return [Point(1, 2)]

    async with working(hf):
        assert await (await make.aenqueue()).aresult(40) == [Point(1, 2)]


async def test_a_result_that_is_too_large_fails_the_job_and_says_so(hf: Holdfast) -> None:
    @hf.task()
    async def large() -> str:
        return "x" * 2000

    async with working(hf, max_result=1000):
        info = await ended(hf, (await large.aenqueue()).id)
    assert info.status is Status.FAILED and info.last_error
    assert "the result of task" in info.last_error["message"] and "HOLDFAST_MAX_RESULT" in info.last_error["message"]


async def test_log_lines_carry_the_job(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @hf.task(name="talks")
    async def talks(*, ctx: Context = CONTEXT) -> None:
        ctx.log.warning("sent %s", 3, extra={"fields": {"to": "ada"}})

    async with working(hf):
        job = await talks.aenqueue()
        await ended(hf, job.id)
    (record,) = [r for r in caplog.records if r.name == "holdfast.job"]
    assert record.getMessage() == "sent 3"
    assert record.fields == {"job": job.id, "task": "talks", "attempt": 1, "to": "ada"}  # type: ignore[attr-defined]


# -- errors


async def test_an_application_says_what_its_error_codes_mean(hf: Holdfast) -> None:
    hf.classify({"DB_UNAVAILABLE": "retry", "SNAPSHOT_NOT_READY": "fail", "BLOCKED": "dead", LookupError: "fail"})

    class Coded(Exception):
        def __init__(self, code: str) -> None:
            super().__init__(code)
            self.code = code

    @hf.task(retry=Retry.fixed(0, max_attempts=2))
    async def raises(code: str) -> None:
        raise KeyError(code) if code == "KEY" else Coded(code)

    @hf.task(retry=Retry.fixed(0, max_attempts=2).on(dead=["SNAPSHOT_NOT_READY"]))
    async def own_rules() -> None:
        raise Coded("SNAPSHOT_NOT_READY")

    expected = {
        "DB_UNAVAILABLE": (Status.DEAD, 2),
        "SNAPSHOT_NOT_READY": (Status.FAILED, 1),
        "BLOCKED": (Status.DEAD, 1),
        "KEY": (Status.FAILED, 1),
        "ELSE": (Status.DEAD, 2),
    }
    async with working(hf):
        jobs = {code: await raises.aenqueue(code) for code in expected}
        for code, job in jobs.items():
            info = await ended(hf, job.id)
            assert (info.status, info.attempts) == expected[code], code
        assert (await ended(hf, (await own_rules.aenqueue()).id)).status is Status.DEAD


async def test_blocks_are_counted_by_key(hf: Holdfast) -> None:
    @hf.task()
    async def fetch(host: str) -> None:
        raise Dead("refused by robots.txt", code="ROBOTS", block=host)

    async with working(hf):
        for host in ("a.example", "b.example", "a.example"):
            job = await fetch.aenqueue(host)
            assert (await ended(hf, job.id)).status is Status.DEAD
    blocks = {each.key: each for each in hf.dead.blocks()}
    assert {key: each.count for key, each in blocks.items()} == {"a.example": 2, "b.example": 1}
    assert blocks["a.example"].reason == "ROBOTS: refused by robots.txt"
    assert blocks["a.example"].last_job == job.id
