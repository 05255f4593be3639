"""What a worker claims and when: woken, on time, in order, as much as it can start, and quiet when idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Status
from holdfast.store.wire.session import Session, ThreadSession
from holdfast.store.workers import WorkerCalls
from holdfast.worker import Worker
from holdfast.worker.sleeper import SHORT_WAITS, Sleeper
from holdfast.worker.wakeup import Wakeup
from tests.conftest import PATIENCE
from tests.support.running import ended, until, working


async def test_an_idle_worker_starts_a_new_job_within_milliseconds(hf: Holdfast, sql: Any) -> None:
    @hf.task()
    async def stamp(sent: float) -> float:
        return time.time() - sent

    async with working(hf, poll=30.0):
        await until(lambda: sql("select 1 from sleepers"))
        delays = [(await ended(hf, (await stamp.aenqueue(time.time())).id)).result for _ in range(10)]
    # Far below the poll interval: they were woken. The bench measures how far.
    assert sorted(delays)[7] < 10, delays


async def test_without_notify_polling_finds_the_job(hf: Holdfast) -> None:
    @hf.task()
    async def quick() -> None: ...

    async with working(hf, notify=False, poll=0.05):
        assert (await ended(hf, (await quick.aenqueue()).id)).status is Status.SUCCEEDED


async def test_a_delayed_job_starts_on_time_even_when_it_was_enqueued_while_the_worker_slept(
    hf: Holdfast, sql: Any
) -> None:
    @hf.task()
    async def quick() -> None: ...

    async with working(hf, poll=30.0, upkeep=30.0):
        await until(lambda: sql("select 1 from sleepers"))
        info = await ended(hf, (await quick.using(delay=0.4).aenqueue()).id)
    assert info.started_at is not None
    assert timedelta(0) <= info.started_at - info.run_at < timedelta(seconds=10), "far below the intervals"


async def test_a_worker_that_begins_to_listen_looks_for_jobs_it_got_no_notification_of(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is among the sleepers before it listens, and meanwhile notifications reach no worker."""
    may_listen, sleeps = asyncio.Event(), asyncio.Event()
    listen, pause = Session.listen, Wakeup.pause

    async def late(self: Session, channel: str) -> AsyncIterator[str]:
        await may_listen.wait()
        async for payload in listen(self, channel):
            yield payload

    async def noted(self: Wakeup, seconds: float) -> bool:
        if seconds > 20:
            sleeps.set()
        return await pause(self, seconds)

    monkeypatch.setattr(Session, "listen", late)
    monkeypatch.setattr(Wakeup, "pause", noted)

    @hf.task()
    async def quick() -> None: ...

    async with working(hf, poll=30.0, upkeep=30.0):
        await asyncio.wait_for(sleeps.wait(), PATIENCE)
        job = await quick.aenqueue()
        may_listen.set()
        began = time.monotonic()
        await ended(hf, job.id)
        assert time.monotonic() - began < 10, "far below the interval"


