"""What people and other jobs change about jobs that have steps, wait, or follow others."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_core import Sql
from tests.support.sql_steps import UNDO, child, park, read, signal, started, store


def change(sql: Sql, kind: str, id_: Any, **params: Any) -> str:
    """Return the outcome of an operator's change of one job."""
    query = "select outcome from act_on_jobs(%s, array[%s]::uuid[], %s::jsonb)"
    return sql(query, [kind, id_, json.dumps(params)])[0][0]


def test_a_deadline_does_not_end_a_job_whose_wait_was_over_at_once(sql: Sql, clock: Clock) -> None:
    job = started(sql, deadline="1 minute")
    signal(sql, "approved", 1)
    clock.advance(61)
    assert park(sql, job, "signal", "approved")
    sql("select expire()")
    assert read(sql, core.claim_one(sql)) == {"approved": 1}


def test_the_steps_of_a_retried_job_are_pruned_with_it(sql: Sql, clock: Clock) -> None:
    job = started(sql)
    store(sql, job, "undone", 1, undo={**UNDO, "queue": "undo"})
    store(sql, job, "kept", 2)
    core.fail(sql, job, outcome="dead")
    core.retry_dead(sql, job.id)
    job = core.claim_one(sql)
    store(sql, job, "more", 3)
    core.finish(sql, job)
    sql("delete from history")
    clock.advance(2 * 86400)
    sql("select prune()")
    assert core.count(sql, "steps") == 0


def test_the_steps_of_a_retried_job_of_which_all_were_undone_are_pruned(sql: Sql, clock: Clock) -> None:
    job = started(sql)
    store(sql, job, "undone", 1, undo={**UNDO, "queue": "undo"})
    core.fail(sql, job, outcome="dead")
    core.retry_dead(sql, job.id)
    job = core.claim_one(sql)
    store(sql, job, "undone", 2)
    core.finish(sql, job)
    sql("delete from history")
    clock.advance(2 * 86400)
    sql("select prune()")
    assert core.count(sql, "steps") == 0


@pytest.mark.parametrize("place", ["later", "live"])
def test_a_canceled_undo_lets_the_next_start(sql: Sql, place: str) -> None:
    job = started(sql)
    for n in range(2):
        store(sql, job, f"s{n}", n, undo={**UNDO, "payload": {"n": n}})
    core.fail(sql, job, outcome="dead")
    undo = core.claim_one(sql)
    if place == "later":
        core.snooze(sql, undo)
        assert core.cancel(sql, undo.id) == ["canceled"]
    else:
        core.fail(sql, undo, outcome="canceled")
    assert core.claim_one(sql).payload == {"n": 0}


def test_a_job_that_starts_after_others_is_not_given_a_time(sql: Sql) -> None:
    first = core.put(sql, queue="first")
    then = core.put(sql, after=[first])
    for when in ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"):
        assert change(sql, "reschedule", then, run_at=when) == "unchanged"
    assert core.claim(sql) == []
    core.finish(sql, core.claim_one(sql, queues=["first"]))
    assert core.claim_one(sql).id == then


@pytest.mark.parametrize("kind", ["sleep", "signal"])
def test_a_job_that_waits_may_be_given_a_time_and_waits_again(sql: Sql, kind: str) -> None:
    job = started(sql)
    park(sql, job, kind, "x", 3600)
    assert change(sql, "reschedule", job.id, run_at="2020-01-01T00:00:00Z") == "changed"
    job = core.claim_one(sql)
    assert read(sql, job) == {}
    park(sql, job, kind, "x", 3600)
    assert core.look(sql, job.id).waits_for == f"{kind} x"


def test_a_job_that_waits_is_moved_and_goes_on_there(sql: Sql) -> None:
    job = started(sql)
    park(sql, job, "signal", "x")
    assert change(sql, "move", job.id, queue="other") == "changed"
    assert change(sql, "prioritize", job.id, priority=0) == "changed"
    assert change(sql, "retry", job.id) == change(sql, "discard", job.id) == "unchanged"
    signal(sql, "x", 1)
    (found,) = core.claim(sql, queues=["other"])
    assert (found.priority, read(sql, found)) == (0, {"x": 1})


