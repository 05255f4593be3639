"""What handlers write with ctx.log is stored with the job; and what failed, in groups."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from holdfast import CONTEXT, Context, Dead, Holdfast, Retry
from holdfast.errors import DatabaseUnavailable
from holdfast.model.failure import AttemptLog
from holdfast.model.job import Job
from holdfast.worker.joblogs import JobLogs
from holdfast.worker.messages import LogLine
from holdfast.worker.prefetch import Lease
from tests.support.running import ended, until, working
from tests.worker.test_process_context import app, crunch  # noqa: F401 - a fixture

ONCE = Retry.none()


async def log_of(hf: Holdfast, id_: str) -> list[AttemptLog]:
    return await hf.jobs.alog(id_)


def texts(log: AttemptLog) -> list[tuple[str, str]]:
    return [(line.level, line.text) for line in log.lines]


async def test_lines_can_be_read_while_the_job_runs_and_after_it_has_ended(hf: Holdfast) -> None:
    go_on = asyncio.Event()

    @hf.task()
    async def talks(*, ctx: Context = CONTEXT) -> None:
        ctx.log("began")
        await go_on.wait()
        ctx.log.warning("slow: %s s", 3)
        ctx.log.debug("not logged, so not stored")
        ctx.log("nul \x00 and surrogate \ud800, " + "x" * 2000, "error")

    async with working(hf):
        job = await talks.aenqueue()
        (log,) = await until(lambda: log_of(hf, job.id))
        assert texts(log) == [("info", "began")]
        go_on.set()
        await ended(hf, job.id)
        (log,) = await log_of(hf, job.id)  # stored before the outcome
    assert log.attempt == 1
    assert [(line.level, line.text[:20]) for line in log.lines] == [
        ("info", "began"),
        ("warning", "slow: 3 s"),
        ("error", "nul \\x00 and surrogat"[:20]),
    ]
    assert 990 < len(log.lines[2].text) <= 1000
    assert log.started_at <= log.lines[0].at <= log.lines[2].at


async def test_the_last_two_hundred_lines_of_each_attempt_are_kept_from_threads_too(hf: Holdfast) -> None:
    @hf.task(retry=Retry.fixed(0, max_attempts=2))
    def floods(lines: int, *, ctx: Context = CONTEXT) -> None:
        def write() -> None:
            for n in range(lines):
                ctx.log(n)

        helper = threading.Thread(target=write)
        helper.start()
        helper.join()
        raise ValueError

    async with working(hf):
        job = await floods.aenqueue(5000)
        await ended(hf, job.id)
        first, second = await log_of(hf, job.id)
    for log in (first, second):
        assert [line.text for line in log.lines] == [str(n) for n in range(4800, 5000)]
        assert log.lines[-1].number == 5000
    assert (first.attempt, second.attempt) == (1, 2)


async def test_lines_of_a_process_are_stored(app: Holdfast) -> None:  # noqa: F811 - the fixture
    async with working(app):
        job = await crunch.talks.aenqueue()
        await ended(app, job.id)
        (log,) = await log_of(app, job.id)
    assert texts(log) == [("info", "sent 3"), ("info", "stored only")]


async def test_lines_around_the_transaction_that_ends_the_job_are_stored(hf: Holdfast) -> None:
    @hf.task()
    async def books(*, ctx: Context = CONTEXT) -> None:
        ctx.log("before")
        async with ctx.transaction() as conn:
            await conn.execute("select 1")
        ctx.log("after")

    async with working(hf):
        job = await books.aenqueue()
        await ended(hf, job.id)

        async def both() -> bool:
            return [text for log in await log_of(hf, job.id) for _, text in texts(log)] == ["before", "after"]

        await until(both)


async def test_lines_that_may_have_been_stored_are_sent_again_once(hf: Holdfast) -> None:
    sent: list[list[int]] = []

    class Losing:
        async def run(self, call: object) -> None:
            sent.append([line["n"] for line in reports[0]["lines"]])
            if len(sent) == 1:
                raise DatabaseUnavailable("gone")

    class Jobs:
        def report_log(self, lines: list[dict[str, Any]]) -> None:
            reports[:] = lines

    class Calls:
        jobs = Jobs()

    reports: list[dict[str, Any]] = []
    logs = JobLogs(Calls())  # type: ignore[arg-type]
    job = Job(("id", 1, "t", "{}", 1, 5, "q", 2, None, 0.0, None, None, 0, None, None), Lease(1, 1, 0.0, 1.0))
    logs.add(job, LogLine(0, "info", "one"))
    await logs.store(Losing())  # type: ignore[arg-type]
    logs.add(job, LogLine(0, "info", "two"))
    await logs.store(Losing())  # type: ignore[arg-type]
    await logs.store(Losing())  # type: ignore[arg-type]
    assert sent == [[1], [1, 2]]


async def test_failures_are_kept_with_the_job_and_grouped(hf: Holdfast) -> None:
    @hf.task(retry=ONCE)
    async def breaks(user: int) -> None:
        raise LookupError(f"user {user} is unknown")

    @hf.task(retry=ONCE)
    def refuses(host: str) -> None:
        raise Dead(f"{host} refused", code="REFUSED")

    async with working(hf, upkeep=0.2):
        jobs = [await breaks.aenqueue(n) for n in range(5)]
        jobs += [await refuses.aenqueue(f"host-{n}.example") for n in range(3)]
        for job in jobs:
            await ended(hf, job.id)

        async def counted() -> bool:
            return sum(group.attempts for group in await hf.dead.errors.alist()) == 8

        await until(counted)
        groups = await hf.dead.errors.alist()
        (failure,) = await hf.jobs.afailures(jobs[0].id)
    by_task = {group.task: group for group in groups}
    unknown, refused = by_task[breaks.name], by_task[refuses.name]
    assert len(groups) == 2
    assert (unknown.attempts, unknown.dead, unknown.type) == (5, 5, "LookupError")
    assert unknown.frame
    assert unknown.frame.endswith("breaks")
    assert unknown.example
    assert "Traceback" in unknown.example["traceback"]
    assert sum(unknown.trend.values()) == 5
    assert (refused.attempts, refused.code) == (3, "REFUSED")
    assert await hf.dead.errors.aget(refused.fingerprint) == refused
    assert len(await hf.dead.errors.adead_ids(refused.fingerprint)) == 3
    assert {job.id for job in await hf.dead.alist(error_group=refused.fingerprint)} == {job.id for job in jobs[5:]}
    assert await hf.dead.acount(error_group=unknown.fingerprint) == 5
    action = await hf.actions.astart("retry", {"error_group": refused.fingerprint})
    assert (action.state, action.scanned, action.changed) == ("done", 3, 3)
    assert (failure.attempt, failure.outcome, failure.message) == (1, "error", "user 0 is unknown")
    assert failure.fingerprint == unknown.fingerprint
