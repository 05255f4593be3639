"""drain and run: the real worker, in this process, until nothing is due; and how it reports failures."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import (
    CONTEXT,
    Cancel,
    Context,
    Dead,
    Fail,
    JobFailed,
    Retry,
    RetryLater,
    Snooze,
    Status,
    UnknownTask,
    UsageError,
)
from holdfast.testing import Kit
from holdfast.testing.watched import WatchedAttempts
from tests.support.pace import slower

HOUR = 3600.0


def test_everything_due_runs_in_order_and_each_attempt_is_reported(kit: Kit) -> None:
    @kit.hf.task(name="add", queue="sums")
    async def add(a: int, b: int = 2) -> int:
        return a + b

    add.using(tenant="acme").enqueue(1)
    add.using(priority=0).enqueue(5, b=6)
    add.using(delay=60).enqueue(7)
    drained = kit.drain()
    assert [(each.args, each.result, each.tenant) for each in drained] == [
        ({"a": 5, "b": 6}, 11, None),
        ({"a": 1}, 3, "acme"),
    ]
    assert {(each.task, each.queue, each.number, each.outcome, each.status) for each in drained} == {
        ("add", "sums", 1, "succeeded", Status.SUCCEEDED)
    }
    assert [job.payload for job in kit.waiting()] == [{"a": 7}]
    assert drained.statuses == {"succeeded": 2}


def test_nothing_due_is_nothing_run(kit: Kit) -> None:
    assert kit.drain() == ()
    assert repr(kit.drain()) == "<drained: nothing>"


def test_a_drain_leaves_the_lead_to_workers_of_the_tests_own(kit: Kit) -> None:
    """Otherwise the jobs of a killed one would wait for a minute until they can be reclaimed."""
    kit.drain()
    with psycopg.connect(kit.dsn) as conn:
        assert conn.execute("select holdfast.take_lead('upkeep', 'another', '60 seconds')").fetchone() != (None,)


def test_jobs_that_handlers_enqueue_are_run_too_whatever_their_queue(kit: Kit) -> None:
    @kit.hf.task(queue="one")
    def parent(n: int) -> None:
        child.enqueue_many(range(n))
        child.using(queue="of no task").enqueue(99)

    @kit.hf.task(queue="two")
    async def child(n: int) -> int:
        if n == 2:
            await child.aenqueue(50)
        return n

    parent.enqueue(3)
    assert [each.result for each in kit.drain().of(child)] == [0, 1, 2, 50, 99]


def test_a_sync_handler_runs_in_a_thread_of_the_worker_and_an_async_one_on_its_loop(kit: Kit) -> None:
    @kit.hf.task()
    def where() -> str:
        return threading.current_thread().name

    @kit.hf.task()
    async def here() -> str:
        return threading.current_thread().name

    where.enqueue()
    here.enqueue()
    in_thread, on_loop = kit.drain()
    assert "holdfast-job" in in_thread.result
    assert on_loop.result == threading.current_thread().name


async def test_adrain_runs_async_handlers_on_the_loop_of_the_test(kit: Kit) -> None:
    @kit.hf.task()
    async def here() -> bool:
        return asyncio.get_running_loop() is loop

    loop = asyncio.get_running_loop()
    await here.aenqueue()
    assert [each.result for each in await kit.adrain()] == [True]
    job = await here.using(delay=HOUR).aenqueue()
    assert (await kit.arun(job)).result is True


async def test_drain_on_a_running_loop_names_the_call_to_make(kit: Kit) -> None:
    with pytest.raises(UsageError, match=r"await kit\.adrain\("):
        kit.drain()
    with pytest.raises(UsageError, match=r"await kit\.arun\("):
        kit.run("x")


def test_the_threads_own_event_loop_is_left_as_it_is(kit: Kit) -> None:
    @kit.hf.task()
    async def nothing() -> None: ...

    mine = asyncio.new_event_loop()
    asyncio.set_event_loop(mine)
    try:
        nothing.enqueue()
        kit.drain()
        assert asyncio.get_event_loop() is mine
    finally:
        asyncio.set_event_loop(None)
        mine.close()


def test_an_error_is_raised_as_the_handler_raised_it_and_the_rest_stays_queued(kit: Kit) -> None:
    @kit.hf.task(name="divide")
    def divide(n: int) -> float:
        return 1 / n

    job = divide.enqueue(0)
    divide.enqueue(1)
    with pytest.raises(ZeroDivisionError) as raised:
        kit.drain()
    frames = traceback.extract_tb(raised.tb)
    assert [frame.name for frame in frames if "holdfast/worker" in frame.filename] == []
    assert frames[-1].line == "return 1 / n"
    assert raised.value.__notes__ == [f"job {job.id} of task 'divide', attempt 1 of 5, is now retrying"]
    assert [(each.payload, each.status) for each in kit.all_enqueued()] == [
        ({"n": 0}, Status.RETRYING),
        ({"n": 1}, Status.QUEUED),
    ]


def test_without_raise_errors_every_job_is_run_and_errors_are_returned(kit: Kit) -> None:
    @kit.hf.task(retry=Retry.none())
    async def divide(n: int) -> float:
        return 1 / n

    divide.enqueue_many([0, 1])
    drained = kit.drain(raise_errors=False)
    assert repr(drained) == f"<drained: {divide.name} dead after ZeroDivisionError, {divide.name} succeeded>"
    bad, good = drained
    assert (bad.outcome, bad.status, bad.result) == ("error", Status.DEAD, None)
    assert isinstance(bad.error, ZeroDivisionError)
    assert (good.status, good.result, good.error) == (Status.SUCCEEDED, 1.0, None)


@pytest.mark.parametrize("verdict", [RetryLater(60), Snooze(60), Cancel("not wanted")])
def test_an_outcome_that_a_handler_requests_is_not_an_error(kit: Kit, verdict: Exception) -> None:
    @kit.hf.task()
    async def choose() -> None:
        raise verdict

    choose.enqueue()
    (attempt,) = kit.drain()
    assert attempt.error is verdict


@pytest.mark.parametrize("verdict", [Fail("never"), Dead("blocked"), SystemExit(3)])
def test_an_error_that_ends_a_job_is_raised_whatever_its_type(kit: Kit, verdict: BaseException) -> None:
    @kit.hf.task()
    def choose() -> None:
        raise verdict

    choose.enqueue()
    with pytest.raises(type(verdict)):
        kit.drain()


def test_a_test_may_fail_inside_a_handler(kit: Kit) -> None:
    @kit.hf.task()
    async def check() -> None:
        pytest.fail("seen inside")

    check.enqueue()
    with pytest.raises(pytest.fail.Exception, match="seen inside"):
        kit.drain()


async def test_a_cancellation_that_escapes_a_handler_does_not_cancel_the_test(kit: Kit) -> None:
    @kit.hf.task()
    async def odd() -> None:
        raise asyncio.CancelledError

    await odd.aenqueue()
    with pytest.raises(JobFailed, match="CancelledError"):
        await kit.adrain()


def test_an_error_of_which_only_the_word_is_known_is_raised_with_that(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is with a handler in another process."""
    monkeypatch.setattr(WatchedAttempts, "_keep_error", lambda *_: None)

    @kit.hf.task(name="remote")
    async def remote() -> None:
        raise ConnectionError("refused over there")

    remote.enqueue()
    with pytest.raises(
        JobFailed, match=r"(?s)'remote', attempt 1 of 5, is now retrying: ConnectionError: refused over"
    ):
        kit.drain()