def test_a_job_that_was_retried_before_its_undo_began_is_not_undone(dsn: str, sql: Sql) -> None:
    job = started(sql)
    store(sql, job, "a", 1, undo={**UNDO, "queue": "undo"})
    with core.session(dsn, autocommit=False) as other:
        other.execute("select 1 from holdfast.steps where job = %s for update", [job.id])
        core.fail(sql, job, outcome="dead")
        core.retry_dead(sql, job.id)
    sql("select upkeep('w', '10 s')")
    assert core.count(sql, "endings") == 0
    assert core.claim(sql, queues=["undo"]) == []
    assert read(sql, core.claim_one(sql)) == {"a": 1}


def test_those_that_follow_a_job_start_when_it_was_rerun(sql: Sql) -> None:
    """A rerun undo that succeeds lets the next start."""
    job = started(sql)
    for n in range(2):
        store(sql, job, f"s{n}", n, undo={**UNDO, "payload": {"n": n}})
    core.fail(sql, job, outcome="dead")
    core.fail(sql, undo := core.claim_one(sql), outcome="dead")
    assert sql("select rerun(%s)", [undo.id]) == [(undo.id,)]
    core.finish(sql, core.claim_one(sql))
    assert core.claim_one(sql).payload == {"n": 0}


def test_a_second_rerun_does_not_take_the_steps_of_the_first(dsn: str, sql: Sql) -> None:
    job = started(sql)
    store(sql, job, "a", 1)
    core.finish(sql, job)
    with ThreadPoolExecutor(1) as pool, core.session(dsn) as second, core.session(dsn, autocommit=False) as first:
        assert core.runner(first)("select rerun(%s, 'a')", [job.id]) == [(job.id,)]
        late = pool.submit(core.runner(second), "select rerun(%s, 'a')", [job.id])
        wait_until(lambda: sql("select 1 from pg_locks where not granted and pid = %s", [second.info.backend_pid]))
        first.commit()
        assert late.result() == [(None,)]
    assert core.count(sql, "actions where kind = 'jobs.rerun'") == 1


@pytest.mark.parametrize("end", ["parent canceled", "child canceled"])
def test_an_end_that_people_decide_reaches_parent_and_child(sql: Sql, end: str) -> None:
    job = started(sql)
    child(sql, job)
    park(sql, job, "call", "child")
    (its_job,) = core.claim(sql, queues=["children"])
    if end == "child canceled":
        core.fail(sql, its_job, outcome="canceled")
        assert read(sql, core.claim_one(sql))["child"]["status"] == "canceled"
    else:
        assert core.cancel(sql, job.id) == ["canceled"]
        core.finish(sql, its_job)
        assert (core.status(sql, job.id), core.claim(sql)) == ("canceled", [])


def test_a_parked_job_gives_its_limits_back_and_keeps_its_key(sql: Sql) -> None:
    sql("select set_limit('k:a', '{\"concurrency\": 1}'::jsonb)")
    job = started(sql, keys=["k:a"], dedupe_key="once")
    core.put(sql, keys=["k:a"])
    park(sql, job, "signal", "x")
    other = core.claim_one(sql)
    assert core.enqueue(sql, dedupe_key="once") == (job.id, "existing")
    signal(sql, "x", 1)
    assert core.claim(sql) == []
    core.finish(sql, other)
    assert core.claim_one(sql).id == job.id


@pytest.mark.parametrize("what", ["step", "child", "batch"])
def test_what_a_worker_commits_late_belongs_to_a_job_that_it_still_has(dsn: str, sql: Sql, what: str) -> None:
    """A worker stands still before its commit, and its lease is over."""
    job = started(sql, max_attempts=1)
    store(sql, job, "first", undo={**UNDO, "payload": {"n": 1}})
    with core.session(dsn, autocommit=False) as late:
        if what == "step":
            step = {"id": str(job.id), "token": job.token, "name": "second", "undo": {**UNDO, "payload": {"n": 2}}}
            stored = core.runner(late)("select outcome from store_steps(%s::json, true)", [json.dumps([step])])
            assert stored == [("stored",)]
        elif what == "child":
            assert child(core.runner(late), job) == "started"
        else:
            query = "select start_batch(%s, %s, 'batch', gen_random_uuid(), null, null)"
            assert core.runner(late)(query, [job.id, job.token]) == [("started",)]
        core.lose(sql)
        assert core.status(sql, job.id) == "running", "it ends when the worker's transaction has"
        late.commit()
    core.lose(sql)
    sql("select upkeep('w', '10 s')")
    assert core.status(sql, job.id) == "dead"
    assert core.claim_one(sql).payload == {"n": 2 if what == "step" else 1}


