"""Dedupe keys: who holds one, for how long, and the result of a second job with the same key (R9, I11)."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast.model.payload import dedupe_key
from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Sql


def keyed(sql: Sql, scope: str = "running", **options: Any) -> tuple[uuid.UUID, str]:
    return core.enqueue(sql, dedupe_key="k", dedupe_scope=scope, **options)


def holder(sql: Sql) -> uuid.UUID | None:
    rows = sql("select id from dedupe where key = 'k'")
    return rows[0][0] if rows else None


# -- scopes


@pytest.mark.parametrize("scope", ["queued", "running", "success"])
def test_a_key_is_held_while_its_job_waits(each_sql: Sql, scope: str) -> None:
    first, outcome = keyed(each_sql, scope)
    assert outcome == "created"
    assert keyed(each_sql, scope) == (first, "existing")
    assert core.count(each_sql, "live") == 1


@pytest.mark.parametrize("scope", ["queued", "running", "success"])
def test_a_key_is_held_while_its_job_is_delayed(sql: Sql, scope: str) -> None:
    first, _ = keyed(sql, scope, delay="1 hour")
    assert keyed(sql, scope) == (first, "existing")
    assert core.place(sql, first) == "later"


@pytest.mark.parametrize(("scope", "held"), [("queued", False), ("running", True), ("success", True)])
def test_only_the_scope_queued_ends_when_the_job_starts(sql: Sql, scope: str, held: bool) -> None:
    first, _ = keyed(sql, scope)
    core.claim_one(sql)
    second, outcome = keyed(sql, scope)
    assert (second == first, outcome) == ((True, "existing") if held else (False, "created"))


@pytest.mark.parametrize(("scope", "held"), [("queued", False), ("running", False), ("success", True)])
def test_only_the_scope_success_outlives_a_success(sql: Sql, scope: str, held: bool) -> None:
    first, _ = keyed(sql, scope)
    assert core.finish(sql, core.claim_one(sql)) == []
    second, outcome = keyed(sql, scope)
    assert (second == first, outcome) == ((True, "existing") if held else (False, "created"))


@pytest.mark.parametrize("scope", ["queued", "running", "success"])
@pytest.mark.parametrize("final", ["failed", "dead", "canceled", "canceled while waiting"])
def test_no_scope_outlives_an_end_without_success(sql: Sql, scope: str, final: str) -> None:
    first, _ = keyed(sql, scope)
    if final == "canceled while waiting":
        assert core.cancel(sql, first) == ["canceled"]
    else:
        core.fail(sql, core.claim_one(sql), outcome=final)
    assert holder(sql) is None
    assert keyed(sql, scope)[1] == "created"


@pytest.mark.parametrize("scope", ["running", "success"])
@pytest.mark.parametrize("back", ["error", "snooze", "release", "lose"])
def test_a_key_is_held_while_its_job_is_put_back(sql: Sql, scope: str, back: str) -> None:
    first, _ = keyed(sql, scope)
    job = core.claim_one(sql)
    {"error": core.fail, "snooze": core.snooze, "release": core.release, "lose": lambda s, j: core.lose(s)}[back](
        sql, job
    )
    assert core.status(sql, first) in ("queued", "retrying")
    assert keyed(sql, scope) == (first, "existing")


def test_a_key_of_scope_queued_is_held_again_when_its_job_is_given_back(each_sql: Sql) -> None:
    """Claimed ahead and not run: the job has not started."""
    first, _ = keyed(each_sql, "queued")
    core.release(each_sql, core.claim_one(each_sql))
    assert keyed(each_sql, "queued") == (first, "existing")
    core.claim_one(each_sql)
    assert keyed(each_sql, "queued")[1] == "created"


def test_a_key_that_a_newer_job_has_taken_stays_with_it_when_the_first_is_given_back(sql: Sql) -> None:
    keyed(sql, "queued")
    job = core.claim_one(sql)
    second, _ = keyed(sql, "queued")
    core.release(sql, job)
    assert holder(sql) == second


def test_a_key_whose_period_is_over_is_held_again_by_the_job_that_is_given_back(sql: Sql, clock: Clock) -> None:
    first, _ = keyed(sql, "queued")
    job = core.claim_one(sql)
    keyed(sql, "success", dedupe_keep="1 minute")
    core.finish(sql, core.claim_one(sql))
    clock.advance(60)
    core.renew(sql, "w", job.token)
    core.release(sql, job)
    assert keyed(sql, "queued") == (first, "existing")


def test_giving_a_job_back_does_not_wait_for_an_open_transaction_that_takes_its_key(dsn: str, sql: Sql) -> None:
    keyed(sql, "queued")
    job = core.claim_one(sql)
    sql("set lock_timeout = '10s'")
    with core.session(dsn, autocommit=False) as open_:
        second, outcome = keyed(core.runner(open_), "queued")
        assert outcome == "created"
        assert core.release(sql, job) == []
        assert core.status(sql, job.id) == "queued"
        open_.commit()
    assert holder(sql) == second


@pytest.mark.parametrize("result", [None, [1]], ids=["plain", "with a result"])
def test_a_kept_key_is_free_again_after_its_period_and_not_before(sql: Sql, clock: Clock, result: object) -> None:
    first, _ = keyed(sql, "success", dedupe_keep="1 hour")
    clock.advance(7200)  # the period begins with the success
    job = core.claim_one(sql)
    results = json.dumps([{"id": str(job.id), "token": job.token, "outcome": "succeeded", "result": result}])
    if result is None:
        core.finish(sql, job)
    else:
        assert sql("select finish('{}', '{}', %s::jsonb)", [results]) == []
    clock.advance(3599)
    assert keyed(sql, "success") == (first, "existing")
    clock.advance(1)
    second, outcome = keyed(sql, "success")
    assert outcome == "created"
    assert second != first


def test_a_key_kept_for_ever_is_kept_for_ever(sql: Sql, clock: Clock) -> None:
    first, _ = keyed(sql, "success")
    core.finish(sql, core.claim_one(sql))
    clock.advance(86400 * 3650)
    sql("select prune()")
    assert keyed(sql, "success") == (first, "existing")


def test_prune_removes_expired_keys_and_no_others(sql: Sql, clock: Clock) -> None:
    for name, keep in {"short": "1 minute", "long": "1 hour", "ever": None}.items():
        core.put(sql, dedupe_key=name, dedupe_scope="success", dedupe_keep=keep)
        core.finish(sql, core.claim_one(sql))
    core.put(sql, dedupe_key="waiting", dedupe_scope="success", dedupe_keep="1 minute")
    clock.advance(60)
    assert sql("select rows_removed from prune()") == [(1,)]
    assert sql("select key from dedupe order by 1") == [("ever",), ("long",), ("waiting",)]


# -- conflicts


def test_replace_gives_a_waiting_holder_the_new_payload(each_sql: Sql) -> None:
    for delay in (None, "1 hour"):
        first, _ = core.enqueue(each_sql, dedupe_key=f"k {delay}", delay=delay, payload={"n": 1})
        second = core.enqueue(each_sql, dedupe_key=f"k {delay}", payload={"n": 2}, on_conflict="replace")
        assert second == (first, "replaced")
        assert core.look(each_sql, first).payload == {"n": 2}
    assert core.count(each_sql, "jobs") == 2


@pytest.mark.parametrize("delay", [None, "1 hour"], ids=["due", "delayed"])
@pytest.mark.parametrize("other", [{"task": "other"}, {"tenant": "evil"}, {"tenant": None}], ids=str)
def test_replace_changes_no_job_of_another_task_or_tenant(
    each_sql: Sql, other: dict[str, Any], delay: str | None
) -> None:
    first = core.put(each_sql, dedupe_key="k", tenant="acme", delay=delay, payload={"n": 1})
    wish = {"task": "t", "tenant": "acme", "payload": {"n": 2}, "on_conflict": "replace", **other}
    with pytest.raises(
        psycopg.errors.UniqueViolation, match="a job of another task or tenant already holds dedupe key k"
    ):
        core.enqueue(each_sql, dedupe_key="k", **wish)
    assert core.look(each_sql, first).payload == {"n": 1}


@pytest.mark.parametrize(
    ("key", "task", "tenant"),
    [
        ("mail::acme::k", "mail", None),
        ("mail::acme::k", "mail", "evil"),
        ("mail::acme::k", "other", "acme"),
        ("mail::global::k", "mail", "global"),
        ("mail::%global::k", "mail", None),
        ("mail::acme::::k", "mail::acme", None),
        ("outbox\x1femail/acme/k", "t", None),
        ("outbox\x1femail/acme/k::global::x", "outbox\x1femail/acme/k", None),
    ],
)
def test_a_key_of_another_task_or_tenant_or_of_a_message_cannot_be_taken(
    sql: Sql, key: str, task: str, tenant: str | None
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="dedupe key"):
        core.enqueue(sql, task, tenant=tenant, dedupe_key=key)
    assert core.count(sql, "dedupe") == 0


@pytest.mark.parametrize("task", ["mail", "a:b", "a%b", "global", "::"])
@pytest.mark.parametrize("tenant", [None, "acme", "global", "a::b", "100%"])
def test_every_key_that_the_client_makes_can_be_taken(sql: Sql, task: str, tenant: str | None) -> None:
    key = dedupe_key(task, tenant, "x::y::z")
    assert core.enqueue(sql, task, tenant=tenant, dedupe_key=key)[1] == "created"
    others = [(t, who) for t in (task, "mail", "x") for who in (tenant, "acme", None) if (t, who) != (task, tenant)]
    for other, who in others:
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            core.enqueue(sql, other, tenant=who, dedupe_key=key)


def test_replace_while_running_does_nothing(sql: Sql) -> None:
    first, _ = keyed(sql, payload={"n": 1})
    core.claim_one(sql)
    assert keyed(sql, payload={"n": 2}, on_conflict="replace") == (first, "existing")
    assert core.look(sql, first).payload == {"n": 1}


def test_replace_after_success_does_nothing(sql: Sql) -> None:
    first, _ = keyed(sql, "success", payload={"n": 1})
    core.finish(sql, core.claim_one(sql))
    assert keyed(sql, "success", payload={"n": 2}, on_conflict="replace") == (first, "existing")
    assert core.look(sql, first).payload == {"n": 1}


def test_raise_names_the_holder_and_the_key_and_enqueues_nothing(sql: Sql) -> None:
    first, _ = keyed(sql)
    with pytest.raises(psycopg.errors.UniqueViolation, match=f"job {first} already holds dedupe key k"):
        keyed(sql, on_conflict="raise")
    assert core.count(sql, "jobs") == 1


def test_an_unknown_on_conflict_is_refused(sql: Sql) -> None:
    keyed(sql)
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="on_conflict must be existing, replace or raise, got panic"
    ):
        keyed(sql, on_conflict="panic")


def test_a_batch_with_one_key_twice_makes_one_job(sql: Sql) -> None:
    jobs = [{"task": "t", "dedupe_key": key, "payload": {"n": n}} for n, key in enumerate(["b", "a", "b", None, "a"])]
    rows = sql("select id, outcome from enqueue_many(%s::jsonb)", [json.dumps(jobs)])
    assert [outcome for _, outcome in rows] == ["created", "created", "existing", "created", "existing"]
    assert (rows[2][0], rows[4][0]) == (rows[0][0], rows[1][0])
    assert core.look(sql, rows[0][0]).payload == {"n": 0}
    assert core.look(sql, rows[1][0]).payload == {"n": 1}


def test_a_batch_that_raises_enqueues_nothing(sql: Sql) -> None:
    core.put(sql, dedupe_key="taken")
    jobs = [{"task": "t"}, {"task": "t", "dedupe_key": "taken"}, {"task": "t", "dedupe_key": "free"}]
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql("select enqueue_many(%s::jsonb, 'raise')", [json.dumps(jobs)])
    assert core.count(sql, "jobs") == 1
    assert core.count(sql, "dedupe") == 1


# -- the same call again, after a lost reply


def test_the_same_job_again_is_accepted_once_wherever_it_has_got_to(each_sql: Sql) -> None:
    sql, id_ = each_sql, uuid.uuid4()
    again = {"id": id_, "dedupe_key": "k", "retry": {"kind": "fixed", "delay": 60}}
    assert core.enqueue(sql, **again) == (id_, "created")
    assert core.enqueue(sql, **again) == (id_, "existing")
    job = core.claim_one(sql)
    assert core.enqueue(sql, **again) == (id_, "existing")
    core.fail(sql, job)
    assert core.place(sql, id_) == "later"
    assert core.enqueue(sql, **again) == (id_, "existing")
    sql("update later set run_at = clock()")
    job = core.claim_one(sql)
    core.fail(sql, job, outcome="dead")
    assert core.enqueue(sql, **again) == (id_, "existing")
    assert (core.place(sql, id_), holder(sql)) == ("dead", None)
    core.discard_dead(sql, id_)
    assert core.enqueue(sql, **again) == (id_, "existing")
    assert core.enqueue(sql, **again, delay="1 hour") == (id_, "existing")
    assert (core.place(sql, id_), holder(sql)) == ("history", None)
    assert core.count(sql, "jobs") == 1


def test_the_same_job_again_does_not_take_back_a_key_it_gave_up_when_it_started(sql: Sql) -> None:
    """Scope queued: the key is free once the job runs. A late repeat must not take it, or the next job is dropped."""
    first = uuid.uuid4()
    keyed(sql, "queued", id=first)
    core.claim_one(sql)
    assert keyed(sql, "queued", id=first) == (first, "existing")
    assert holder(sql) is None, "a running job holds a key of scope queued again"
    second, outcome = keyed(sql, "queued")
    assert outcome == "created"
    assert second != first


@pytest.mark.parametrize("on_conflict", ["existing", "replace", "raise"])
def test_the_same_job_again_leaves_a_newer_holder_of_its_key_alone(sql: Sql, on_conflict: str) -> None:
    """The reply was lost, the job ended, another took the key: the repeat must find its own job, not the other."""
    first = uuid.uuid4()
    keyed(sql, id=first, payload={"n": 1})
    core.finish(sql, core.claim_one(sql))
    second, _ = keyed(sql, payload={"n": 2})
    result = keyed(sql, id=first, payload={"n": 1}, on_conflict=on_conflict)
    assert core.look(sql, second).payload == {"n": 2}
    assert result == (first, "existing")


# -- races and transactions


def test_twenty_threads_with_one_key_make_one_job(each_dsn: str, each_sql: Sql) -> None:
    results: list[tuple[uuid.UUID, str]] = []
    start = threading.Barrier(20)

    def work() -> None:
        with core.session(each_dsn) as conn:
            run = core.runner(conn)
            start.wait(40)
            for _ in range(3):
                results.append(keyed(run))

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 60
    assert len({id_ for id_, _ in results}) == 1
    assert [outcome for _, outcome in results].count("created") == 1
    assert core.count(each_sql, "jobs") == 1


def test_threads_that_enqueue_claim_and_finish_one_key_never_hold_it_twice(dsn: str, sql: Sql) -> None:
    """I11 under races: at no time do two live jobs share a key of scope running."""
    stop = threading.Event()
    twice: list[int] = []

    def produce() -> None:
        with core.session(dsn) as conn:
            for _ in range(60):
                keyed(core.runner(conn))

    def consume() -> None:
        with core.session(dsn) as conn:
            run = core.runner(conn)
            while not stop.is_set():
                if batch := core.claim(run, limit=2):
                    assert core.finish(run, *batch) == []

    def watch() -> None:
        with core.session(dsn) as conn:
            run = core.runner(conn)
            while not twice or not stop.is_set():
                twice.append(run("select count(*) from (select from live where dedupe_key = 'k') l")[0][0])

    producers = [threading.Thread(target=produce) for _ in range(3)]
    others = [threading.Thread(target=work) for work in (consume, consume, watch)]
    for thread in (*producers, *others):
        thread.start()
    for thread in producers:
        thread.join()
    stop.set()
    for thread in others:
        thread.join()
    assert max(twice) <= 1
    while batch := core.claim(sql):
        core.finish(sql, *batch)
    assert core.count(sql, "dedupe") == 0


def test_a_holder_that_is_rolled_back_frees_the_key(dsn: str, sql: Sql) -> None:
    results: list[tuple[uuid.UUID, str]] = []
    with core.session(dsn, autocommit=False) as one, core.session(dsn) as two:
        first, _ = keyed(core.runner(one))
        waiting = threading.Thread(target=lambda: results.append(keyed(core.runner(two))))
        waiting.start()
        wait_until(
            lambda: sql(
                "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'", [two.info.backend_pid]
            )
        )
        one.rollback()
        waiting.join()
    ((second, outcome),) = results
    assert outcome == "created"
    assert second != first
    assert sql("select id from jobs") == [(second,)]


def test_a_holder_that_commits_meanwhile_is_returned(dsn: str, sql: Sql) -> None:
    results: list[tuple[uuid.UUID, str]] = []
    with core.session(dsn, autocommit=False) as one, core.session(dsn) as two:
        first, _ = keyed(core.runner(one))
        waiting = threading.Thread(target=lambda: results.append(keyed(core.runner(two))))
        waiting.start()
        wait_until(
            lambda: sql(
                "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'", [two.info.backend_pid]
            )
        )
        one.commit()
        waiting.join()
    assert results == [(first, "existing")]


@pytest.mark.parametrize("on_conflict", ["existing", "replace"])
def test_a_long_transaction_that_hits_a_held_key_does_not_block_the_holders_end(
    dsn: str, sql: Sql, on_conflict: str
) -> None:
    first, _ = keyed(sql)
    job = core.claim_one(sql)
    sql("set lock_timeout = '5s'")
    with core.session(dsn, autocommit=False) as long:
        assert keyed(core.runner(long), on_conflict=on_conflict) == (first, "existing")
        assert core.finish(sql, job) == []
        assert core.status(sql, first) == "succeeded"
        long.commit()


def test_a_long_transaction_that_replaced_a_payload_does_not_hold_up_other_claims(dsn: str, sql: Sql) -> None:
    first, _ = keyed(sql, payload={"n": 1})
    other = core.put(sql)
    sql("set lock_timeout = '5s'")
    with core.session(dsn, autocommit=False) as long:
        assert keyed(core.runner(long), payload={"n": 2}, on_conflict="replace") == (first, "replaced")
        assert [j.id for j in core.claim(sql)] == [other]
        long.commit()
    (job,) = core.claim(sql)
    assert (job.id, job.payload) == (first, {"n": 2})


def waits(sql: Sql, conn: psycopg.Connection) -> bool:
    """Return whether a session waits for a lock."""
    query = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    return bool(sql(query, [conn.info.backend_pid]))


def while_waiting(
    dsn: str, sql: Sql, first: Callable[[Sql], object], second: Callable[[Sql], tuple[uuid.UUID, str]]
) -> tuple[uuid.UUID, str]:
    """Make the second call while the first one's transaction is open, and commit that once the second waits."""
    results: list[tuple[uuid.UUID, str]] = []
    with core.session(dsn, autocommit=False) as one, core.session(dsn) as two:
        first(core.runner(one))
        calling = threading.Thread(target=lambda: results.append(second(core.runner(two))))
        calling.start()
        wait_until(lambda: waits(sql, two) or not calling.is_alive())
        one.commit()
        calling.join()
    assert len(results) == 1, "the second call failed"
    return results[0]