async def test_a_worker_that_falls_asleep_asks_again_when_the_next_delayed_job_is_due(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An enqueue that began before it was among the sleepers notifies no one. When that commits, a first look does not
    find a job that is not due yet."""
    learned: list[float | None] = []
    learn = Sleeper.learn

    def noted(self: Sleeper, due: float | None) -> None:
        learned.append(due)
        learn(self, due)

    monkeypatch.setattr(Sleeper, "learn", noted)
    async with working(hf, poll=60.0, upkeep=60.0):
        await until(
            lambda: len(learned) >= 2 + len(SHORT_WAITS)
        )  # before and after it is among the sleepers, then each look


async def test_a_job_that_ends_a_sleep_takes_no_further_look_at_delayed_jobs(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim also says when the next delayed job is due, so the worker sleeps on without a call."""
    calls: list[str] = []
    ask = WorkerCalls.sleep

    def noted(self: WorkerCalls, worker: str, queues: list[str], *, listens: bool) -> Any:
        calls.append(worker)
        return ask(self, worker, queues, listens=listens)

    monkeypatch.setattr(WorkerCalls, "sleep", noted)
    starts: list[int] = []

    @hf.task()
    async def note(n: int) -> None:
        starts.append(n)

    async with working(hf, poll=60.0, upkeep=60.0) as worker:
        await until(lambda: worker.claimer.intake.counts.claims >= 2 + len(SHORT_WAITS))
        for n in range(3):
            job = await note.aenqueue(n)
            await ended(hf, job.id)  # by then the worker sleeps again, so that no wake-up comes after its job
    assert len(calls) == 1 and len(starts) == 3


async def test_jobs_start_in_the_order_of_priority_then_time(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.task()
    async def note(name: str) -> None:
        order.append(name)

    for name, priority in [("low", 3), ("normal 1", 2), ("critical", 0), ("normal 2", 2), ("high", 1)]:
        await note.using(priority=priority).aenqueue(name)
    async with working(hf, concurrency=1):
        await until(lambda: len(order) == 5)
    assert order == ["critical", "high", "normal 1", "normal 2", "low"]


async def test_a_worker_serves_only_its_queues(hf: Holdfast) -> None:
    @hf.task(queue="mail")
    async def mail() -> None: ...

    @hf.task(queue="reports")
    async def report() -> None: ...

    theirs, mine = await report.aenqueue(), await mail.aenqueue()
    async with working(hf, queues="mail,other"):
        await ended(hf, mine.id)
    info = await hf.jobs.aget(theirs.id)
    assert info is not None and info.status is Status.QUEUED


async def test_slow_jobs_are_not_hoarded(hf: Holdfast, sql: Any) -> None:
    let_go = asyncio.Event()

    @hf.task()
    async def slow(n: int) -> None:
        await let_go.wait()

    await slow.aenqueue_many(range(100))
    async with working(hf, concurrency=5):
        await until(lambda: sql("select count(*) from live where token is not null") == [(5,)])
        let_go.set()
        await until(lambda: sql("select count(*) from history") == [(100,)])


async def test_jobs_claimed_ahead_that_cannot_start_are_released(hf: Holdfast, sql: Any) -> None:
    let_go = asyncio.Event()

    @hf.task()
    async def stuck(n: int) -> None:
        if n >= 3000:
            await let_go.wait()

    await stuck.aenqueue_many(range(6000))
    async with working(hf, concurrency=5):
        await until(lambda: sql("select count(*) from live where token is not null") == [(5,)])
        assert sql("select max(attempt) from live where token is null") == [(0,)]
        let_go.set()
        await until(lambda: sql("select count(*), max(attempt) from history") == [(6000, 1)])


async def test_stragglers_behind_the_cursor_are_found_while_the_queue_is_busy(hf: Holdfast, sql: Any) -> None:
    @hf.task()
    async def quick(n: int) -> None:
        await asyncio.sleep(0.001)

    async with working(hf, concurrency=10):
        await quick.aenqueue_many(range(2000))
        given = [quick.name, '{"n": -1}']
        late = str(sql("select id from enqueue(%s, %s, p_run_at => now() - interval '1 hour')", given)[0][0])
        assert (await ended(hf, late)).status is Status.SUCCEEDED


async def test_an_idle_worker_makes_at_most_two_queries_a_second(
    hf: Holdfast, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    run, run_in_thread = Session.run, ThreadSession.run
    monkeypatch.setattr(Session, "run", lambda self, call: made.append(call.sql) or run(self, call))
    monkeypatch.setattr(ThreadSession, "run", lambda self, call: made.append(call.sql) or run_in_thread(self, call))
    worker = Worker(hf)  # the default settings
    running = asyncio.create_task(worker.run())
    await until(lambda: sql("select 1 from sleepers") and any("prune" in call for call in made))
    for _ in range(4):  # what is left of the start, or a slow machine, may fall into one window but not into each
        made.clear()
        began = time.monotonic()
        await asyncio.sleep(4)  # the one thing that only time can show
        count, seconds = len(made), time.monotonic() - began
        if 2 <= count <= 2 * seconds:
            break
    worker.stop()
    await running
    assert 2 <= count <= 2 * seconds, made


async def test_a_worker_with_one_slot_does_not_wait_between_jobs(hf: Holdfast) -> None:
    @hf.task()
    async def each(n: int) -> None: ...

    each.enqueue_many(range(30))
    async with working(hf, concurrency=1, prefetch=0, poll=5) as worker:  # to wait 30 times would take 150 s
        await until(lambda: worker.finisher.succeeded == 30)


async def test_a_worker_of_plain_queues_sleeps_while_changed_rules_wait_for_other_queues(
    hf: Holdfast, sql: Any
) -> None:
    """Only a claim that has lanes checks closed ones again; other claims would find nothing until one has."""
    sql("insert into reopenings values ('')")
    assert sql("select sleep('w', '{default}')") == [(None,)]
    sql("select enqueue('t', p_keys => '{k}')")
    sql("select claim('w')")
    sql("insert into reopenings values ('')")
    assert sql("select sleep('w', '{default}') <= 0") == [(True,)]
    assert sql("select sleep('w', '{other}')") == [(None,)]