def test_a_task_that_is_not_registered_here_is_an_error(kit: Kit) -> None:
    @kit.hf.task(name="reports.build")
    async def build() -> None: ...

    build.enqueue()
    kit.hf.registry.tasks["reports.bild"] = kit.hf.registry.tasks.pop("reports.build")
    with pytest.raises(UnknownTask, match=r"did you mean 'reports\.bild'"):
        kit.drain()


def test_retries_are_run_at_their_time_until_one_succeeds(kit: Kit) -> None:
    @kit.hf.task(retry=Retry.table([60, HOUR], max_attempts=3))
    async def third_time(*, ctx: Context = CONTEXT) -> int:
        if ctx.attempt < 3:
            raise ConnectionError(f"attempt {ctx.attempt}")
        return ctx.attempt

    third_time.enqueue()
    began = kit.clock.freeze()
    drained = kit.drain(with_retries=True)
    assert [(each.number, each.outcome, each.status) for each in drained] == [
        (1, "error", Status.RETRYING),
        (2, "error", Status.RETRYING),
        (3, "succeeded", Status.SUCCEEDED),
    ]
    assert kit.clock.now() - began == timedelta(seconds=60 + HOUR)


def test_the_last_error_of_a_job_that_used_up_its_retries_is_raised(kit: Kit) -> None:
    @kit.hf.task(retry=Retry.fixed(60, max_attempts=2))
    async def never(*, ctx: Context = CONTEXT) -> None:
        raise ConnectionError(f"attempt {ctx.attempt}")

    job = never.enqueue()
    with pytest.raises(ConnectionError, match="attempt 2"):
        kit.drain(with_retries=True)
    info = job.info()
    assert info is not None and info.status is Status.DEAD