@pytest.mark.parametrize("delay", [None, "1 hour"])
def test_of_two_payloads_that_replace_the_later_stays(dsn: str, sql: Sql, delay: str | None) -> None:
    first, _ = keyed(sql, payload={"n": 1}, delay=delay)
    result = while_waiting(
        dsn,
        sql,
        lambda run: keyed(run, payload={"n": 2}, on_conflict="replace"),
        lambda run: keyed(run, payload={"n": 3}, on_conflict="replace"),
    )
    assert result == (first, "replaced")
    assert core.look(sql, first).payload == {"n": 3}


def test_a_payload_that_replaces_finds_a_holder_that_has_just_come_due(dsn: str, sql: Sql) -> None:
    first, _ = keyed(sql, payload={"n": 1}, delay="1 hour")
    sql("update later set run_at = clock()")
    result = while_waiting(dsn, sql, core.promote, lambda run: keyed(run, payload={"n": 2}, on_conflict="replace"))
    assert result == (first, "replaced")
    assert (core.place(sql, first), core.look(sql, first).payload) == ("live", {"n": 2})


def test_a_payload_that_came_while_the_holder_started_makes_a_job_of_its_own(dsn: str, sql: Sql) -> None:
    """Scope queued: the key is free when the job starts, so the payload has a job to go to."""
    first, _ = keyed(sql, "queued", payload={"n": 1})
    result = while_waiting(
        dsn, sql, core.claim_one, lambda run: keyed(run, "queued", payload={"n": 2}, on_conflict="replace")
    )
    assert result[1] == "created"
    assert result[0] != first
    assert core.look(sql, result[0]).payload == {"n": 2}


