"""Steps, sleeps, signals, children and undo, by the SQL functions alone."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, assume, example, given, settings

from tests.support import sql_core as core
from tests.support.json_values import values
from tests.support.mutants import mutant
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_core import Claimed, Sql
from tests.support.sql_steps import UNDO, child, park, read, signal, started, store


def test_the_first_result_of_a_step_stays(each_sql: Sql) -> None:
    job = started(each_sql)
    assert store(each_sql, job, "a", 1) == "stored"
    assert store(each_sql, job, "a", 2) == "existing"
    assert store(each_sql, job, "b", {"x": [None]}) == "stored"
    assert read(each_sql, job) == {"a": 1, "b": {"x": [None]}}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(values)
@example({"zebra": 1, "ab": 1e22, "c": -0.0})
def test_a_result_is_read_as_it_was_stored(sql: Sql, value: Any) -> None:
    text = json.dumps(value)
    assume("\\u0000" not in text)
    job = started(sql)
    assert store(sql, job, "a", value) == "stored"
    sql("insert into steps (job, name, kind, started_at, finished_at) values (%s, 'b', 'step', now(), now())", [job.id])
    sql("select store_step_result(%s, %s, 'b', %s)", [job.id, job.token, text])
    rows = sql("select name, result from read_steps(array[%s]::uuid[], array[%s]::bigint[])", [job.id, job.token])
    assert [repr(json.loads(result or "null")) for _, result in rows] == [repr(json.loads(text))] * 2  # order and types
    core.finish(sql, job)


def test_a_stale_worker_stores_and_reads_no_step(each_sql: Sql) -> None:
    stale = started(each_sql)
    core.lose(each_sql)
    job = core.claim_one(each_sql)
    assert store(each_sql, stale, "a", 1) == "lost"
    assert store(each_sql, job, "a", 2) == "stored"
    assert read(each_sql, stale) == {}
    assert read(each_sql, job) == {"a": 2}


def test_a_job_whose_row_is_locked_holds_up_no_other_jobs_step(dsn: str, sql: Sql) -> None:
    core.put(sql)
    core.put(sql)
    held, free = core.claim(sql)
    with core.session(dsn, autocommit=False) as other:
        other.execute("select cancel(array[%s]::uuid[])", [held.id])
        some = [{"id": str(j.id), "token": j.token, "name": "a", "result": 1} for j in (held, free)]
        outcomes = core.firsts(sql("select outcome from store_steps(%s::json) order by place", [json.dumps(some)]))
    assert outcomes == ["locked", "stored"]


def test_a_sleep_spends_no_attempt_and_is_over_in_time(sql: Sql, clock: Clock) -> None:
    job = started(sql, deadline="1 minute")
    assert park(sql, job, "sleep", "cooling", 3600)
    parked = core.look(sql, job.id)
    assert (parked.status, parked.attempts, parked.waits_for) == ("waiting", 0, "sleep cooling")
    assert parked.deadline is None, "its first attempt has started in time"
    clock.advance(3601)
    core.promote(sql)
    job = core.claim_one(sql)
    assert (read(sql, job), job.attempt) == ({"cooling": None}, 1)
    assert park(sql, job, "sleep", "cooling", 3600)
    assert core.status(sql, job.id) == "queued", "a sleep that is over is not slept again"


def test_a_signal_resumes_the_job_that_waits_for_it(each_sql: Sql) -> None:
    job = started(each_sql)
    assert park(each_sql, job, "signal", "approved")
    assert core.status(each_sql, job.id) == "waiting"
    assert core.claim(each_sql) == []
    assert signal(each_sql, "approved", {"by": "ada"})
    assert read(each_sql, core.claim_one(each_sql)) == {"approved": {"by": "ada"}}


def test_a_signal_that_came_first_is_kept_and_its_first_value_stays(each_sql: Sql) -> None:
    assert signal(each_sql, "approved", 1)
    assert not signal(each_sql, "approved", 2)
    job = started(each_sql)
    assert park(each_sql, job, "signal", "approved")
    assert read(each_sql, core.claim_one(each_sql)) == {"approved": 1}


def test_a_signal_is_one_tenants(sql: Sql) -> None:
    job = started(sql, tenant="acme")
    assert park(sql, job, "signal", "approved")
    assert signal(sql, "approved", 1)
    assert signal(sql, "approved", 2, "other")
    assert core.status(sql, job.id) == "waiting"
    assert signal(sql, "approved", 3, "acme")
    assert read(sql, core.claim_one(sql)) == {"approved": 3}


def test_a_wait_that_timed_out_stays_so(sql: Sql, clock: Clock) -> None:
    job = started(sql)
    assert park(sql, job, "signal", "approved", 60)
    clock.advance(61)
    core.promote(sql)
    job = core.claim_one(sql)
    assert read(sql, job) == {"approved": "timed out"}
    assert signal(sql, "approved", 1)
    assert read(sql, job) == {"approved": "timed out"}


def test_signals_end_after_their_time(sql: Sql, clock: Clock) -> None:
    assert signal(sql, "approved", 1)
    clock.advance(31 * 86400)
    sql("select prune()")
    assert core.count(sql, "signals") == 0
    assert signal(sql, "approved", 2)


def signal_beside_park(dsn: str, sql: Sql, schema: str = "holdfast") -> Claimed:
    """Let a job be parked while the signal that it waits for is in an open transaction; return it, claimed again."""
    job = started(sql)
    with core.session(dsn, schema, autocommit=False) as caller:
        assert signal(core.runner(caller), "approved", 1)
        assert not park(sql, job, "signal", "approved"), "it is not parked while the signal is under way"
        caller.commit()
    assert park(sql, job, "signal", "approved")
    return core.claim_one(sql)


def test_no_wake_up_is_lost_when_a_signal_meets_the_park(dsn: str, sql: Sql) -> None:
    assert read(sql, signal_beside_park(dsn, sql)) == {"approved": 1}


def test_the_race_is_lost_without_the_lock(dsn: str) -> None:
    unlocked = {"park": [("not pg_try_advisory_xact_lock_shared(", "null = pg_try_advisory_xact_lock_shared(")]}
    with mutant(dsn, unlocked) as sql, pytest.raises(AssertionError):
        signal_beside_park(dsn, sql, "mutant")


def test_a_signal_waits_for_the_park_that_came_first(dsn: str, sql: Sql) -> None:
    job = started(sql)
    with core.session(dsn, autocommit=False) as worker, core.session(dsn) as caller:
        assert park(core.runner(worker), job, "signal", "approved")
        caller.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            signal(core.runner(caller), "approved", 1)
        worker.commit()
        assert signal(core.runner(caller), "approved", 1)
    assert read(sql, core.claim_one(sql)) == {"approved": 1}


def test_a_parent_waits_for_its_child_and_gets_its_result(each_sql: Sql) -> None:
    job = started(each_sql)
    assert child(each_sql, job) == "started"
    assert child(each_sql, job) == "existing"
    assert park(each_sql, job, "call", "child")
    assert core.look(each_sql, job.id).waits_for == "call child"
    its_job = core.claim_one(each_sql, queues=["children"])
    done = {"id": str(its_job.id), "token": its_job.token, "outcome": "succeeded", "result": 42}
    each_sql("select finish('{}', '{}', %s::jsonb)", [json.dumps([done])])
    assert read(each_sql, core.claim_one(each_sql)) == {"child": {"status": "succeeded", "result": 42, "error": None}}
    assert core.count(each_sql, "endings") == 0


@pytest.mark.parametrize("order", [True, False])
def test_a_parent_and_its_child_that_end_in_one_call_miss_nothing(sql: Sql, order: bool) -> None:
    job = started(sql)
    child(sql, job)
    its_job = core.claim_one(sql, queues=["children"])
    outcomes = [
        {"id": str(job.id), "token": job.token, "outcome": "parked", "wait": {"kind": "call", "name": "child"}},
        {"id": str(its_job.id), "token": its_job.token, "outcome": "failed"},
    ]
    sql("select finish('{}', '{}', %s::jsonb)", [json.dumps(outcomes if order else outcomes[::-1])])
    assert read(sql, core.claim_one(sql))["child"]["status"] == "failed"


def test_a_parent_whose_child_ended_before_is_not_parked(sql: Sql) -> None:
    job = started(sql)
    child(sql, job)
    core.finish(sql, core.claim_one(sql, queues=["children"]))
    assert park(sql, job, "call", "child")
    assert core.status(sql, job.id) == "queued"


def test_a_parent_waits_for_its_batch(each_sql: Sql) -> None:
    job, batch = started(each_sql), uuid.uuid4()
    ((begun,),) = each_sql("select start_batch(%s, %s, 'labels', %s, null, null)", [job.id, job.token, batch])
    assert begun == "started"
    for _ in range(3):
        core.put(each_sql, queue="children", batch=batch)
    each_sql("select close_batch(%s)", [batch])
    assert park(each_sql, job, "batch", "labels")
    one, *others = core.claim(each_sql, queues=["children"])
    core.finish(each_sql, *others)
    assert each_sql("select complete_batches(array[%s]::uuid[])", [batch]) == []
    core.fail(each_sql, one, outcome="dead")
    each_sql("select complete_batches(array[%s]::uuid[])", [batch])
    found = read(each_sql, core.claim_one(each_sql))["labels"]
    assert (found["total"], found["succeeded"], found["failed"]) == (3, 2, 1)


def undo_jobs(sql: Sql) -> list[Any]:
    """Run the undo jobs that are due, one after the other, and return their payloads in order."""
    done = []
    while found := core.claim(sql, limit=1, queues=["default"]):
        done.append(found[0].payload["n"])
        core.finish(sql, found[0])
    return done


@pytest.mark.parametrize("end", ["dead", "failed", "canceled", "parked and canceled", "lost"])
def test_a_job_that_does_not_succeed_is_undone_in_reverse_order(each_sql: Sql, end: str) -> None:
    job = started(each_sql, max_attempts=1)
    for n in range(3):
        assert store(each_sql, job, f"s{n}", n, undo={**UNDO, "payload": {"n": n}}) == "stored"
    store(each_sql, job, "no undo")
    if end == "parked and canceled":
        park(each_sql, job, "sleep", "cooling", 60)
        assert core.cancel(each_sql, job.id) == ["canceled"]
    elif end == "lost":
        core.lose(each_sql)
    else:
        core.fail(each_sql, job, outcome=end)
    assert undo_jobs(each_sql) == [2, 1, 0]


def test_a_dead_undo_holds_the_next_until_it_was_retried_or_discarded(sql: Sql) -> None:
    job = started(sql)
    for n in range(3):
        store(sql, job, f"s{n}", n, undo={**UNDO, "payload": {"n": n}, "max_attempts": 1})
    core.fail(sql, job, outcome="dead")
    core.fail(sql, undo := core.claim_one(sql), outcome="dead")
    assert core.claim(sql) == []
    assert core.retry_dead(sql, undo.id) == [undo.id]
    core.finish(sql, core.claim_one(sql))
    core.fail(sql, second := core.claim_one(sql), outcome="dead")
    assert core.claim(sql) == []
    assert core.discard_dead(sql, second.id) == [second.id]
    assert core.claim_one(sql).payload == {"n": 0}


def test_a_job_that_succeeded_is_undone_by_hand_once(sql: Sql) -> None:
    job = started(sql)
    store(sql, job, "a", undo={**UNDO, "payload": {"n": 1}})
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot be compensated: it is running"):
        sql("select compensate(%s)", [job.id])
    core.finish(sql, job)
    assert sql("select compensate(%s)", [job.id]) == [(1,)]
    assert sql("select compensate(%s)", [job.id]) == [(0,)]
    assert undo_jobs(sql) == [1]


def test_a_retried_job_does_again_what_was_undone(sql: Sql) -> None:
    job = started(sql)
    store(sql, job, "kept", 1)
    store(sql, job, "undone", 2, undo={**UNDO, "queue": "undo"})
    core.fail(sql, job, outcome="dead")
    core.retry_dead(sql, job.id)
    assert read(sql, core.claim_one(sql)) == {"kept": 1}


@pytest.mark.parametrize("end", ["dead", "succeeded"])
def test_a_job_is_rerun_from_a_step(sql: Sql, end: str) -> None:
    job = started(sql)
    for name in "abc":
        store(sql, job, name, name)
    core.finish(sql, job) if end == "succeeded" else core.fail(sql, job, outcome=end)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="has no step 'x'; it has 'a', 'b', 'c'"):
        sql("select rerun(%s, 'x')", [job.id])
    assert sql("select rerun(%s, 'b')", [job.id]) == [(job.id,)]
    again = core.claim_one(sql)
    assert (again.id, again.attempt, read(sql, again)) == (job.id, 1, {"a": "a"})
    assert store(sql, again, "b", 2) == "stored"


def test_a_job_starts_after_others_have_ended(each_sql: Sql) -> None:
    first, second = core.put(each_sql, queue="first"), core.put(each_sql, queue="first", delay="1 hour")
    then = core.put(each_sql, after=[first, second])
    assert core.look(each_sql, then).waits_for == "after"
    core.finish(each_sql, core.claim_one(each_sql, queues=["first"]))
    assert core.claim(each_sql) == []
    each_sql("update later set run_at = clock() where id = %s", [second])
    core.promote(each_sql)
    core.finish(each_sql, core.claim_one(each_sql, queues=["first"]))
    assert core.claim_one(each_sql).id == then
    assert core.count(each_sql, "follows") == 0
    assert core.put(each_sql, after=[first]) == core.claim_one(each_sql).id, "it had ended before"


@pytest.mark.parametrize(
    ("on_failure", "status", "last"),
    [("cancel", "canceled", "canceled"), ("skip", "canceled", "queued"), ("run", "queued", "waiting")],
)
@pytest.mark.parametrize("before", [True, False])
def test_what_follows_a_failure(sql: Sql, on_failure: str, status: str, last: str, before: bool) -> None:
    first = core.put(sql, queue="first")
    if before:
        core.fail(sql, core.claim_one(sql, queues=["first"]), outcome="failed")
    then = core.put(sql, after=[first], on_failure=on_failure)
    if not before:
        third = core.put(sql, after=[then])
        core.fail(sql, core.claim_one(sql, queues=["first"]), outcome="failed")
    else:
        third = core.put(sql, after=[then])
    assert core.status(sql, then) == status
    assert core.status(sql, third) == last


def test_jobs_follow_only_others_that_exist(sql: Sql) -> None:
    own = uuid.uuid4()
    for after, why in (([uuid.uuid4()], "there is no job"), ([own], "cannot start after itself")):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=why):
            core.put(sql, id=own, after=after)


def test_a_long_chain_is_canceled_as_a_whole(sql: Sql) -> None:
    last = first = core.put(sql, queue="first")
    for _ in range(300):
        last = core.put(sql, after=[last])
    core.cancel(sql, first)
    assert core.status(sql, last) == "canceled"
    assert core.count(sql, "endings") == core.count(sql, "follows") == 0


def test_thousands_of_followers_are_started_in_parts(sql: Sql) -> None:
    first = core.put(sql, queue="first")
    many = [{"task": "t", "queue": "many", "after": [str(first)]}] * 2500
    sql("select enqueue_many(%s::jsonb)", [json.dumps(many)])
    core.finish(sql, core.claim_one(sql, queues=["first"]))
    assert core.count(sql, "live") == 1000
    sql("select upkeep('w', '10 s')")
    assert (core.count(sql, "live"), core.count(sql, "follows"), core.count(sql, "endings")) == (2500, 0, 0)


def test_what_a_locked_follower_needs_is_done_by_the_leader(dsn: str, sql: Sql) -> None:
    first = core.put(sql, queue="first")
    held, free = core.put(sql, after=[first]), core.put(sql, after=[first])
    with core.session(dsn, autocommit=False) as other:
        other.execute("select 1 from holdfast.later where id = %s for update", [held])
        core.finish(sql, core.claim_one(sql, queues=["first"]))
        assert core.status(sql, first) == "succeeded"
    sql("select upkeep('w', '10 s')")
    assert {job.id for job in core.claim(sql)} == {held, free}


def test_steps_are_kept_as_long_as_their_job(sql: Sql, clock: Clock) -> None:
    job, other = started(sql), started(sql)
    store(sql, job, "a")
    store(sql, other, "a")
    core.finish(sql, job)
    park(sql, other, "signal", "never")
    clock.advance(2 * 86400)
    sql("select prune()")
    assert core.count(sql, "steps") == 3
    sql("delete from history")
    clock.advance(2 * 86400)
    sql("select prune()")
    assert core.count(sql, f"steps where job = '{other.id}'") == 2 == core.count(sql, "steps")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("sleep", "it sleeps in 'x', for another"),
        ("signal", "it has waited for the signal 'x'"),
        ("call", "it waits for its child 'x', job"),
    ],
)
def test_why_says_what_a_job_waits_for(sql: Sql, kind: str, words: str) -> None:
    job = started(sql)
    if kind == "call":
        child(sql, job, "x")
    park(sql, job, kind, "x", 60)
    ((found,),) = sql("select why(%s)", [job.id])
    assert (found["status"], found["reasons"][0]["kind"]) == ("waiting", "waits")
    assert words in found["sentence"]


def test_why_names_the_jobs_that_come_first(sql: Sql) -> None:
    first = core.put(sql)
    then = core.put(sql, after=[first])
    assert f"it starts after job {first}" in sql("select why(%s)", [then])[0][0]["sentence"]
