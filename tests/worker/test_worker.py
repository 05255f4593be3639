"""What a worker does with a job: handlers of each kind, every outcome, wake-ups, and how quiet it is when idle."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from holdfast import CONTEXT, Cancel, Context, Dead, Fail, Holdfast, JobFailed, Retry, RetryLater, Snooze, Status
from holdfast.settings import Settings
from holdfast.worker import Worker
from holdfast.worker.supervise import Lifeline
from tests.support.running import ended, until, waiting, working


async def test_an_async_handler_gets_its_arguments_and_its_result_is_kept(hf: Holdfast) -> None:
    @hf.task()
    async def add(a: int, b: int = 2) -> dict[str, int]:
        return {"sum": a + b}

    async with working(hf):
        info = await ended(hf, (await add.aenqueue(1)).id)
    assert (info.status, info.result, info.attempts) == (Status.SUCCEEDED, {"sum": 3}, 1)
    assert info.started_at and info.finished_at and info.started_at <= info.finished_at


async def test_a_sync_handler_runs_in_a_thread_and_does_not_hold_up_the_loop(hf: Holdfast) -> None:
    entered, let_go = threading.Event(), threading.Event()

    @hf.task()
    def block() -> str:
        entered.set()
        assert let_go.wait(40)
        return threading.current_thread().name

    @hf.task()
    async def quick() -> None: ...

    async with working(hf):
        blocked = await block.aenqueue()
        await asyncio.to_thread(entered.wait, 40)
        assert (await ended(hf, (await quick.aenqueue()).id)).status is Status.SUCCEEDED
        let_go.set()
        assert "holdfast-job" in (await ended(hf, blocked.id)).result


@pytest.mark.parametrize("leak", [StopIteration("mine"), SystemExit(3), asyncio.CancelledError("mine"), TimeoutError()])
async def test_whatever_a_handler_in_a_thread_raises_is_its_own(hf: Holdfast, leak: BaseException) -> None:
    @hf.task(retry=Retry.none(), timeout=10)
    def leaky() -> None:
        raise leak

    @hf.task(retry=Retry.none())
    def healthy(n: int) -> int:
        return n

    async with working(hf, concurrency=1):
        info = await ended(hf, (await leaky.aenqueue()).id)
        assert (await ended(hf, (await healthy.aenqueue(3)).id)).result == 3
    assert info.status is Status.DEAD
    assert info.last_error is not None and info.last_error.get("code") != "TIMEOUT"
    assert type(leak).__name__ in info.last_error["traceback"]


async def test_threads_are_reused_and_end_with_the_worker(hf: Holdfast) -> None:
    threads: set[threading.Thread] = set()

    @hf.task()
    def note(n: int) -> None:
        threads.add(threading.current_thread())

    async with working(hf, concurrency=3):
        for each in (await note.aenqueue_many(range(50))).ids:
            await ended(hf, each)
    assert 1 <= len(threads) <= 3
    await until(lambda: not [each for each in threads if each.is_alive()])


async def test_the_context_describes_the_job_to_the_handler(hf: Holdfast) -> None:
    @hf.task(queue="mail", priority=1, retry=Retry.fixed(1, max_attempts=3))
    async def by_keyword(n: int, *, ctx: Context = CONTEXT) -> list[Any]:
        return [ctx.job_id, ctx.attempt, ctx.max_attempts, ctx.tenant, ctx.queue, ctx.priority, ctx.last_attempt]

    @hf.task(queue="mail")
    async def first(ctx: Context, n: int) -> str:
        return ctx.job_id

    async with working(hf, queues="mail"):
        job = await by_keyword.using(tenant="acme").aenqueue(1)
        assert (await ended(hf, job.id)).result == [job.id, 1, 3, "acme", "mail", 1, False]
        job = await first.aenqueue(1)
        assert (await ended(hf, job.id)).result == job.id


@pytest.mark.parametrize(
    ("raised", "status", "attempts"),
    [
        (Fail("no", code="BAD_INPUT"), Status.FAILED, 1),
        (Dead("captcha", code="BLOCKED"), Status.DEAD, 1),
        (Cancel("not wanted"), Status.CANCELED, 1),
    ],
)
async def test_a_handler_may_choose_the_final_status(
    hf: Holdfast, raised: Exception, status: Status, attempts: int
) -> None:
    @hf.task()
    async def choose() -> None:
        raise raised

    async with working(hf):
        info = await ended(hf, (await choose.aenqueue()).id)
    assert (info.status, info.attempts) == (status, attempts)
    assert info.last_error is not None and info.last_error["message"] == str(raised)


async def test_an_error_is_retried_by_policy_and_the_job_dies_when_attempts_are_used_up(hf: Holdfast) -> None:
    runs: list[int] = []

    @hf.task(retry=Retry.fixed(0.02, max_attempts=3))
    async def broken(*, ctx: Context = CONTEXT) -> None:
        runs.append(ctx.attempt)
        raise ValueError(f"attempt {ctx.attempt}")

    async with working(hf):
        info = await ended(hf, (await broken.aenqueue()).id)
    assert runs == [1, 2, 3]
    assert (info.status, info.attempts) == (Status.DEAD, 3)
    assert info.last_error is not None
    assert info.last_error["type"] == "ValueError"
    assert "test_worker.py" in info.last_error["traceback"]


async def test_a_traceback_begins_with_the_handler_unless_the_worker_raised(hf: Holdfast) -> None:
    @hf.task(retry=Retry.none())
    def in_thread(*, ctx: Context = CONTEXT) -> None:
        raise ValueError(ctx.id)

    @hf.task(retry=Retry.none(), timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with working(hf):
        own, ours = [(await ended(hf, (await each.aenqueue()).id)).last_error for each in (in_thread, slow)]
    assert own and ours
    assert own["traceback"].splitlines()[1].endswith(", in in_thread")
    assert "execute.py" in ours["traceback"]


async def test_retry_later_overrides_the_delay_and_counts_the_attempt(hf: Holdfast) -> None:
    @hf.task(retry=Retry.fixed(1))
    async def throttled() -> None:
        raise RetryLater(90, code="HTTP_429")

    async with working(hf):
        info = await waiting(hf, (await throttled.aenqueue()).id)
    assert (info.status, info.attempts) == (Status.RETRYING, 1)
    assert timedelta(seconds=80) < info.run_at - datetime.now(UTC) <= timedelta(seconds=91)


async def test_snooze_does_not_count_the_attempt(hf: Holdfast) -> None:
    @hf.task()
    async def not_yet() -> None:
        raise Snooze(60)

    async with working(hf):
        info = await waiting(hf, (await not_yet.aenqueue()).id)
    assert info.attempts == 0
    assert info.run_at > datetime.now(UTC) + timedelta(seconds=50)


async def test_an_unknown_task_waits_for_a_worker_that_knows_it_and_loses_no_attempt(hf: Holdfast, dsn: str) -> None:
    other = Holdfast(dsn)

    @other.task(name="reports.build")
    async def build() -> str:
        return "built"

    @hf.task(name="reports.bild")
    async def misspelt() -> None: ...

    async with working(hf):
        job = await build.aenqueue()
        info = await waiting(hf, job.id)
    assert (info.status, info.attempts) == (Status.RETRYING, 0)
    assert info.last_error is not None
    assert "no task named 'reports.build'" in info.last_error["message"]
    assert "did you mean 'reports.bild'" in info.last_error["message"]
    await other.aclose()


async def test_a_payload_that_no_longer_fits_the_handler_fails_at_once(hf: Holdfast, sql: Any) -> None:
    @hf.task(name="changed")
    async def changed(amount: int) -> None: ...

    job_id = str(sql("""select id from enqueue('changed', '{"amount": "three"}')""")[0][0])
    async with working(hf):
        info = await ended(hf, job_id)
    assert info.status is Status.FAILED
    assert info.last_error is not None and "Expected `int`, got `str`" in info.last_error["message"]


async def test_a_handler_that_runs_too_long_is_canceled_and_says_so(hf: Holdfast) -> None:
    canceled: list[bool] = []

    @hf.task(timeout=0.05, retry=Retry.none())
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            canceled.append(True)

    async with working(hf):
        info = await ended(hf, (await endless.aenqueue()).id)
    assert canceled == [True]
    assert info.status is Status.DEAD
    assert info.last_error is not None and info.last_error["code"] == "TIMEOUT"


@pytest.mark.parametrize("leak", [SystemExit(3), asyncio.CancelledError("mine"), KeyError("x\x00\ud800" * 10_000)])
async def test_no_exception_of_a_handler_harms_the_worker_or_its_neighbours(hf: Holdfast, leak: BaseException) -> None:
    @hf.task(retry=Retry.none())
    async def leaky() -> None:
        raise leak

    @hf.task()
    async def healthy(n: int) -> None: ...

    async with working(hf, concurrency=2):
        bad = await leaky.aenqueue()
        good = (await healthy.aenqueue_many(range(20))).ids
        assert (await ended(hf, bad.id)).status is Status.DEAD
        assert {(await ended(hf, each)).status for each in good} == {Status.SUCCEEDED}


async def test_a_result_that_cannot_be_stored_fails_the_job_and_is_not_tried_again(hf: Holdfast) -> None:
    @hf.task()
    async def odd() -> object:
        return object()

    async with working(hf):
        info = await ended(hf, (await odd.aenqueue()).id)
    assert (info.status, info.attempts) == (Status.FAILED, 1)
    assert info.last_error is not None and "cannot be encoded as JSON" in info.last_error["message"]


async def test_a_lost_lease_cancels_the_handler_and_its_result_is_void(hf: Holdfast, sql: Any) -> None:
    canceled = asyncio.Event()
    started = asyncio.Event()

    @hf.task(retry=Retry.fixed(60))
    async def long(*, ctx: Context = CONTEXT) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled.set()
            raise

    async with working(hf, lease=2.0, renew=0.05, upkeep=60.0) as worker:
        job = await long.aenqueue()
        await started.wait()
        sql("update claims set expires_at = now() - interval '1 second'")
        async with asyncio.timeout(40):
            await canceled.wait()
        await until(lambda: worker.finisher.stale == 1 or not worker.buffer.running)
    info = await hf.jobs.aget(job.id)
    assert info is not None and info.attempts == 1


async def test_a_worker_registers_itself_and_leaves_nothing_behind(hf: Holdfast, sql: Any) -> None:
    @hf.task(retry=Retry.fixed(7, max_attempts=4), queue="mail")
    async def quick() -> None: ...

    async with working(hf, queues="mail", concurrency=3, worker_name="blue") as worker:
        await until(lambda: sql("select 1 from sleepers"))
        assert sql("select id, queues, concurrency, tasks from workers") == [(worker.id, ["mail"], 3, [quick.name])]
        assert worker.id.startswith("blue-")
        assert Worker(hf).id.startswith("worker-")
        assert sql("select max_attempts, retry ->> 'delay' from tasks") == [(4, "7.0")]
    assert sql("select count(*) from workers") == [(0,)]
    assert sql("select count(*) from sleepers") == [(0,)]
    assert sql("select count(*) from claims") == [(0,)]


async def test_an_outcome_the_database_refuses_holds_up_no_other(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    # describe() lets nothing through that is refused, so the cleaning is removed to show the effect.
    monkeypatch.setattr("holdfast.worker.execute.describe", lambda error, longest: {"type": "X", "message": "\x00"})

    @hf.task(retry=Retry.none())
    async def poisonous() -> None:
        raise ValueError

    @hf.task()
    async def healthy(n: int) -> str:
        return "fine"

    bad = await poisonous.aenqueue()
    good = (await healthy.aenqueue_many(range(20))).ids
    async with working(hf):
        info = await ended(hf, bad.id)
        assert {(await ended(hf, each)).status for each in good} == {Status.SUCCEEDED}
    assert info.status is Status.FAILED
    assert info.last_error is not None and info.last_error["type"] == "UnstorableOutcome"


async def test_a_handler_in_a_thread_keeps_its_job_when_the_worker_stops_and_the_process_goes_on(
    hf: Holdfast, sql: Any
) -> None:
    entered, let_go = threading.Event(), threading.Event()

    @hf.task()
    def block() -> None:
        entered.set()
        let_go.wait(40)

    job = await block.aenqueue()
    async with working(hf, grace=0.05):
        await asyncio.to_thread(entered.wait, 40)
    info = await hf.jobs.aget(job.id)
    let_go.set()
    assert info is not None and info.status is Status.RUNNING, "no other worker may start it while the thread runs"


async def test_a_worker_stopped_while_it_waits_for_its_database_ends_quietly() -> None:
    worker = Worker(Holdfast("postgresql://nobody@127.0.0.1:1/none"))
    running = asyncio.create_task(worker.run())
    worker.stop()
    async with asyncio.timeout(40):
        await running


async def test_a_handler_that_swallows_its_cancellation_does_not_keep_the_worker_alive(hf: Holdfast) -> None:
    started = asyncio.Event()
    let_go = asyncio.Event()

    @hf.task()
    async def stubborn() -> None:
        started.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    await stubborn.aenqueue()
    async with asyncio.timeout(40):
        async with working(hf, grace=0.05):
            await started.wait()
    let_go.set()
    await asyncio.sleep(0)


async def test_no_slot_dies_whatever_a_handler_raises_or_swallows(hf: Holdfast) -> None:
    class Strange(BaseException):
        @property
        def code(self) -> str:
            raise RuntimeError("broken")

    @hf.task(retry=Retry.none())
    async def strange() -> None:
        raise Strange

    @hf.task()
    async def healthy(n: int) -> None: ...

    bad = [await strange.aenqueue() for _ in range(4)]
    async with working(hf, concurrency=2):
        assert {(await ended(hf, each.id)).status for each in bad} == {Status.DEAD}
        good = (await healthy.aenqueue_many(range(5))).ids
        assert {(await ended(hf, each)).status for each in good} == {Status.SUCCEEDED}


async def test_hung_threads_do_not_time_out_jobs_that_never_ran(hf: Holdfast) -> None:
    let_go = threading.Event()
    ran: list[int] = []

    @hf.task(timeout=0.05, retry=Retry.none())
    def hangs() -> None:
        let_go.wait(40)

    @hf.task(timeout=5, retry=Retry.none())
    def quick(n: int) -> None:
        ran.append(n)

    async with working(hf, concurrency=2):
        hung = await hangs.aenqueue()
        info = await ended(hf, hung.id)
        good = (await quick.aenqueue_many(range(5))).ids
        assert {(await ended(hf, each)).status for each in good} == {Status.SUCCEEDED}
        let_go.set()
    assert info.status is Status.DEAD
    assert info.last_error is not None and "runs on" in info.last_error["message"]
    assert sorted(ran) == [0, 1, 2, 3, 4]


async def test_an_outcome_that_cannot_be_written_ends_that_job_and_no_worker(hf: Holdfast) -> None:
    class Odd(float):
        """As a number of numpy's: a float to Python, nothing known to JSON."""

    @hf.task()
    async def later() -> None:
        raise RetryLater(Odd(60))

    @hf.task()
    async def healthy(n: int) -> None: ...

    async with working(hf):
        job = await later.aenqueue()
        good = (await healthy.aenqueue_many(range(5))).ids
        assert {(await ended(hf, each)).status for each in good} == {Status.SUCCEEDED}
        assert (await waiting(hf, job.id)).status is Status.RETRYING


