"""Workers that die, freeze or lose their database: nothing is lost, nothing is accepted twice."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import Holdfast, Retry, Status
from tests.conftest import wait_until
from tests.support.workers import worker

Sql = Callable[..., list[tuple[Any, ...]]]
QUICK = {"lease": 2.0, "renew": 0.3, "upkeep": 0.2, "poll": 0.1}


def tasks(hf: Holdfast) -> dict[str, Any]:
    """Return the client's side of tests/support/apps/recorder.py."""

    async def record(n: int) -> None: ...
    async def slow(seconds: float) -> None: ...
    async def slow_at_first(seconds: float) -> None: ...
    def in_thread(seconds: float) -> None: ...
    async def poison() -> None: ...

    quick = Retry.fixed(0.1, max_attempts=5)
    return {
        "record": hf.task(name="record", retry=quick)(record),
        "slow": hf.task(name="slow", retry=quick)(slow),
        "slow_at_first": hf.task(name="slow_at_first", retry=quick)(slow_at_first),
        "in_thread": hf.task(name="in_thread", retry=quick)(in_thread),
        "poison": hf.task(name="poison", retry=Retry.fixed(0.05, max_attempts=3))(poison),
    }


def finals(sql: Sql) -> Counter[str]:
    return Counter(dict(sql("select status::text, count(*) from jobs group by 1")))


def test_two_workers_run_a_thousand_jobs_once_each(hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path) -> None:
    with worker(dsn, tmp_path, concurrency=5) as one, worker(dsn, tmp_path, concurrency=5) as two:
        wait_until(lambda: sql("select count(distinct worker) from sleepers") == [(2,)])
        ids = tasks(hf)["slow"].enqueue_many([0.005] * 1000).ids
        wait_until(lambda: finals(sql)["succeeded"] == 1000)
        assert one.stop() == 0
        assert two.stop() == 0
    assert Counter(note[1] for note in one.notes()) == Counter(ids)
    assert len({note[3] for note in one.notes()}) == 2, "both workers took part"
    assert sql("select count(distinct locked_by), min(attempts), max(attempts) from jobs") == [(2, 1, 1)]


def test_a_killed_workers_job_is_reclaimed_with_its_attempt_counted(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path
) -> None:
    job = tasks(hf)["slow_at_first"].enqueue(60)
    with worker(dsn, tmp_path, **QUICK) as first:
        wait_until(lambda: first.notes("slow"))
        first.kill()
    prior = sql("select locked_by, attempts from jobs where id = %s", [job.id])[0]
    assert prior[1] == 1
    with worker(dsn, tmp_path, **QUICK) as second:
        done = wait_until(lambda: (info := job.info()) and info.status is Status.SUCCEEDED and info)
        assert prior[0] in second.log.read_text(), "the log names the worker that lost the lease"
    assert done.attempts == 2
    assert done.locked_by != prior[0]


def test_a_frozen_workers_late_finish_is_refused(hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path) -> None:
    job = tasks(hf)["slow_at_first"].enqueue(3)
    with worker(dsn, tmp_path, **QUICK) as zombie:
        wait_until(lambda: zombie.notes("slow"))
        begun = time.monotonic()
        zombie.signal(signal.SIGSTOP)
        with worker(dsn, tmp_path, **QUICK) as other:
            done = wait_until(lambda: (info := job.info()) and info.status is Status.SUCCEEDED and info)
            wait_until(lambda: time.monotonic() > begun + 3)  # it wakes up with its handler's work done
            zombie.signal(signal.SIGCONT)
            wait_until(lambda: "leases lost" in zombie.log.read_text() or "stale" in zombie.log.read_text())
            assert other.stop() == 0
        assert zombie.stop() == 0
    after = job.info()
    assert after == done, "the zombie changed nothing"
    assert after.attempts == 2
    assert finals(sql) == {"succeeded": 1}


def test_a_job_that_kills_its_worker_dies_after_max_attempts_and_no_other_job_does(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path
) -> None:
    mine = tasks(hf)
    poison = mine["poison"].enqueue()
    others = mine["record"].enqueue_many(range(20)).ids
    for _ in range(12):
        with worker(dsn, tmp_path, concurrency=4, **QUICK) as process:
            wait_until(lambda p=process: p.popen.poll() is not None or finals(sql)["dead"])
        if finals(sql)["dead"]:
            break
    with worker(dsn, tmp_path, **QUICK):
        wait_until(lambda: finals(sql)["succeeded"] == len(others))
    info = poison.info()
    assert (info.status, info.attempts) == (Status.DEAD, 3)
    assert info.last_error["type"] == "LeaseLost"
    assert len(process.notes("poison")) == 3


def test_sigterm_lets_running_jobs_finish_and_gives_back_the_rest(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path
) -> None:
    ids = tasks(hf)["slow"].enqueue_many([3] * 6).ids  # long enough for the signal to come while two of them run
    with worker(dsn, tmp_path, concurrency=2, prefetch=0, poll=0.1) as process:
        wait_until(lambda: len(process.notes("slow")) == 2)
        assert process.stop() == 0
    assert finals(sql) == {"succeeded": 2, "queued": 4}
    assert sql("select count(*) from live where attempt > 0 or token is not null") == [(0,)]
    assert sql("select count(*) from claims") == [(0,)]
    assert len(ids) == 6


def test_after_the_grace_time_running_jobs_are_canceled_and_their_attempts_refunded(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path
) -> None:
    job = tasks(hf)["slow"].enqueue(60)
    with worker(dsn, tmp_path, grace=0.2) as process:
        wait_until(lambda: process.notes("slow"))
        assert process.stop() == 0
        assert process.notes("canceled")
    info = job.info()
    assert (info.status, info.attempts) == (Status.QUEUED, 0)


def test_a_second_sigterm_stops_at_once(hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path) -> None:
    job = tasks(hf)["slow"].enqueue(60)
    with worker(dsn, tmp_path, grace=60) as process:
        wait_until(lambda: process.notes("slow"))
        process.signal(signal.SIGTERM)
        wait_until(lambda: "worker stopping" in process.log.read_text())
        assert process.stop() == 0
    assert job.info().status is Status.QUEUED