@pytest.mark.parametrize("place", ["later", "live"])
def test_a_job_that_has_done_steps_keeps_its_arguments_from_a_replace(sql: Sql, place: str) -> None:
    job = started(sql, dedupe_key="once", payload={"n": 1})
    store(sql, job, "a", 1)
    park(sql, job, "signal", "go")
    if place == "live":
        signal(sql, "go", 1)
    again = {"dedupe_key": "once", "payload": {"n": 2}, "on_conflict": "replace"}
    assert core.enqueue(sql, **again) == (job.id, "existing")
    assert core.look(sql, job.id).payload == {"n": 1}


def test_who_follows_a_job_and_its_other_steps_do_not_hold_up_a_step(dsn: str, sql: Sql) -> None:
    job = started(sql)
    store(sql, job, "first")
    step = {"id": str(job.id), "token": job.token, "name": "second"}
    with core.session(dsn, autocommit=False) as other:
        core.put(core.runner(other), after=[job.id])
        assert sql("select outcome from store_steps(%s::json, true)", [json.dumps([step])]) == [("stored",)]


def beside_a_change(dsn: str, sql: Sql, table: str, id_: Any, query: str, params: list[Any]) -> list[tuple[Any, ...]]:
    """Let a query wait for a job whose row another transaction changes; return its rows."""
    with ThreadPoolExecutor(1) as pool, core.session(dsn) as caller, core.session(dsn, autocommit=False) as other:
        other.execute(f"update {table} set priority = 0 where id = %s", [id_])
        late = pool.submit(core.runner(caller), query, params)
        wait_until(lambda: sql("select 1 from pg_locks where not granted and pid = %s", [caller.info.backend_pid]))
        other.commit()
        return late.result()


def test_a_job_that_is_changed_while_its_wait_ends_is_resumed(dsn: str, sql: Sql) -> None:
    job = started(sql)
    park(sql, job, "signal", "go")
    query = "select resume_jobs(array[%s], array['signal go'])"
    assert beside_a_change(dsn, sql, "later", job.id, query, [job.id]) == [(1,)]
    assert core.claim_one(sql).id == job.id


def test_a_job_that_is_changed_while_it_calls_a_child_keeps_its_lease(dsn: str, sql: Sql) -> None:
    job = started(sql)
    query = "select start_child(%s, %s, 'child', '{\"task\": \"child\"}')"
    assert beside_a_change(dsn, sql, "live", job.id, query, [job.id, job.token]) == [("started",)]


@pytest.mark.parametrize("table", ["live", "later"])
def test_a_job_that_is_changed_while_another_is_to_follow_it_starts_that_one(dsn: str, sql: Sql, table: str) -> None:
    first = core.put(sql, queue="first", delay="1 hour" if table == "later" else None)
    beside_a_change(dsn, sql, table, first, "select enqueue('t', p_after => array[%s])", [first])
    sql("update later set run_at = clock() where id = %s", [first])
    core.promote(sql)
    core.finish(sql, core.claim_one(sql, queues=["first"]))
    assert core.claim_one(sql).id != first


@pytest.mark.parametrize("table", ["live", "later"])
def test_a_job_that_is_changed_while_a_person_moves_it_is_moved(dsn: str, sql: Sql, table: str) -> None:
    job = core.put(sql, delay="1 hour" if table == "later" else None)
    query = """select outcome from act_on_jobs('move', array[%s], '{"queue": "new"}')"""
    assert beside_a_change(dsn, sql, table, job, query, [job]) == [("changed",)]