def test_until_goes_from_one_due_time_to_the_next_and_ends_there(kit: Kit) -> None:
    @kit.hf.task(retry=Retry.fixed(10))
    def note(n: int, *, ctx: Context = CONTEXT) -> list[Any]:
        if n == 2 and ctx.attempt == 1:
            raise ConnectionError("once")
        return [n, (kit.clock.now() - began).total_seconds()]

    began = kit.clock.freeze(datetime(2030, 1, 1, tzinfo=UTC))
    for n, delay in enumerate([HOUR, 0, 60, 2 * HOUR + 1]):
        note.using(delay=delay).enqueue(n)
    drained = kit.drain(until=timedelta(hours=2))
    assert [each.result for each in drained] == [[1, 0.0], None, [2, 70.0], [0, HOUR]]
    assert kit.clock.now() == began + timedelta(hours=2)
    assert [job.payload["n"] for job in kit.waiting()] == [3]


def test_an_error_whose_retry_lies_beyond_until_is_raised(kit: Kit) -> None:
    @kit.hf.task(retry=Retry.fixed(HOUR))
    async def fails() -> None:
        raise ConnectionError("no")

    fails.enqueue()
    with pytest.raises(ConnectionError):
        kit.drain(until=60)


def test_one_queue_may_be_drained_alone(kit: Kit) -> None:
    @kit.hf.task(queue="mail")
    async def send() -> None: ...

    @kit.hf.task(queue="slow")
    async def crunch() -> None: ...

    send.enqueue()
    crunch.enqueue()
    assert [each.queue for each in kit.drain("mail")] == ["mail"]
    assert [job.queue for job in kit.waiting()] == ["slow"]


def test_jobs_that_make_jobs_for_ever_end_at_max_jobs(kit: Kit) -> None:
    @kit.hf.task(name="echo")
    async def echo() -> None:
        await echo.aenqueue()

    echo.enqueue()
    with pytest.raises(UsageError, match=r"30 jobs were run and more are due: 30 of echo\. Does a job enqueue itself"):
        kit.drain(max_jobs=30)


def test_as_many_as_max_jobs_are_not_too_many(kit: Kit) -> None:
    @kit.hf.task()
    async def nothing(n: int) -> None: ...

    nothing.enqueue_many(range(5))
    assert len(kit.drain(max_jobs=5)) == 5


def test_a_handler_that_does_not_end_is_named(kit: Kit) -> None:
    @kit.hf.task(name="stuck")
    async def stuck() -> None:
        await asyncio.Event().wait()

    stuck.enqueue()
    with pytest.raises(UsageError, match=r"did not end within 0\.2 s; still running: stuck"):
        kit.drain(timeout=0.2)


def test_a_handler_may_wait_for_another_job_where_two_run_at_once(kit: Kit) -> None:
    @kit.hf.task()
    async def parent() -> int:
        return await (await child.aenqueue()).aresult(timeout=40)

    @kit.hf.task()
    async def child() -> int:
        return 7

    parent.enqueue()
    assert [each.result for each in kit.drain(concurrency=2).of(parent)] == [7]


def test_a_clock_moved_while_a_job_runs_takes_no_lease_away(kit: Kit) -> None:
    @kit.hf.task()
    def travel() -> str:
        kit.clock.travel(timedelta(days=365))
        kit._database.promote()  # a leader elsewhere would now reclaim the jobs of expired leases
        return "held"

    travel.enqueue()
    (attempt,) = kit.drain()
    assert (attempt.status, attempt.result) == (Status.SUCCEEDED, "held")


def test_a_job_that_a_handler_made_due_by_moving_the_clock_is_run(kit: Kit) -> None:
    @kit.hf.task()
    def travel() -> None:
        kit.clock.travel(HOUR)

    @kit.hf.task()
    async def delayed() -> str:
        return "now"

    delayed.using(delay=HOUR / 2).enqueue()
    travel.enqueue()
    assert [each.result for each in kit.drain()] == [None, "now"]


def test_run_makes_one_attempt_at_one_job_and_leaves_all_others(kit: Kit) -> None:
    @kit.hf.task()
    async def twice(n: int) -> int:
        return 2 * n

    ids = twice.enqueue_many(range(6)).ids  # all at one time: only the ids differ
    twice.using(priority=0).enqueue(100)
    delayed = twice.using(delay=HOUR).enqueue(200)
    assert kit.run(ids[3]).result == 6
    assert kit.run(delayed).result == 400
    assert kit.run(kit.all_enqueued(twice, 5)[0]).result == 10
    assert [job.payload["n"] for job in kit.waiting()] == [0, 1, 2, 4, 100]


