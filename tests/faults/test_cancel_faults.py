"""Cancel while workers are killed or frozen: after "canceling" the job ends, and has no other attempt."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Retry, Status
from tests.conftest import wait_until
from tests.support.workers import fleet, worker

Sql = Callable[..., list[tuple[Any, ...]]]
QUICK = {"lease": 2.0, "renew": 0.3, "upkeep": 0.2, "poll": 0.1, "app": "ledger"}
AGAIN = Retry.fixed(0, max_attempts=1000)


def stub(n: int) -> None: ...


def cancel(sql: Sql, id_: str) -> tuple[str, int]:
    """Return the outcome of cancel and the job's attempt, both as of the commit."""
    sql("begin")
    ((_, outcome),) = sql("select id, outcome from cancel(array[%s::uuid])", [id_])
    ((attempts,),) = sql("select attempts from jobs where id = %s", [id_])
    sql("commit")
    return outcome, attempts


@pytest.mark.timeout(240)
def test_jobs_are_canceled_while_their_workers_are_killed(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path, seeded: random.Random
) -> None:
    ids = [
        *hf.task(name="endless", retry=AGAIN)(stub).enqueue_many(range(30)).ids,
        *hf.task(name="endless_thread", retry=AGAIN)(stub).enqueue_many(range(30)).ids,
    ]
    seeded.shuffle(ids)
    outcomes: dict[str, tuple[str, int]] = {}
    with fleet(dsn, tmp_path, 3, seeded, concurrency=30, **QUICK) as killed:
        wait_until(lambda: sql("select 1 from live where token is not null having count(*) > 40"), 60)
        for id_ in ids:
            outcomes[id_] = cancel(sql, id_)
            time.sleep(seeded.uniform(0, 0.03))
            if len(outcomes) % 10 == 0:
                killed.rage(killed.kills + 1, (0.0, 0.1), lambda: False)
        wait_until(lambda: sql("select count(*) from history") == [(60,)], 60)
    for id_, (outcome, attempts) in outcomes.items():
        ((status, last),) = sql("select status::text, attempts from jobs where id = %s", [id_])
        assert (status, last) == ("canceled", attempts), f"{id_} returned {outcome} at attempt {attempts}"
    assert {outcome for outcome, _ in outcomes.values()} >= {"canceling"}
    assert killed.kills == 6
    assert sql("select count(*) from live") == [(0,)] and sql("select count(*) from cancels") == [(0,)]


@pytest.mark.parametrize("task", ["endless", "endless_thread"])
def test_a_frozen_worker_that_comes_back_after_its_job_was_canceled_changes_nothing(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path, task: str
) -> None:
    job = hf.task(name=task, retry=AGAIN)(stub).enqueue(1)
    with worker(dsn, tmp_path, **QUICK) as zombie:
        wait_until(lambda: zombie.notes(task))
        zombie.signal(signal.SIGSTOP)
        assert hf.jobs.cancel(job.id) == {job.id: "canceling"}
        with worker(dsn, tmp_path, **QUICK) as other:
            done = wait_until(lambda: (info := job.info()) and info.status.final and info)
            zombie.signal(signal.SIGCONT)
            wait_until(lambda: "leases lost" in zombie.log.read_text())
            assert other.stop() == 0
        assert zombie.stop() == 0
    assert (done.status, done.attempts) == (Status.CANCELED, 1)
    assert job.info() == done
    assert len(zombie.notes(task)) == 1, "it was never started again"
    assert hf.jobs.cancel(job.id) == {job.id: "finished"}


def test_a_job_canceled_as_its_worker_stops_is_not_put_back(hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path) -> None:
    """The worker releases what it could not finish, and one of those jobs has been canceled."""
    task = hf.task(name="endless", retry=AGAIN)(stub)
    ids = task.enqueue_many(range(20)).ids
    with worker(dsn, tmp_path, grace=0.5, notify="false", **QUICK) as process:
        wait_until(lambda: len(process.notes("endless")) == 20)
        process.signal(signal.SIGTERM)
        outcomes = {id_: cancel(sql, id_)[0] for id_ in ids[:10]}
        assert process.popen.wait(60) == 0
    assert set(outcomes.values()) <= {"canceling", "canceled"}
    statuses = {str(id_): status for id_, status in sql("select id, status::text from jobs")}
    assert {statuses[id_] for id_ in ids[:10]} == {"canceled"}
    assert {statuses[id_] for id_ in ids[10:]} == {"queued"}