def test_a_delivery_that_is_changed_while_a_person_hurries_it_is_due(dsn: str, sql: Sql) -> None:
    delivery = core.put(sql, "holdfast.webhook", queue="webhooks", delay="1 hour")
    query = "select outcome from redeliver(array[%s])"
    assert beside_a_change(dsn, sql, "later", delivery, query, [delivery]) == [("due",)]


def test_a_rerun_forgets_a_cancel_that_came_too_late(sql: Sql) -> None:
    job = started(sql)
    store(sql, job, "a", 1, undo=UNDO)
    assert core.cancel(sql, job.id) == ["canceling"]
    core.finish(sql, job)
    sql("select rerun(%s)", [job.id])
    assert park(sql, core.claim_one(sql), "sleep", "cooling", 60)
    assert core.status(sql, job.id) == "waiting"
    assert core.count(sql, "jobs where task = 'undo'") == 0


@pytest.mark.parametrize("task", ["channel:mail", "holdfast.webhook"])
def test_a_message_that_was_sent_is_not_rerun(sql: Sql, task: str) -> None:
    core.put(sql, task)
    core.finish(sql, job := core.claim_one(sql))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is a message or a delivery that has ended"):
        sql("select rerun(%s)", [job.id])
    assert core.status(sql, job.id) == "succeeded"


def test_a_job_from_history_is_not_rerun_where_its_limits_are_unknown(sql: Sql) -> None:
    rule = {"template": "order:{account}", "pattern": "order:%", "code": {"concurrency": 1}}
    sql("select register_limits(%s)", [json.dumps([rule])])
    core.put(sql, keys=["order:7"])
    core.finish(sql, job := core.claim_one(sql))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="its task t may have limits"):
        sql("select rerun(%s)", [job.id])
    assert sql("select rerun(%s, p_keys => '{order:7}')", [job.id]) == [(job.id,)]
    assert core.claim_one(sql).keys == ["order:7"]


@pytest.mark.parametrize("call", ["rerun(%s, p_tenant => {})", "compensate(%s, p_tenant => {})"])
def test_a_view_without_the_job_changes_nothing(sql: Sql, call: str) -> None:
    core.put(sql, tenant="acme")
    job = core.claim_one(sql)
    store(sql, job, "a", undo=UNDO)
    core.finish(sql, job)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="there is none"):
        sql(f"select {call}".format("'other'"), [job.id])
    sql(f"select {call}".format("'acme'"), [job.id])
    assert sql("select tenant from audit") == [("acme",)], "it sees what it did"


def called(sql: Sql, end: str = "dead") -> tuple[core.Claimed, Any]:
    """Return a job that has read its child's end, and the child's id."""
    job = started(sql)
    child(sql, job)
    park(sql, job, "call", "child")
    core.fail(sql, its_job := core.claim_one(sql, queues=["children"]), outcome=end)
    return core.claim_one(sql), its_job.id


@pytest.mark.parametrize("place", ["dead", "history"])
@pytest.mark.parametrize("first", ["child", "parent", "child, which ends"])
def test_a_retried_parent_reads_its_childs_present_state(sql: Sql, place: str, first: str) -> None:
    job, its_id = called(sql)
    store(sql, job, "other", 1)
    core.fail(sql, job, outcome="dead") if place == "dead" else core.finish(sql, job)
    again = "select retry_dead(array[%s]::uuid[])" if place == "dead" else "select rerun(%s)"
    if first != "parent":
        core.retry_dead(sql, its_id)
    if first == "child, which ends":
        core.finish(sql, core.claim_one(sql, queues=["children"]))
    assert sql(again, [job.id]) == [(job.id,)]
    job = core.claim_one(sql)
    assert read(sql, job) == {"other": 1}
    assert park(sql, job, "call", "child")
    if first == "parent":
        assert read(sql, core.claim_one(sql))["child"]["status"] == "dead"
        return
    if first == "child":
        assert core.status(sql, job.id) == "waiting"
        core.finish(sql, core.claim_one(sql, queues=["children"]))
    assert read(sql, core.claim_one(sql))["child"]["status"] == "succeeded"