def test_run_reports_why_a_job_cannot_be_run(kit: Kit) -> None:
    @kit.hf.task()
    async def once() -> None: ...

    job = once.enqueue()
    kit.run(job)
    with pytest.raises(UsageError, match=f"job {job.id} is not waiting: it is succeeded"):
        kit.run(job)
    with pytest.raises(UsageError, match="it is unknown"):
        kit.run("00000000-0000-7000-8000-000000000001")


def test_run_raises_and_makes_no_second_attempt(kit: Kit) -> None:
    @kit.hf.task(retry=Retry.fixed(0))
    async def fails() -> None:
        raise ConnectionError("no")

    job = fails.enqueue()
    with pytest.raises(ConnectionError):
        kit.run(job)
    info = job.info()
    assert info is not None and (info.status, info.attempts) == (Status.RETRYING, 1)
    assert kit.run(job, raise_errors=False).number == 2


def test_a_drain_takes_milliseconds(kit: Kit) -> None:
    """Measured 12 to 20 ms on two busy cores; the bound leaves room for a machine that does much else."""

    @kit.hf.task()
    async def nothing() -> None: ...

    def once() -> float:
        nothing.enqueue()
        began = time.perf_counter()
        kit.drain()
        return time.perf_counter() - began

    assert min(once() for _ in range(10)) < 0.15 * slower()


def test_a_job_that_is_canceled_while_it_runs_is_reported_as_canceled(kit: Kit) -> None:
    @kit.hf.task()
    async def gives_up(*, ctx: Context = CONTEXT) -> None:
        await kit.hf.jobs.acancel(ctx.job_id)
        await asyncio.sleep(30)

    gives_up.enqueue()
    assert [(each.outcome, each.status) for each in kit.drain()] == [("canceled", Status.CANCELED)]
    attempt = kit.run(gives_up.enqueue())
    assert (attempt.outcome, attempt.status) == ("canceled", Status.CANCELED)


async def test_a_result_that_nothing_will_make_is_refused_at_once(kit: Kit) -> None:
    @kit.hf.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    job = double.enqueue(2)
    refused = f"job {job.id} of task 'double' is queued and nothing runs it in this test; call drain\\(\\) first"
    with pytest.raises(UsageError, match=refused):
        job.result()
    with pytest.raises(UsageError, match=refused):
        await job.aresult()
    with pytest.raises(TimeoutError):  # a worker of the test's own might run it
        job.result(timeout=0)
    await kit.adrain()
    assert job.result() == await job.aresult() == 4


async def test_a_handler_may_wait_for_another_job_without_end(kit: Kit) -> None:
    @kit.hf.task()
    async def parent() -> str:
        return await (await child.aenqueue()).aresult()

    @kit.hf.task()
    async def child() -> str:
        return "done"

    parent.enqueue()
    assert {attempt.result for attempt in await kit.adrain(concurrency=2)} == {"done"}


def test_a_result_from_a_transaction_that_is_open_is_refused_at_once(kit: Kit) -> None:
    @kit.hf.task()
    async def double(n: int) -> int:
        return 2 * n

    with psycopg.connect(kit.dsn) as conn:
        job = double.using(conn=conn).enqueue(2)
        with pytest.raises(UsageError, match="not found; commit the transaction"):
            job.result()


def test_sleeps_are_skipped_and_signals_sent_when_jobs_wait_for_them(kit: Kit) -> None:
    @kit.hf.task(name="order")
    async def order(number: int, *, ctx: Context = CONTEXT) -> str:
        await ctx.sleep("cooling", hours=24)
        return f"{number} {await ctx.wait_for(f'approved:{number}')}"

    began = kit.clock.now()
    job = order.using(tenant="acme").enqueue(7)
    drained = kit.drain(with_sleeps=True, signals={"approved:7": "ada", "approved:8": "nobody"})
    assert [each.outcome for each in drained] == ["parked", "parked", "succeeded"]
    assert job.result(1) == "7 ada"
    assert kit.clock.now() - began >= timedelta(hours=24)


def test_a_drain_leaves_sleeps_and_waits_as_they_are_unless_it_is_asked(kit: Kit) -> None:
    @kit.hf.task(name="order")
    async def order(*, ctx: Context = CONTEXT) -> None:
        await ctx.sleep("cooling", hours=24)
        await ctx.wait_for("approved")

    job = order.enqueue()
    assert [each.status for each in kit.drain()] == [Status.WAITING]
    assert [each.status for each in kit.drain(with_sleeps=True)] == [Status.WAITING]
    info = job.info()
    assert info is not None and info.waits_for == "signal approved"