async def test_plain_successes_that_are_refused_are_sent_one_by_one_and_never_become_failures(
    hf: Holdfast, sql: Any
) -> None:
    @hf.task()
    async def healthy(n: int) -> None: ...

    good = (await healthy.aenqueue_many(range(9))).ids
    bad = await healthy.aenqueue(-1)
    sql("alter table history add constraint refuses check ((payload ->> 'n')::int >= 0)")
    try:
        async with working(hf, lease=2.0, renew=0.2) as worker:
            assert {(await ended(hf, each)).status for each in good} == {Status.SUCCEEDED}
            expires = "select expires_at from claims where %s::uuid = any (ids)"
            before = sql(expires, [bad.id])
            assert before, "its claim is closed, and no worker renews it"
            await until(lambda: sql(expires, [bad.id]) > before)
            waits = await hf.jobs.aget(bad.id)
            assert waits is not None and waits.status is Status.RUNNING
            sql("alter table history drop constraint refuses")
            info = await ended(hf, bad.id)
            await until(lambda: not worker.buffer.leases)
    finally:
        sql("alter table history drop constraint if exists refuses")
    assert (info.status, info.attempts, info.last_error) == (Status.SUCCEEDED, 1, None)
    assert sql("select count(*) from claims") == [(0,)]


class Blocked(Exception):
    code = "HTTP_403"