def test_a_payload_that_cannot_replace_in_time_is_refused_and_not_dropped(dsn: str, sql: Sql) -> None:
    first, _ = keyed(sql, payload={"n": 1})
    with core.session(dsn, autocommit=False) as open_:
        keyed(core.runner(open_), payload={"n": 2}, on_conflict="replace")
        with pytest.raises(psycopg.errors.LockNotAvailable, match=f"job {first} is being changed by a transaction"):
            keyed(sql, payload={"n": 3}, on_conflict="replace")
        open_.commit()
    assert keyed(sql, payload={"n": 3}, on_conflict="replace") == (first, "replaced")


@pytest.mark.parametrize("due_first", [False, True], ids=["delayed, then due", "due, then delayed"])
def test_an_id_is_accepted_once_although_one_call_finds_it_delayed_and_another_due(
    dsn: str, sql: Sql, due_first: bool
) -> None:
    """The same id and time, sent before and after that time by transactions that overlap."""
    id_ = uuid.uuid4()
    calls = [lambda run: core.enqueue(run, id=id_, delay="1 hour"), lambda run: core.enqueue(run, id=id_)]
    if due_first:
        calls.reverse()
    assert while_waiting(dsn, sql, *calls) == (id_, "existing")
    assert core.count(sql, "jobs") == 1
    assert core.place(sql, id_) == ("live" if due_first else "later")