def test_a_job_that_is_rerun_from_a_step_keeps_what_came_before(sql: Sql) -> None:
    job, _ = called(sql)
    store(sql, job, "other", 1)
    core.fail(sql, job, outcome="dead")
    sql("select rerun(%s, 'other')", [job.id])
    assert read(sql, core.claim_one(sql))["child"]["status"] == "dead"


def test_a_retried_parent_waits_for_the_children_of_its_batch_that_were_retried(sql: Sql) -> None:
    job, batch = started(sql), uuid.uuid4()
    sql("select start_batch(%s, %s, 'labels', %s, null, null)", [job.id, job.token, batch])
    for _ in range(2):
        core.put(sql, queue="children", batch=batch)
    sql("select close_batch(%s)", [batch])
    park(sql, job, "batch", "labels")
    one, other = core.claim(sql, queues=["children"])
    core.finish(sql, one)
    core.fail(sql, other, outcome="dead")
    sql("select complete_batches(array[%s]::uuid[])", [batch])
    job = core.claim_one(sql)
    assert read(sql, job)["labels"]["failed"] == 1
    core.fail(sql, job, outcome="dead")
    core.retry_dead(sql, other.id)
    core.retry_dead(sql, job.id)
    park(sql, core.claim_one(sql), "batch", "labels")
    assert core.status(sql, job.id) == "waiting"
    core.finish(sql, core.claim_one(sql, queues=["children"]))
    sql("select complete_batches(array[%s]::uuid[])", [batch])
    found = read(sql, core.claim_one(sql))["labels"]
    assert (found["total"], found["succeeded"], found["failed"]) == (2, 2, 0)


@pytest.mark.parametrize("came", [True, False])
def test_a_retried_job_gets_a_signal_that_came_too_late(sql: Sql, clock: Clock, came: bool) -> None:
    job = started(sql)
    park(sql, job, "signal", "approved", 60)
    clock.advance(61)
    core.promote(sql)
    job = core.claim_one(sql)
    assert read(sql, job) == {"approved": "timed out"}
    core.fail(sql, job, outcome="dead")
    if came:
        signal(sql, "approved", "yes")
    core.retry_dead(sql, job.id)
    assert read(sql, core.claim_one(sql)) == {"approved": "yes" if came else "timed out"}


def test_a_wait_without_time_finds_a_signal_that_is_there(sql: Sql) -> None:
    signal(sql, "approved", 1)
    assert park(sql, started(sql), "signal", "approved", 0)
    assert read(sql, core.claim_one(sql)) == {"approved": 1}
    assert park(sql, started(sql), "signal", "other", 0)
    assert read(sql, core.claim_one(sql)) == {"other": "timed out"}


@pytest.mark.parametrize("kind", ["call", "batch"])
def test_a_wait_for_a_step_that_the_job_does_not_have_fails_the_attempt(sql: Sql, kind: str) -> None:
    job = started(sql, max_attempts=1)
    assert park(sql, job, kind, "labels")
    found = core.look(sql, job.id)
    assert (found.status, found.last_error["code"]) == ("dead", "NO_STEP")
    assert "has no step 'labels'" in found.last_error["message"]


@pytest.mark.parametrize("place", ["dead", "later", "live"])
def test_a_job_that_has_done_steps_keeps_its_arguments_from_an_edit(sql: Sql, place: str) -> None:
    job = started(sql, payload={"n": 1})
    store(sql, job, "charge", 1)
    if place == "dead":
        core.fail(sql, job, outcome="dead")
    else:
        park(sql, job, "signal", "go")
        if place == "live":
            signal(sql, "go")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="has done steps with its arguments"):
        sql("""select edit_job(%s, '{"n": 2}')""", [job.id])
    assert core.look(sql, job.id).payload == {"n": 1}


def test_a_job_whose_steps_were_undone_may_be_edited_and_so_may_one_that_sleeps(sql: Sql) -> None:
    dead, asleep = started(sql), started(sql)
    store(sql, dead, "charge", 1, undo={**UNDO, "queue": "undo"})
    core.fail(sql, dead, outcome="dead")
    park(sql, asleep, "sleep", "cooling", 60)
    edit = """select edit_job(%s, '{"n": 2}')"""
    assert (sql(edit, [dead.id]), sql(edit, [asleep.id])) == ([("retried",)], [("edited",)])
