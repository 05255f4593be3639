"""Actions: changes of many jobs, made in small steps, each job once; and what is recorded of them."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

import psycopg
import pytest

from tests.support import flow
from tests.support import sql_core as core
from tests.support.sql_core import Sql


def bury(sql: Sql, number: int = 1, **options: Any) -> list[uuid.UUID]:
    """Make dead jobs; many of them by hand."""
    if number > 100:
        columns = (
            "id, status, queue, priority, lane, run_at, created_at, finished_at, attempt, max_attempts, task, payload"
        )
        values = "gen_random_uuid(), 'dead', 'default', 2, 0, clock(), clock(), clock(), 1, 1, 't', '{}'"
        query = f"insert into dead ({columns}) select {values} from generate_series(1, %s) returning id"
        return sorted(core.firsts(sql(query, [number])))
    ids = sorted(core.put(sql, max_attempts=1, **options) for _ in range(number))
    queue = options.get("queue", "default")
    while jobs := core.claim(sql, limit=500, queues=(queue,)):
        for job in jobs:
            core.fail(sql, job)
    return ids


def start(sql: Sql, kind: str, filter_: dict[str, Any] | None = None, **options: Any) -> uuid.UUID:
    casts = {"params": "jsonb", "ids": "uuid[]"}
    names = "".join(f", p_{name} => %s::{casts.get(name, 'text')}" for name in options)
    values = [json.dumps(value) if name == "params" else value for name, value in options.items()]
    query = f"select start_action(%s, %s::jsonb{names})"
    return sql(query, [kind, None if filter_ is None else json.dumps(filter_), *values])[0][0]


def work(sql: Sql) -> int:
    """Work until nothing is left to do at once, and return the number of steps."""
    steps = 0
    while sql("select id, more from work_actions()")[0] != (None, False):
        steps += 1
        assert steps < 1000
        if not sql("select 1 from actions where state = 'running' and locked = '{}'"):
            break
    return steps


def read(sql: Sql, action: uuid.UUID, columns: str = "state, matched, changed, skipped") -> tuple[Any, ...]:
    return sql(f"select {columns} from actions where id = %s", [action])[0]


# -- which jobs


def test_a_filter_retries_the_dead_jobs_that_match_and_no_others(each_sql: Sql) -> None:
    wanted, others = bury(each_sql, 3, task="mail"), bury(each_sql, 2, task="push")
    action = start(each_sql, "retry", {"task": "mail"}, by="ada", reason="the provider is back")
    work(each_sql)
    assert read(each_sql, action) == ("done", 3, 3, 0)
    assert sorted(core.firsts(each_sql("select id from live"))) == wanted
    assert sorted(core.firsts(each_sql("select id from dead"))) == others
    assert read(each_sql, action, "by, reason, preview, finished_at is not null") == (
        "ada",
        "the provider is back",
        3,
        True,
    )


FILTERS: dict[str, dict[str, Any]] = {
    "status": {"status": "dead"},
    "statuses": {"status": ["dead", "failed"], "task": "t"},
    "task": {"task": "t"},
    "tasks that begin so": {"task": "t*"},
    "queue": {"queue": "mail"},
    "error group": {"error_group": "0123456789abcdef"},
    "tenant": {"tenant": "acme"},
    "error type": {"error": "Oops"},
    "error code": {"error": "BLOCKED"},
    "arguments": {"args": {"order": {"id": 42}}},
    "created": {"since": "2000-01-01T00:00:00Z", "until": "2999-01-01T00:00:00+01:00"},
    "finished": {"finished_since": "2000-01-01T00:00Z", "finished_until": "2999-01-01 00:00:00.5-02"},
}


@pytest.mark.parametrize("name", FILTERS)
def test_each_field_of_a_filter_selects(sql: Sql, name: str) -> None:
    payload = {"order": {"id": 42, "more": 1}}
    (wanted,) = bury(sql, queue="mail", tenant="acme", payload=payload)
    error = {"type": "app.Oops", "code": "BLOCKED"}
    sql("update dead set last_error = %s, fingerprint = '0123456789abcdef'", [json.dumps(error)])
    (other,) = bury(sql, queue="other", payload={"order": {"id": 43}})
    sql("update dead set status = 'failed', task = 'u', last_error = '{}' where id = %s", [other])
    if name in ("created", "finished"):
        column = f"{name}_at"
        sql(f"update dead set {column} = '1999-01-01' where id = %s", [other])
    if name == "statuses":
        sql("update dead set status = 'failed' where id = %s", [wanted])
    start(sql, "discard", FILTERS[name])
    work(sql)
    assert core.firsts(sql("select id from history")) == [wanted]
    assert core.firsts(sql("select id from dead")) == [other]


def test_a_batch_selects_waiting_jobs(sql: Sql) -> None:
    batch = uuid.uuid4()
    sql("select open_batch(%s, 'b')", [batch])
    wanted, other = core.put(sql, batch=batch), core.put(sql)
    start(sql, "cancel", {"batch": str(batch)})
    work(sql)
    assert (core.status(sql, wanted), core.status(sql, other)) == ("canceled", "queued")


BAD: dict[str, tuple[str, Any, str]] = {
    "empty": ("retry", {}, "the filter is empty and would match every job"),
    "no object": ("retry", [1], "a filter must be a JSON object"),
    "no filter": ("retry", None, "a filter must be a JSON object"),
    "unknown field": ("retry", {"taks": "mail"}, "a filter has no field 'taks'; it has status, task"),
    "wrong type": ("retry", {"task": 1}, "task of a filter must be a string of 1 to 300 characters, got 1"),
    "null": ("retry", {"task": None}, "task of a filter must be a string of 1 to 300 characters, got null"),
    "no id": ("retry", {"batch": "b"}, "batch of a filter must be the id of a batch"),
    "no status": ("retry", {"status": "gone"}, "status of a filter must be one of, or a list of, queued"),
    "no statuses": ("retry", {"status": []}, "status of a filter must be one of"),
    "a status that cannot be retried": ("retry", {"status": "succeeded"}, "retry changes jobs that are failed or dead"),
    "a status that cannot be moved": ("cancel", {"status": "dead"}, "cancel changes jobs that are queued or retrying"),
    "no zone": ("retry", {"since": "2026-01-01T00:00:00"}, "a time with its zone"),
    "no time": ("retry", {"since": "2026-13-01T00:00:00Z"}, "a time with its zone"),
    "reversed": (
        "retry",
        {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        "the time span of the filter is empty",
    ),
    "ended, of waiting jobs": ("cancel", {"finished_since": "2026-01-02T00:00:00Z"}, "match none of them"),
    "no fingerprint": ("retry", {"error_group": "mail"}, "the fingerprint of an error group, 16 hexadecimal digits"),
    "no arguments": ("retry", {"args": {}}, "args of a filter must be a JSON object of arguments, at least one"),
    "unknown kind": ("explode", {"task": "t"}, "an action must be retry, discard, cancel"),
    "no parameter": ("move", {"task": "t"}, 'the parameters of move must be {"queue": VALUE}'),
}


@pytest.mark.parametrize("name", BAD)
def test_what_nobody_can_mean_is_refused_and_changes_nothing(each_sql: Sql, name: str) -> None:
    bury(each_sql)
    kind, filter_, message = BAD[name]
    before = core.state(each_sql)
    for function in ("start_action", "preview_action"):
        with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
            each_sql(f"select {function}(%s, %s::jsonb)", [kind, None if filter_ is None else json.dumps(filter_)])
        assert message in str(refused.value)
    assert core.state(each_sql) == before
    assert core.count(each_sql, "actions") == 0


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("prioritize", {"priority": 4}),
        ("prioritize", {"priority": "1"}),
        ("move", {"queue": "a/b"}),
        ("move", {"queue": 1}),
        ("reschedule", {"run_at": "tomorrow"}),
        ("reschedule", {"run_at": "2026-01-01T00:00:00Z", "queue": "x"}),
        ("retry", {"priority": 1}),
    ],
)
def test_parameters_that_do_not_fit_are_refused(sql: Sql, kind: str, params: dict[str, Any]) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        start(sql, kind, {"task": "t"}, params=params)
    assert core.count(sql, "actions") == 0


def test_a_tenants_view_holds_for_the_whole_life_of_an_action(each_sql: Sql) -> None:
    (mine,), (theirs,) = bury(each_sql, tenant="acme"), bury(each_sql, tenant="globex")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="the caller sees only jobs of 'acme'"):
        start(each_sql, "retry", {"tenant": "globex"}, tenant="acme")
    start(each_sql, "retry", {"task": "t"}, tenant="acme")
    start(each_sql, "discard", ids=[theirs], tenant="acme")
    work(each_sql)
    assert core.status(each_sql, mine) == "retrying"
    assert core.status(each_sql, theirs) == "dead"


def test_deliveries_of_webhooks_are_left_out_of_a_view_without_them(sql: Sql) -> None:
    (delivery,) = bury(sql, task="holdfast.webhook")
    sql("select start_action('retry', '{\"status\": \"dead\"}', p_deliveries => false)")
    work(sql)
    assert core.status(sql, delivery) == "dead"


def test_a_payload_that_jsonb_cannot_hold_does_not_stop_a_search(sql: Sql) -> None:
    (odd, wanted) = bury(sql, 2, payload={"a": 1})
    sql("update dead set payload = '{\"a\": 1e999999}' where id = %s", [odd])
    action = start(sql, "retry", {"args": {"a": 1}})
    work(sql)
    assert read(sql, action) == ("done", 1, 1, 0)
    assert core.status(sql, wanted) == "retrying"


# -- each job once, and none that came later


def test_what_dies_or_arrives_after_the_start_is_left_alone(each_sql: Sql) -> None:
    early = bury(each_sql, 2)
    running = core.put(each_sql, max_attempts=1)
    (job,) = core.claim(each_sql)
    action = start(each_sql, "retry", {"task": "t"})
    core.fail(each_sql, job)
    late = bury(each_sql, 2)
    work(each_sql)
    assert read(each_sql, action) == ("done", 2, 2, 0)
    assert sorted(core.firsts(each_sql("select id from live"))) == early
    assert sorted(core.firsts(each_sql("select id from dead"))) == sorted([running, *late])


def test_a_job_that_dies_again_while_the_action_runs_is_not_retried_again(sql: Sql) -> None:
    bury(sql, 1200)
    action = start(sql, "retry", {"task": "t"})
    sql("select work_actions(p_within => '0')")
    assert read(sql, action) == ("running", 500, 500, 0)
    retried = core.firsts(sql("select id from live"))
    for job in core.claim(sql, limit=500):
        core.fail(sql, job, outcome="dead")
    while core.firsts(sql("select state from actions")) == ["running"]:
        sql("select work_actions(p_within => '0')")
    assert read(sql, action) == ("done", 1200, 1200, 0)
    assert sorted(core.firsts(sql("select id from dead"))) == sorted(retried)


def test_a_job_that_moves_between_the_tables_is_changed_once(sql: Sql) -> None:
    """The scan goes by id through live and later at once, so no move can hide a job from it."""
    ids = sorted(core.put(sql, delay="1 hour" if i % 2 else None) for i in range(1001))
    action = start(sql, "prioritize", {"task": "t"}, params={"priority": 0})
    steps = 0
    while core.firsts(sql("select state from actions")) == ["running"]:
        sql("select work_actions(p_within => '0')")
        sql("update later set run_at = clock()")
        sql("select promote()")
        for job in core.claim(sql, limit=3):
            core.snooze(sql, job, "1 hour")
        steps += 1
    assert steps == 3
    assert read(sql, action) == ("done", 1001, 1001, 0)
    assert sql("select count(*), min(priority), max(priority) from jobs") == [(len(ids), 0, 0)]


def test_an_action_ends_at_once_if_there_is_nothing(sql: Sql) -> None:
    action = start(sql, "cancel", {"task": "t"})
    core.put(sql)
    work(sql)
    assert read(sql, action) == ("done", 0, 0, 0)
    assert core.count(sql, "live") == 1


def test_several_callers_work_on_one_action_in_turn_and_change_each_job_once(dsn: str, sql: Sql) -> None:
    bury(sql, 20)
    action = start(sql, "retry", {"task": "t"})
    with core.session(dsn, autocommit=False) as one, core.session(dsn) as other:
        assert one.execute("select id from work_actions()").fetchone() == (action,)
        assert other.execute("select id from work_actions()").fetchone() == (None,)
        one.commit()
    assert read(sql, action) == ("done", 20, 20, 0)


def test_a_step_that_is_rolled_back_is_made_again(dsn: str, sql: Sql) -> None:
    ids = bury(sql, 10)
    action = start(sql, "retry", {"task": "t"})
    with core.session(dsn, autocommit=False) as one:
        one.execute("select work_actions()")
        one.rollback()
    assert read(sql, action) == ("running", 0, 0, 0)
    work(sql)
    assert read(sql, action) == ("done", 10, 10, 0)
    assert sorted(core.firsts(sql("select id from live"))) == ids


def test_a_job_that_another_transaction_holds_is_changed_when_it_is_free(dsn: str, sql: Sql) -> None:
    held, free = bury(sql, 2)
    action = start(sql, "retry", {"task": "t"})
    with core.session(dsn, autocommit=False) as open_:
        open_.execute("select 1 from dead where id = %s for update", [held])
        sql("select work_actions()")
        assert read(sql, action, "state, matched, changed, locked") == ("running", 2, 1, [held])
        assert core.status(sql, free) == "retrying"
        assert sql("select more from work_actions()") == [(False,)]
    work(sql)
    assert read(sql, action, "state, matched, changed, skipped, locked") == ("done", 2, 2, 0, [])


def test_a_dedupe_key_that_an_open_transaction_takes_does_not_hold_up_the_rest(dsn: str, sql: Sql) -> None:
    keyed, *others = bury(sql, 1, dedupe_key="k") + bury(sql, 5)
    action = start(sql, "retry", {"task": "t"})
    with core.session(dsn, autocommit=False) as open_:
        open_.execute("select enqueue('t', p_dedupe_key => 'k')")
        sql("set statement_timeout = '2s'")
        sql("select work_actions()")
        assert read(sql, action, "state, changed, locked") == ("running", 5, [keyed])
        assert {core.status(sql, each) for each in others} == {"retrying"}
        open_.commit()
    work(sql)
    assert read(sql, action) == ("done", 6, 5, 1)  # a newer job holds its key
    assert core.status(sql, keyed) == "dead"


def test_a_locked_job_that_was_retried_and_died_again_meanwhile_is_left_alone(dsn: str, sql: Sql) -> None:
    (held,) = bury(sql)
    action = start(sql, "retry", {"task": "t"})
    with core.session(dsn, autocommit=False) as open_:
        open_.execute("select retry_dead(array[%s]::uuid[])", [held])
        sql("select work_actions()")
        open_.commit()
    (job,) = core.claim(sql)
    core.fail(sql, job, outcome="dead")
    work(sql)
    assert read(sql, action) == ("done", 0, 0, 0)
    assert core.status(sql, held) == "dead"


def test_an_aborted_action_stops_where_it_is(each_sql: Sql) -> None:
    bury(each_sql, 1000)
    action = start(each_sql, "retry", {"task": "t"})
    each_sql("select work_actions(p_within => '0')")
    assert each_sql("select abort_action(%s, 'ada', 'a mistake')", [action]) == [(True,)]
    assert each_sql("select abort_action(%s)", [action]) == [(False,)]
    work(each_sql)
    assert read(each_sql, action) == ("aborted", 500, 500, 0)
    assert core.count(each_sql, "dead") == 500
    assert each_sql("select kind, target, by, reason from audit where kind = 'abort'") == [
        ("abort", str(action), "ada", "a mistake")
    ]


def test_a_started_action_is_started_once(sql: Sql) -> None:
    bury(sql)
    id_ = str(uuid.uuid4())
    for _ in range(2):
        assert sql("select start_action('retry', '{\"task\": \"t\"}', p_id => %s)", [id_]) == [(uuid.UUID(id_),)]
    assert core.count(sql, "actions") == 1


def test_a_list_changes_its_jobs_and_skips_the_rest(sql: Sql) -> None:
    one, two, _ = bury(sql, 3)
    waiting = core.put(sql)
    action = start(sql, "retry", ids=[one, two, two, waiting, uuid.uuid4()])
    work(sql)
    assert read(sql, action)[::2] == ("done", 2)
    assert core.count(sql, "dead") == 1


def test_a_step_reads_a_bounded_part_where_few_jobs_match(sql: Sql) -> None:
    bury(sql, 3000)
    action = start(sql, "retry", {"task": "nowhere"})
    for scanned in (500, 1000, 1500):
        assert sql("select more from work_actions(p_within => '0')") == [(True,)]
        assert read(sql, action, "scanned") == (scanned,)


def test_a_job_that_cannot_be_changed_is_skipped_and_named(sql: Sql) -> None:
    bad, good = bury(sql, 2)
    sql("alter table live add constraint for_a_test check (task <> 'bad') not valid")
    try:
        sql("update dead set task = 'bad' where id = %s", [bad])
        action = start(sql, "retry", {"status": "dead"})
        work(sql)
    finally:
        sql("alter table live drop constraint for_a_test")
    assert read(sql, action) == ("done", 2, 1, 1)
    assert str(bad) in read(sql, action, "error")[0]
    assert core.status(sql, good) == "retrying"


# -- preview


def test_a_preview_counts_and_shows_ten(each_sql: Sql) -> None:
    ids = bury(each_sql, 12, task="mail")
    bury(each_sql, task="push")
    query = "select matching, complete, examples from preview_action('retry', '{\"task\": \"mail\"}')"
    assert each_sql(query) == [(12, True, ids[:10])]
    assert core.count(each_sql, "actions") == 0


def test_a_preview_stops_counting_at_10_001(sql: Sql) -> None:
    sql("insert into live (id, task) select gen_random_uuid(), 't' from generate_series(1, 10500)")
    assert sql("select matching, complete from preview_action('cancel', '{\"task\": \"t\"}')") == [(10001, True)]


def test_a_preview_without_time_says_that_it_is_incomplete(sql: Sql) -> None:
    bury(sql)
    query = "select matching, complete from preview_action('retry', '{\"task\": \"t\"}', p_within => '0')"
    assert sql(query) == [(0, False)]


# -- waiting jobs: cancel, prioritize, move, reschedule


def test_a_filter_cancels_waiting_delayed_and_running_jobs(each_sql: Sql) -> None:
    running, due, later = core.put(each_sql), None, core.put(each_sql, delay="1 hour")
    core.claim_one(each_sql)
    due = core.put(each_sql)
    action = start(each_sql, "cancel", {"queue": "default"})
    work(each_sql)
    assert read(each_sql, action) == ("done", 3, 3, 0)
    assert [core.status(each_sql, each) for each in (due, later, running)] == ["canceled", "canceled", "running"]
    assert core.firsts(each_sql("select id from cancels")) == [running]


def test_moved_jobs_are_claimed_from_their_new_queue_with_their_limits(each_sql: Sql) -> None:
    flow.limit(each_sql, "k", concurrency=2)
    plain, tenants = core.put(each_sql), core.put(each_sql, tenant="acme")
    limited = [core.put(each_sql, keys=["k"]) for _ in range(3)]
    each_sql("select lock_ring(), fold_arrivals('default', next_token())")
    later = core.put(each_sql, delay="1 hour")
    start(each_sql, "move", {"queue": "default"}, params={"queue": "other"})
    work(each_sql)
    assert core.claim(each_sql) == []
    taken = {job.id for job in core.claim(each_sql, queues=("other",))}
    assert taken > {plain, tenants} and len(taken & set(limited)) == 2
    assert each_sql("select queue from later where id = %s", [later]) == [("other",)]
    assert each_sql("select * from limit_drift") == []


def test_a_lane_whose_jobs_moved_away_is_emptied_and_opened_again(sql: Sql) -> None:
    old = core.put(sql, tenant="acme")
    taken = core.put(sql, tenant="acme")
    start(sql, "move", ids=[old], params={"queue": "other"})
    work(sql)
    assert [job.id for job in core.claim(sql)] == [taken]
    assert core.claim(sql) == []
    back = core.put(sql, tenant="acme")
    assert [job.id for job in core.claim(sql)] == [back]


def test_jobs_get_a_priority(sql: Sql) -> None:
    first, urgent = core.put(sql, tenant="acme"), core.put(sql, tenant="acme")
    start(sql, "prioritize", ids=[urgent], params={"priority": 0})
    work(sql)
    assert [core.claim_one(sql).id for _ in range(2)] == [urgent, first]


def test_jobs_that_are_so_already_are_skipped(sql: Sql) -> None:
    core.put(sql, queue="other")
    action = start(sql, "move", {"task": "t"}, params={"queue": "other"})
    work(sql)
    assert read(sql, action) == ("done", 1, 0, 1)


def test_jobs_are_put_off_and_brought_forward(each_sql: Sql) -> None:
    due, later = core.put(each_sql, tenant="acme"), core.put(each_sql, delay="1 hour", tenant="acme")
    late = core.put(each_sql, deadline="1 hour")
    action = start(each_sql, "reschedule", {"task": "t"}, params={"run_at": "2999-01-01T00:00:00Z"})
    work(each_sql)
    assert read(each_sql, action) == ("done", 3, 2, 1)  # a deadline passes before
    assert {core.place(each_sql, each) for each in (due, later)} == {"later"}
    assert each_sql("select distinct run_at = '2999-01-01Z' from later") == [(True,)]
    start(each_sql, "reschedule", {"task": "t"}, params={"run_at": "2000-01-01T00:00:00Z"})
    work(each_sql)
    assert {job.id for job in core.claim(each_sql)} == {due, later, late}


def test_a_moved_job_keeps_its_order_batch_and_dedupe_key(sql: Sql) -> None:
    batch = uuid.uuid4()
    sql("select open_batch(%s, 'b')", [batch])
    kept, next_ = (core.put(sql, keys=["order:o"], dedupe_key=key, batch=batch) for key in ("a", "b"))
    (job,) = core.claim(sql)
    core.fail(sql, job, delay="1 hour")
    start(sql, "move", {"task": "t"}, params={"queue": "other"})
    work(sql)
    assert core.claim(sql, queues=("other",)) == []  # the first of the order waits for its retry
    start(sql, "reschedule", ids=[kept], params={"run_at": "2000-01-01T00:00:00Z"})
    work(sql)
    assert [each.id for each in core.claim(sql, queues=("other",))] == [kept]
    core.finish(
        sql,
        core.Claimed(
            *sql(
                "select l.id, l.token, l.task, null, 1, 1, null, null, null, null, null, null, "
                "null, null, null, null, null from live l where token is not null"
            )[0]
        ),
    )
    assert [each.id for each in core.claim(sql, queues=("other",))] == [next_]
    assert core.enqueue(sql, dedupe_key="b") == (next_, "existing")
    assert sql("select total, succeeded from batch_progress") == [(2, 1)]
    assert sql("select * from limit_drift") == []


# -- at once, and edited


def test_acting_on_jobs_at_once_returns_outcomes_and_is_recorded(each_sql: Sql) -> None:
    (dead,), waiting = bury(each_sql), core.put(each_sql)
    query = "select id, outcome from act_on_jobs('retry', %s::uuid[], p_by => 'ada', p_reason => 'why')"
    assert dict(each_sql(query, [[dead, waiting]])) == {dead: "changed", waiting: "unchanged"}
    query = "select outcome from act_on_jobs('cancel', array[%s]::uuid[], p_by => 'ada')"
    assert each_sql(query, [dead]) == [("canceled",)]
    assert each_sql("select kind, target, by, reason, matched, changed, skipped, state from audit order by id") == [
        ("retry", None, "ada", "why", 2, 1, 1, "done"),
        ("cancel", str(dead), "ada", None, 1, 1, 0, "done"),
    ]


def test_acting_at_once_respects_the_view(sql: Sql) -> None:
    theirs = core.put(sql, tenant="globex")
    query = "select outcome from act_on_jobs('cancel', array[%s]::uuid[], p_tenant => 'acme')"
    assert sql(query, [theirs]) == [("unknown",)]
    assert core.status(sql, theirs) == "queued"


def edit(sql: Sql, job: uuid.UUID, args: Any, **options: Any) -> str:
    names = "".join(f", p_{name} => %s" for name in options)
    return sql(f"select edit_job(%s, %s::jsonb{names})", [job, json.dumps(args), *options.values()])[0][0]


def test_a_dead_job_runs_again_with_other_arguments_and_the_old_ones_stay_readable(each_sql: Sql) -> None:
    (dead,) = bury(each_sql, payload={"order": 1}, keys=["k"])
    assert edit(each_sql, dead, {"order": 2}, by="ada", reason="a typo", keys=["l"]) == "retried"
    (job,) = core.claim(each_sql)
    assert (job.id, job.payload, job.keys, job.attempt) == (dead, {"order": 2}, ["l"], 1)
    assert each_sql("select kind, target, by, reason, before, after from audit") == [
        ("edit", str(dead), "ada", "a typo", {"args": {"order": 1}}, {"args": {"order": 2}})
    ]


@pytest.mark.parametrize("delay", [None, "1 hour"])
def test_a_waiting_job_is_edited_where_it_is(sql: Sql, delay: str | None) -> None:
    job = core.put(sql, payload={"a": 1}, delay=delay, tenant="acme", keys=["k"])
    assert edit(sql, job, {"a": 2}, keys=["l"]) == "edited"
    sql("update later set run_at = clock()")
    core.promote(sql)
    assert [(each.id, each.payload, each.keys) for each in core.claim(sql)] == [(job, {"a": 2}, ["l"])]


def test_edits_that_cannot_be_made_are_refused_and_change_nothing(sql: Sql) -> None:
    running = core.put(sql)
    core.claim_one(sql)
    keyed = bury(sql, dedupe_key="k")[0]
    newer = core.put(sql, dedupe_key="k")
    message = sql("select id from emit('mail', '{}', 'm')")[0][0]
    before = core.state(sql)
    for job, args, options, says in (
        (running, {}, {}, "it is running"),
        (uuid.uuid4(), {}, {}, "there is none"),
        (keyed, {}, {}, "a newer job holds its dedupe key"),
        (newer, [], {}, "must be a JSON object"),
        (newer, {}, {"expected": '{"other": 1}'}, "have changed meanwhile"),
        (newer, {}, {"tenant": "acme"}, "there is none"),
        (message, {}, {}, "a message or a delivery"),
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=says):
            edit(sql, job, args, **options)
    assert core.state(sql) == before
    assert core.count(sql, "actions") == 0


# -- the log


def test_what_operators_do_is_recorded_with_values_before_and_after(sql: Sql) -> None:
    schedule = {"name": "s", "task": "t", "cron": "0 3 * * *", "zone": "UTC", "missed": "once", "payload": {}}
    sql("select register_schedules(%s)", [json.dumps([{**schedule, "options": {}}])])
    token = uuid.uuid4()
    for statement in (
        """set_limit('k', '{"concurrency": 2}', 'ada', 'r')""",
        """set_limit('k', '{"concurrency": 3}', 'ada')""",
        "clear_limit('k', 'ada', 'r')",
        "pause('queue:mail', 'ada', 'r', '1 hour')",
        "resume('queue:mail', 'ada', 'r')",
        "pause_schedule('s', true, 'ada', 'r')",
        "pause_schedule('s', false, 'ada', 'r')",
        "run_schedule('s', null, 'ada', 'r')",
        "remove_schedule('s', 'ada', 'r')",
        f"create_token('{token}', 'n', sha256('secret'), 'hf_x', 'acme', '{{jobs:read}}', p_by => 'ada')",
        f"revoke_token('{token}', 'ada', 'r')",
    ):
        sql(f"select {statement}")
    rows = sql("select kind, target, by, before, after from audit order by id")
    assert [row[:3] for row in rows] == [
        ("limits.set", "k", "ada"),
        ("limits.set", "k", "ada"),
        ("limits.clear", "k", "ada"),
        ("pause", "queue:mail", "ada"),
        ("resume", "queue:mail", "ada"),
        ("schedules.pause", "s", "ada"),
        ("schedules.resume", "s", "ada"),
        ("schedules.run", "s", "ada"),
        ("schedules.remove", "s", "ada"),
        ("tokens.create", str(token), "ada"),
        ("tokens.revoke", str(token), "ada"),
    ]
    assert [row[3] for row in rows[:4]] == [{}, {"concurrency": 2}, {"concurrency": 3}, {"paused": False}]
    assert rows[9][4]["scopes"] == ["jobs:read"]
    assert "secret" not in str(rows) and "hf_x" not in str(rows)


IDLE = ("clear_limit('k')", "resume('k')", "reset_breaker('k')", "remove_schedule('s')")


@pytest.mark.parametrize("statement", [*IDLE, "revoke_token(gen_random_uuid())"])
def test_a_call_that_changes_nothing_is_not_recorded(sql: Sql, statement: str) -> None:
    sql(f"select {statement}")
    assert core.count(sql, "actions") == 0


def test_an_endpoint_that_a_worker_disables_is_not_an_operators_action(sql: Sql) -> None:
    id_ = uuid.uuid4()
    sql("select add_endpoint(%s, 'https://a.example', 'plain:s', p_by => 'ada')", [id_])
    sql("select disable_endpoint(%s, 'gone', 'https://a.example')", [id_])
    assert sql("select enabled from webhook_endpoints") == [(False,)]
    sql("select change_endpoint(%s, '{\"enabled\": true}', 'ada', 'back')", [id_])
    sql("select change_endpoint(%s, '{\"enabled\": true}', 'ada')", [id_])
    sql("select add_endpoint(%s, 'https://a.example', 'plain:s', p_by => 'ada')", [id_])
    sql("select rotate_secret(%s, 'plain:s', p_by => 'ada')", [id_])
    assert sql("select kind, reason from audit order by id") == [("webhooks.add", None), ("webhooks.enable", "back")]
    assert "plain:s" not in str(sql("select * from actions"))


def test_a_batch_that_a_person_cancels_is_recorded_once_and_one_that_a_program_cancels_is_not(sql: Sql) -> None:
    for name, author in (("by a program", ""), ("by a person", ", p_by => 'ada', p_reason => 'wrong file'")):
        batch = uuid.uuid4()
        sql("select open_batch(%s, %s)", [batch, name])
        for _ in range(2):
            sql(f"select cancel_batch(%s{author})", [batch])
    assert sql("select kind, target, by, reason from audit") == [("batches.cancel", str(batch), "ada", "wrong file")]


def test_programs_that_act_on_their_own_jobs_write_no_log(sql: Sql) -> None:
    (dead, gone), waiting = bury(sql, 2), core.put(sql)
    core.retry_dead(sql, dead)
    core.discard_dead(sql, gone)
    core.cancel(sql, waiting)
    assert core.count(sql, "actions") == 0


def test_the_author_is_the_database_user_unless_one_is_named(sql: Sql) -> None:
    sql("select pause('k')")
    assert sql("select by = session_user from audit") == [(True,)]


def test_ended_actions_are_pruned_and_running_ones_stay(sql: Sql) -> None:
    bury(sql)
    old, running = start(sql, "retry", {"task": "t"}), start(sql, "retry", {"task": "u"})
    sql("select work_actions(%s)", [old])
    sql("update actions set started_at = '2000-01-01', finished_at = case when id = %s then started_at end", [old])
    sql("update actions set finished_at = '2000-01-01' where finished_at is not null")
    sql("select prune()")
    assert core.firsts(sql("select id from actions")) == [running]


# -- beside everything else


ACTIONS: dict[str, dict[str, Any]] = {
    "retry": {},
    "discard": {},
    "cancel": {},
    "prioritize": {"priority": 1},
    "move": {"queue": "other"},
    "reschedule": {"run_at": "2000-01-01T00:00:00Z"},
}


def test_random_actions_beside_claims_and_ends_lose_no_job_and_no_count(sql: Sql, seeded: random.Random) -> None:
    """Limits are counted exactly, each job is in one place, and each action accounts for all that it matched."""
    flow.limit(sql, "k", concurrency=3)
    made: set[uuid.UUID] = set()
    running: list[core.Claimed] = []

    def enqueue() -> None:
        keys = seeded.choice([None, ["k"], ["order:o"], ["k", "order:p"]])
        delay = seeded.choice([None, None, "1 hour"])
        made.add(core.put(sql, tenant=seeded.choice([None, "a", "b"]), keys=keys, delay=delay, max_attempts=2))

    def end() -> None:
        if running:
            job = running.pop(seeded.randrange(len(running)))
            seeded.choice([core.finish, core.fail, core.snooze, core.release])(sql, job)

    def begin() -> None:
        kind = seeded.choice(list(ACTIONS))
        start(sql, kind, {"task": "t"} | seeded.choice([{}, {"tenant": "a"}]), params=ACTIONS[kind])  # type: ignore[arg-type]

    steps = {
        enqueue: 6,
        end: 4,
        begin: 1,
        lambda: running.extend(core.claim(sql, limit=4, queues=("default", "other"))): 4,
        lambda: sql("select work_actions()"): 2,
        lambda: sql("update later set run_at = clock() where random() < 0.5"): 1,
        lambda: core.promote(sql): 2,
    }
    for step in seeded.choices(list(steps), list(steps.values()), k=400):
        step()
        assert sql("select * from limit_drift") == []
    work(sql)
    places = core.firsts(sql(f"select id from ({core.PLACES}) p"))
    assert sorted(places) == sorted(made)
    assert sql("select distinct state, matched = changed + skipped from actions") == [("done", True)]