def test_an_id_whose_delayed_call_is_rolled_back_is_accepted_by_the_one_that_waited(dsn: str, sql: Sql) -> None:
    id_, results = uuid.uuid4(), []
    with core.session(dsn, autocommit=False) as one, core.session(dsn) as two:
        core.enqueue(core.runner(one), id=id_, delay="1 hour")
        calling = threading.Thread(target=lambda: results.append(core.enqueue(core.runner(two), id=id_)))
        calling.start()
        wait_until(lambda: waits(sql, two) or not calling.is_alive())
        one.rollback()
        calling.join()
    assert results == [(id_, "created")]
    assert core.place(sql, id_) == "live"


def test_two_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(dsn: str, sql: Sql) -> None:
    keys = [f"k{n:03}" for n in range(150)]
    start = threading.Barrier(2)
    failures: list[BaseException] = []

    def work(order: list[str]) -> None:
        jobs = json.dumps([{"task": "t", "dedupe_key": key} for key in order])
        try:
            with core.session(dsn) as conn:
                start.wait(40)
                conn.execute("select enqueue_many(%s::jsonb)", [jobs])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[order]) for order in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert core.count(sql, "jobs") == len(keys)


# -- dead letters


def test_a_dead_job_whose_key_a_newer_job_holds_stays_dead(sql: Sql) -> None:
    first, _ = keyed(sql)
    core.fail(sql, core.claim_one(sql), outcome="dead")
    second, _ = keyed(sql)
    before = core.state(sql)
    assert core.retry_dead(sql, first) == []
    assert core.state(sql) == before
    core.finish(sql, core.claim_one(sql))
    assert core.retry_dead(sql, first) == [first]
    assert (core.status(sql, first), holder(sql)) == ("retrying", first)
    assert core.status(sql, second) == "succeeded"


def test_of_two_dead_jobs_with_one_key_one_is_retried(sql: Sql) -> None:
    for _ in range(2):
        keyed(sql)
        core.fail(sql, core.claim_one(sql), outcome="dead")
    ids = sorted(core.firsts(sql("select id from dead")))
    assert core.retry_dead(sql, *ids) == ids[:1]
    assert core.count(sql, "dead") == 1


def test_a_retried_job_keeps_its_scope(sql: Sql, clock: Clock) -> None:
    """R9 also after an operator's retry: a key of scope success is kept when the retried job succeeds."""
    first, _ = keyed(sql, "success", dedupe_keep="1 hour")
    core.fail(sql, core.claim_one(sql), outcome="dead")
    assert core.retry_dead(sql, first) == [first]
    core.finish(sql, core.claim_one(sql))
    assert keyed(sql, "success") == (first, "existing")
    clock.advance(3600)
    assert keyed(sql, "success")[1] == "created"
