"""The ends of jobs that others wait for: old snapshots, locks, and people who retry jobs meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.conftest import wait_until
from tests.support import pace
from tests.support import sql_core as core
from tests.support.sql_core import Sql
from tests.support.sql_steps import UNDO, child, park, read, signal, started, store


@contextmanager
def old_snapshot(dsn: str) -> Iterator[psycopg.Connection]:
    """Open a repeatable-read transaction, which sees nothing that is committed from now on."""
    with core.session(dsn, autocommit=False) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select count(*) from live")
        yield conn


def upkeep(sql: Sql) -> None:
    sql("select upkeep('w', '10 s')")


def test_a_signal_with_an_old_snapshot_is_refused(dsn: str, sql: Sql) -> None:
    job = started(sql)
    with old_snapshot(dsn) as caller:
        park(sql, job, "signal", "paid")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot give a signal in a repeatable read"):
            signal(core.runner(caller), "paid", 1)
    assert signal(sql, "paid", 1)
    assert read(sql, core.claim_one(sql)) == {"paid": 1}


def test_a_child_that_an_old_snapshot_cancels_resumes_its_parent(dsn: str, sql: Sql) -> None:
    job = started(sql)
    child(sql, job)
    ((its_id,),) = sql("select ref from steps")
    with old_snapshot(dsn) as caller:
        park(sql, job, "call", "child")
        assert core.cancel(core.runner(caller), its_id) == ["canceled"]
        caller.commit()
    upkeep(sql)
    assert read(sql, core.claim_one(sql))["child"]["status"] == "canceled"


@pytest.mark.parametrize("early", [0, 1])
def test_a_job_that_an_old_snapshot_cancels_ends_those_that_follow_it(dsn: str, sql: Sql, early: int) -> None:
    first = core.put(sql)
    for _ in range(early):
        core.put(sql, after=[first])
    with old_snapshot(dsn) as caller:
        then = core.put(sql, after=[first])
        try:
            core.cancel(core.runner(caller), first)
            caller.commit()
        except psycopg.errors.SerializationFailure:  # to be repeated, as in every such transaction
            core.cancel(sql, first)
    upkeep(sql)
    assert core.status(sql, then) == "canceled"
    assert core.count(sql, "follows") == core.count(sql, "endings") == 0


def test_a_job_that_follows_two_starts_though_one_ends_with_an_old_snapshot(dsn: str, sql: Sql) -> None:
    first, second = core.put(sql, queue="first"), core.put(sql, queue="second")
    then = core.put(sql, after=[first, second])
    one, other = core.claim_one(sql, queues=["first"]), core.claim_one(sql, queues=["second"])
    with old_snapshot(dsn) as caller:
        core.finish(sql, one)
        core.finish(core.runner(caller), other)
        caller.commit()
    upkeep(sql)
    assert core.claim_one(sql).id == then
    assert core.count(sql, "follows") == core.count(sql, "endings") == 0


LOCKED = 400  # the ends of so many jobs wait for one transaction


def locked_followers(sql: Sql) -> tuple[list[Any], list[core.Claimed]]:
    """Return the followers of many running jobs, and these jobs."""
    jobs: list[dict[str, Any]] = [{"task": "t", "queue": "first"}] * LOCKED
    first = core.firsts(sql("select id from enqueue_many(%s::jsonb)", [json.dumps(jobs)]))
    jobs = [{"task": "t", "queue": "then", "after": [str(id_)]} for id_ in first]
    then = core.firsts(sql("select id from enqueue_many(%s::jsonb)", [json.dumps(jobs)]))
    return then, core.claim(sql, limit=LOCKED, queues=["first"])


def test_an_open_transaction_that_holds_followers_holds_up_neither_finish_nor_upkeep(dsn: str, sql: Sql) -> None:
    then, running = locked_followers(sql)
    core.put(sql, queue="lost", retry={"kind": "fixed", "delay": 60})
    (lost,) = core.claim(sql, "lost", queues=["lost"])
    sql("update claims set expires_at = '2000-01-01' where token = %s", [lost.token])
    with core.session(dsn, autocommit=False) as other:
        core.cancel(core.runner(other), *then)
        began = time.monotonic()
        core.finish(sql, *running)
        assert time.monotonic() - began < 2.0 * pace.slower(), "it gives up what it would wait for"
        began = time.monotonic()
        upkeep(sql)
        assert time.monotonic() - began < 4.0 * pace.slower(), "so does the leader"
        assert core.status(sql, lost.id) == "retrying"
        other.rollback()
    upkeep(sql)
    assert {job.id for job in core.claim(sql, limit=LOCKED, queues=["then"])} == set(then)
    assert core.count(sql, "endings") == 0


def test_expired_leases_share_the_wait_for_locked_followers(dsn: str, sql: Sql) -> None:
    """Each claim is settled on its own, in one transaction."""
    claims = 12
    first = [core.put(sql, queue="first", max_attempts=1) for _ in range(claims)]
    then = [core.put(sql, queue="then", after=[id_], on_failure="run") for id_ in first]
    for _ in first:
        core.claim_one(sql, queues=["first"])
    with core.session(dsn, autocommit=False) as other:
        core.cancel(core.runner(other), *then)
        core.expire(sql)
        began = time.monotonic()
        assert len(core.reclaim(sql)) == claims
        assert time.monotonic() - began < 0.8 * pace.slower()
        other.rollback()
    upkeep(sql)
    assert {job.id for job in core.claim(sql, limit=claims, queues=["then"])} == set(then)


def test_ends_behind_many_locked_ones_are_processed(dsn: str, sql: Sql) -> None:
    then, running = locked_followers(sql)
    with core.session(dsn, autocommit=False) as other, core.session(dsn, autocommit=False) as short:
        core.cancel(core.runner(other), *then)
        core.finish(sql, *running)
        last = core.put(sql, queue="last")
        free = core.put(sql, after=[last])
        short.execute("select 1 from holdfast.later where id = %s for update", [free])
        core.finish(sql, core.claim_one(sql, queues=["last"]))
        assert core.claim(sql) == []
        short.rollback()
        upkeep(sql)
        assert core.claim_one(sql).id == free
        other.rollback()


def test_an_undo_that_cannot_be_enqueued_does_not_hold_up_those_that_follow(sql: Sql) -> None:
    job = started(sql)
    for name in "ab":  # the second is to start after the first, and at a time
        store(sql, job, name, undo={**UNDO, "delay": 5})
    then = core.put(sql, after=[job.id], on_failure="run")
    core.fail(sql, job, outcome="failed")
    assert core.claim_one(sql).id == then
    sql("update steps set undo = undo - 'delay'")
    upkeep(sql)
    assert core.count(sql, "endings") == 0
    assert core.claim_one(sql).task == "undo", "the leader tries again"


@pytest.mark.parametrize("end", ["dead", "canceled"])
@pytest.mark.parametrize("by", ["process_endings(false)", "compensate('{}')"])
def test_a_retry_waits_for_an_undo_under_way_and_runs_its_steps_again(dsn: str, sql: Sql, end: str, by: str) -> None:
    job = started(sql)
    store(sql, job, "charge", 1, undo={**UNDO, "queue": "undo"})
    with core.session(dsn, autocommit=False) as other:  # so that the undo is left
        other.execute("select 1 from steps for update")
        core.fail(sql, job, outcome=end)
    with ThreadPoolExecutor(1) as pool, core.session(dsn, autocommit=False) as undoes, core.session(dsn) as person:
        undoes.execute(f"select {by.format(job.id)}")
        again = "select retry_dead(array[%s])" if end == "dead" else "select rerun(%s)"
        late = pool.submit(core.runner(person), again, [job.id])
        wait_until(lambda: sql("select 1 from pg_locks where not granted and pid = %s", [person.info.backend_pid]))
        undoes.commit()
        assert late.result() == [(job.id,)]
    assert core.count(sql, "live where task = 'undo'") == 1
    job = core.claim_one(sql)
    assert read(sql, job) == {}
    assert store(sql, job, "charge", 2) == "stored"


def test_a_parent_waits_for_its_child_that_was_retried_before_its_end_was_processed(dsn: str, sql: Sql) -> None:
    job = started(sql)
    child(sql, job)
    park(sql, job, "call", "child")
    with core.session(dsn, autocommit=False) as other:
        other.execute("select 1 from later where id = %s for update", [job.id])
        core.fail(sql, its_job := core.claim_one(sql, queues=["children"]), outcome="dead")
    core.retry_dead(sql, its_job.id)
    upkeep(sql)
    assert core.status(sql, job.id) == "waiting"
    core.finish(sql, core.claim_one(sql, queues=["children"]))
    assert read(sql, core.claim_one(sql))["child"]["status"] == "succeeded"


def test_those_that_follow_a_job_wait_for_it_again_if_it_was_retried_before_its_end_was_processed(
    dsn: str, sql: Sql
) -> None:
    first = core.put(sql, queue="first")
    then = core.put(sql, after=[first])
    with core.session(dsn, autocommit=False) as other:
        other.execute("select 1 from later where id = %s for update", [then])
        core.fail(sql, core.claim_one(sql, queues=["first"]), outcome="dead")
    core.retry_dead(sql, first)
    upkeep(sql)
    assert core.status(sql, then) == "waiting"
    core.finish(sql, core.claim_one(sql, queues=["first"]))
    assert core.claim_one(sql).id == then