class Missing(LookupError):
    code = "SNAPSHOT_NOT_READY"


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (Blocked(), Status.DEAD),
        (Missing(), Status.FAILED),
        (KeyError("x"), Status.FAILED),
        (ConnectionError(), Status.RETRYING),
        (RuntimeError("not named"), Status.FAILED),
    ],
)
async def test_a_policy_distinguishes_errors_by_type_and_by_code(
    hf: Holdfast, raised: Exception, status: Status
) -> None:
    policy = Retry.fixed(60).on(retry=[OSError], fail=["SNAPSHOT_NOT_READY", LookupError], dead=["HTTP_403"])

    @hf.task(retry=policy)
    async def fetch() -> None:
        raise raised

    async with working(hf):
        info = await waiting(hf, (await fetch.aenqueue()).id)
    assert (info.status, info.attempts) == (status, 1)


async def test_a_handle_waits_for_the_result_or_says_why_there_is_none(hf: Holdfast) -> None:
    @hf.task()
    async def double(n: int) -> int:
        if n < 0:
            raise Fail("no negatives", code="NEGATIVE")
        return 2 * n

    async with working(hf):
        good, bad = await double.aenqueue(21), await double.aenqueue(-1)
        assert await good.aresult(timeout=40) == 42
        assert await asyncio.to_thread(good.result, 10) == 42
        with pytest.raises(JobFailed, match=r"is failed: .*no negatives"):
            await bad.aresult(timeout=40)
    late = await double.using(delay=60).aenqueue(1)
    with pytest.raises(TimeoutError, match="has not ended within"):
        await late.aresult(timeout=0.05)
    assert await good.aresult(timeout=0) == good.result(timeout=0) == 42, "it has ended: nothing to wait for"


async def test_a_worker_is_known_to_its_supervisor_before_the_database_knows_it(hf: Holdfast, sql: Any) -> None:
    events: list[tuple[str, int]] = []

    class Supervisor:
        def enter(self, worker: str, settings: Settings) -> None:
            events.append(("enter", sql("SELECT count(*) FROM workers")[0][0]))

        def watch(self, loop_timeout: float) -> None:
            events.append(("watch", sql("SELECT count(*) FROM workers")[0][0]))

        def beat(self) -> None: ...

        def leave(self, holds: bool, *, by_operator: bool) -> None:
            events.append(("leave", holds))

    await Worker(hf).run(until_idle=True, supervisor=cast("Lifeline", Supervisor()))
    assert events == [("enter", 0), ("watch", 1), ("leave", False)]
