"""Schedules in SQL: registration, firing each slot once however many try, pauses, and what operators do."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from test_fencing import mutant

from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_core import Sql

MINUTE = timedelta(minutes=1)
CRON = "* * * * *"


def register(sql: Sql, name: str = "s", **changes: Any) -> None:
    given = {
        "name": name,
        "task": "t",
        "cron": CRON,
        "zone": "UTC",
        "missed": "once",
        "payload": {"n": 1},
        "options": {},
    }
    sql("select register_schedules(%s::jsonb)", [json.dumps([given | changes])])


class NotFired(Exception):
    """A schedule's problem, as fire_schedules returns it."""


def fire(
    sql: Sql, next_at: datetime, slots: list[datetime], then: datetime | None, name: str = "s", cron: str = CRON
) -> list[uuid.UUID] | None:
    query = """select ids, problem from fire_schedules(jsonb_build_array(jsonb_build_object(
        'name', %s::text, 'cron', %s::text, 'zone', 'UTC', 'next_at', %s::timestamptz, 'slots', %s::timestamptz[],
        'then', %s::timestamptz)))"""
    ((fired, problem),) = sql(query, [name, cron, next_at, slots, then])
    if problem is not None:
        raise NotFired(problem)
    return fired


def fire_next(sql: Sql, name: str = "s") -> list[uuid.UUID] | None:
    """Fire the slot that is due and move on by a minute, as a leader would."""
    at = place(sql, name)
    return fire(sql, at, [at], at + MINUTE, name)


def place(sql: Sql, name: str = "s") -> datetime:
    return row(sql, "next_at", name)


def row(sql: Sql, column: str, name: str = "s") -> Any:
    return sql(f"select {column} from schedules where name = %s", [name])[0][0]


def due(sql: Sql, **options: Any) -> list[str]:
    given = {"limit": 100, "except": [], **options}
    rows = sql("select name, next_at <= now from next_schedules(%s, %s)", [given["limit"], given["except"]])
    return [name for name, is_due in rows if is_due]


def slots_fired(sql: Sql) -> list[datetime]:
    return core.firsts(sql("select run_at from jobs order by run_at"))


def pause(sql: Sql, paused: bool = True, name: str = "s") -> bool:
    return sql("select pause_schedule(%s, %s)", [name, paused])[0][0]


# -- registration


def test_a_new_schedule_counts_slots_from_now_on(each_sql: Sql, each_clock: Clock) -> None:
    register(each_sql)
    assert place(each_sql) == each_clock.now
    assert row(each_sql, "last_at") is None
    assert row(each_sql, "registered_at") == each_clock.now


def test_registering_again_keeps_the_place_so_that_a_restart_loses_no_slot(sql: Sql, clock: Clock) -> None:
    register(sql)
    before = place(sql)
    clock.advance(3600)
    register(sql, payload={"n": 2}, task="t2", missed="all", options={"tenant": "acme"})
    assert place(sql) == before
    assert sql("select task, missed::text, payload, options, registered_at from schedules") == [
        ("t2", "all", {"n": 2}, {"tenant": "acme"}, clock.now)
    ]


@pytest.mark.parametrize("change", [{"cron": "0 3 * * *"}, {"zone": "Europe/Berlin"}])
def test_a_changed_timetable_starts_anew(sql: Sql, clock: Clock, change: dict[str, str]) -> None:
    register(sql)
    clock.advance(3600)
    register(sql, **change)
    assert place(sql) == clock.now


def test_a_changed_timetable_never_fires_a_slot_again(sql: Sql, clock: Clock) -> None:
    """A registration that waited for a firing may have a clock from before it."""
    register(sql)
    at = place(sql)
    assert fire_next(sql)
    clock.advance(-1)
    register(sql, cron="*/5 * * * *")
    assert place(sql) > at


def test_a_pause_and_what_was_fired_survive_registration(sql: Sql, clock: Clock) -> None:
    register(sql)
    (job,) = fire_next(sql) or []
    assert pause(sql)
    register(sql, cron="0 3 * * *")
    assert sql("select paused, last_at, last_job from schedules") == [(True, clock.start, job)]


def test_other_applications_schedules_are_left_alone(sql: Sql) -> None:
    register(sql, "mine")
    register(sql, "theirs", task="other")
    register(sql, "mine")
    assert sql("select name, task from schedules order by 1") == [("mine", "t"), ("theirs", "other")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": None},
        {"name": "x" * 201},
        {"task": ""},
        {"task": None},
        {"cron": ""},
        {"cron": "x" * 201},
        {"missed": "never"},
        {"payload": [1]},
        {"payload": None},
        {"options": {"queue": "a/b"}},
        {"zone": ""},
        {"options": {"priority": 9}},
        {"options": {"max_attempts": 0}},
        {"options": {"tenant": ""}},
    ],
)
def test_a_schedule_that_could_never_fire_is_refused(sql: Sql, wrong: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error) as exc_info:
        register(sql, **wrong)
    assert exc_info.value.sqlstate is not None and exc_info.value.sqlstate[:2] in ("22", "23")
    assert core.count(sql, "schedules") == 0


# -- what is due


def test_schedules_are_due_from_their_slot_on_by_the_databases_clock(each_sql: Sql, each_clock: Clock) -> None:
    register(each_sql, "late")
    each_clock.advance(5)
    register(each_sql, "now")
    each_sql("update schedules set next_at = clock() + interval '1 second' where name = 'now'")
    assert due(each_sql) == ["late"]
    rows = each_sql("select name, extract(epoch from next_at - now)::int from next_schedules()")
    assert rows == [("late", -5), ("now", 1)]
    each_clock.advance(1)
    assert due(each_sql) == ["late", "now"]


def test_schedules_paused_set_aside_or_without_a_next_slot_are_not_due(sql: Sql) -> None:
    for name in ("runs", "paused", "aside", "never"):
        register(sql, name)
    pause(sql, name="paused")
    sql("update schedules set next_at = null where name = 'never'")
    assert due(sql, **{"except": ["aside"]}) == ["runs"]
    assert due(sql) == ["runs", "aside"]
    assert due(sql, limit=1) == ["runs"]


def test_upkeep_returns_to_its_leader_when_the_next_slot_comes(sql: Sql, clock: Clock) -> None:
    def next_slot(worker: str) -> float | None:
        return sql("select next_slot from upkeep(%s, '10 seconds')", [worker])[0][0]

    assert next_slot("a") is None
    register(sql, "soon")
    register(sql, "paused")
    sql("update schedules set next_at = clock() + interval '90 seconds' where name = 'soon'")
    pause(sql, name="paused")
    assert next_slot("a") == 90
    assert next_slot("b") is None, "who does not lead has nothing to wait for"
    clock.advance(95)
    assert next_slot("a") == -5


# -- firing


def test_a_slot_becomes_a_job_with_the_schedules_options(each_sql: Sql, each_clock: Clock) -> None:
    retry = {"kind": "fixed", "delay": 7}
    options = {"queue": "q", "tenant": "acme", "priority": 1, "max_attempts": 3, "retry": retry}
    register(each_sql, options=options)
    at = place(each_sql)
    each_clock.advance(2)
    (id_,) = fire_next(each_sql) or []
    job = core.look(each_sql, id_)
    assert (job.task, job.payload, job.queue, job.tenant, job.priority, job.max_attempts) == (
        "t",
        {"n": 1},
        "q",
        "acme",
        1,
        3,
    )
    assert (job.status, job.run_at, job.created_at) == ("queued", at, each_clock.now)
    assert each_sql("select retry from live") == [(retry,)]
    assert each_sql("select next_at, last_at, last_job from schedules") == [(at + MINUTE, at, id_)]


def test_many_slots_are_fired_in_order_and_the_last_is_remembered(sql: Sql, clock: Clock) -> None:
    register(sql)
    at = place(sql)
    clock.advance(600)
    slots = [at + n * MINUTE for n in range(10)]
    ids = fire(sql, at, slots, at + 10 * MINUTE)
    assert ids is not None and [core.look(sql, id_).run_at for id_ in ids] == slots
    assert slots_fired(sql) == slots
    assert sql("select last_at, last_job from schedules") == [(slots[-1], ids[-1])]


def test_no_slot_at_all_only_moves_the_schedule_on(sql: Sql, clock: Clock) -> None:
    register(sql)
    assert fire(sql, clock.now, [], clock.now + MINUTE) == []
    assert core.count(sql, "jobs") == 0
    assert sql("select next_at, last_at, last_job from schedules") == [(clock.now + MINUTE, None, None)]
    clock.advance(60)
    assert fire(sql, clock.now, [clock.now], None) is not None
    assert place(sql) is None


def test_nothing_is_fired_before_its_time_by_another_timetable_while_paused_or_by_an_unknown_name(
    sql: Sql, clock: Clock
) -> None:
    register(sql)
    at = clock.now
    sql("update schedules set next_at = %s", [at + MINUTE])
    assert fire(sql, at + MINUTE, [], at + 2 * MINUTE) is None, "not due yet"
    clock.advance(60)
    assert fire(sql, at + MINUTE, [at + MINUTE], at + 2 * MINUTE, cron="0 3 * * *") is None
    assert fire(sql, at + MINUTE, [at + MINUTE], at + 2 * MINUTE, name="other") is None
    pause(sql)
    assert fire(sql, at + MINUTE, [at + MINUTE], at + 2 * MINUTE) is None
    assert core.count(sql, "jobs") == 0
    assert place(sql) == at + MINUTE


@pytest.mark.parametrize("hour", [0, 1])
def test_a_slot_in_the_hour_that_comes_twice_is_the_same_in_any_connections_zone(
    dsn: str, sql: Sql, clock: Clock, hour: int
) -> None:
    at = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)  # 02:30 in Berlin, the first and the second
    clock.set(at)
    register(sql)
    with core.session(dsn) as leader:
        leader.execute("set timezone = 'Europe/Berlin'")
        run = core.runner(leader)
        assert f"{place(run):%H:%M}" == "02:30"
        assert fire(run, place(run), [place(run)], at + MINUTE)
    assert slots_fired(sql) == [at]


def test_slots_that_make_no_sense_are_refused(sql: Sql, clock: Clock) -> None:
    register(sql)
    at = clock.now
    clock.advance(120)
    for slots, then in (
        ([at - MINUTE], at + 3 * MINUTE),  # before where it stands
        ([at, at], at + 3 * MINUTE),  # twice
        ([at + MINUTE, at], at + 3 * MINUTE),  # backwards
        ([at, at + MINUTE], at + MINUTE),  # would come again
        ([at + 3 * MINUTE], at + 4 * MINUTE),  # in the future
        ([], at),  # no progress
        ([], at - MINUTE),
        (None, at + MINUTE),
        ([], "infinity"),
    ):
        with pytest.raises(NotFired, match="cannot be fired"):
            fire(sql, at, slots, then)  # type: ignore[arg-type]
    assert place(sql) == at


def test_a_crash_before_commit_loses_no_slot_and_fires_none(dsn: str, sql: Sql) -> None:
    register(sql)
    at = place(sql)
    with core.session(dsn, autocommit=False) as leader:
        assert fire_next(core.runner(leader))
        leader.rollback()
    assert place(sql) == at
    assert core.count(sql, "jobs") == 0
    assert fire_next(sql)
    assert slots_fired(sql) == [at]


def test_a_schedule_that_cannot_be_enqueued_stays_where_it_is(sql: Sql) -> None:
    register(sql)
    at = place(sql)
    sql("""update schedules set options = '{"queue": "a/b"}'""")
    with pytest.raises(NotFired, match="queue"):
        fire_next(sql)
    assert place(sql) == at


def test_a_slot_whose_dedupe_key_is_held_counts_as_fired_by_the_holder(sql: Sql, clock: Clock) -> None:
    register(sql, options={"dedupe_key": "k"})
    (first,) = fire_next(sql) or []
    clock.advance(60)
    assert fire_next(sql) == [first]
    assert core.count(sql, "jobs") == 1
    core.finish(sql, core.claim_one(sql))
    clock.advance(60)
    assert fire_next(sql) != [first]


def test_firing_wakes_a_worker_that_sleeps_on_the_queue(dsn: str, sql: Sql) -> None:
    sql("select sleep('sleeper', '{q}')")
    with core.session(dsn) as ears:
        ears.execute("listen holdfast_wake")
        register(sql, options={"queue": "q"})
        fire_next(sql)
        assert [n.payload for n in ears.notifies(timeout=40, stop_after=1)] == ["sleeper"]


def test_a_schedule_that_cannot_be_fired_keeps_no_other_from_firing(each_sql: Sql, each_clock: Clock) -> None:
    sql, at = each_sql, each_clock.now
    for name in ("bad", "good", "gone", "odd"):
        register(sql, name)
    sql("""update schedules set options = '{"queue": "a/b"}' where name = 'bad'""")
    sql("update schedules set next_at = next_at + interval '1 day' where name = 'gone'")
    fires = [
        {"name": name, "cron": CRON, "zone": "UTC", "next_at": str(at), "slots": [str(at)], "then": str(at + MINUTE)}
        for name in ("bad", "good", "gone")
    ]
    fires.append(fires[1] | {"name": "odd", "then": "infinity"})
    reports = {row[0]: row[1:] for row in sql("select name, ids, problem from fire_schedules(%s)", [json.dumps(fires)])}
    assert "queue" in reports["bad"][1]
    assert "cannot be fired" in reports["odd"][1]
    assert reports["gone"] == (None, None)
    assert len(reports["good"][0]) == 1
    assert slots_fired(sql) == [at]


def test_schedules_fired_together_take_their_dedupe_keys_in_order(dsn: str, sql: Sql) -> None:
    """As every batch does, so that two of them cannot wait for each other."""
    for name, key in (("a", "k2"), ("b", "k1")):
        register(sql, name, options={"dedupe_key": key})
    fires = [
        {
            "name": n,
            "cron": CRON,
            "zone": "UTC",
            "next_at": str(place(sql, n)),
            "slots": [str(place(sql, n))],
            "then": None,
        }
        for n in "ab"
    ]
    names = sql("select name from fire_schedules(%s)", [json.dumps(fires)])
    assert core.firsts(names) == ["b", "a"]


def test_a_key_that_a_transaction_holds_is_not_waited_for(dsn: str, sql: Sql) -> None:
    register(sql, options={"dedupe_key": "k"})
    with core.session(dsn, autocommit=False) as other:
        core.enqueue(core.runner(other), dedupe_key="k")
        with pytest.raises(NotFired, match="lock timeout"):
            fire_next(sql)
        other.rollback()
    assert fire_next(sql)


# -- two leaders


def check_each_slot_is_fired_once(dsn: str, sql: Sql, schema: str = "holdfast") -> None:
    """Let leaders that all saw the same slot due try to fire it at the same time, slot after slot."""
    racers, slots = 6, 25
    register(sql)
    sql("update schedules set next_at = date_trunc('minute', clock()) - interval '1 hour'")
    start = place(sql)
    together = threading.Barrier(racers)
    fired: list[datetime] = []

    def lead() -> None:
        with core.session(dsn, schema) as conn:
            run = core.runner(conn)
            for n in range(slots):
                at = start + n * MINUTE
                together.wait(40)
                if fire(run, at, [at], at + MINUTE):
                    fired.append(at)

    leaders = [threading.Thread(target=lead) for _ in range(racers)]
    for leader in leaders:
        leader.start()
    for leader in leaders:
        leader.join()
    expected = [start + n * MINUTE for n in range(slots)]
    assert sorted(fired) == expected, "a slot was fired twice or not at all"
    assert slots_fired(sql) == expected
    # And one that slept all the while.
    assert fire(sql, start, [start], start + MINUTE) is None, "a slot was fired twice"
    assert core.count(sql, "jobs") == slots


def test_leaders_that_overlap_fire_each_slot_once(each_dsn: str, each_sql: Sql) -> None:
    check_each_slot_is_fired_once(each_dsn, each_sql)


def test_the_check_goes_red_when_firing_does_not_compare(dsn: str) -> None:
    with (
        mutant(dsn, {"fire_schedules": [(" and s.next_at = v_due.next_at", "")]}) as sql,
        pytest.raises(AssertionError, match="a slot was fired twice"),
    ):
        check_each_slot_is_fired_once(dsn, sql, "mutant")


def test_the_check_is_green_on_an_unchanged_copy(dsn: str) -> None:
    with mutant(dsn, {}) as sql:
        check_each_slot_is_fired_once(dsn, sql, "mutant")


def test_a_leader_steps_back_from_a_schedule_that_another_is_firing(dsn: str, sql: Sql) -> None:
    register(sql)
    at = place(sql)
    with core.session(dsn, autocommit=False) as other:
        assert fire_next(core.runner(other))
        assert fire(sql, at, [at], at + MINUTE) is None, "it would wait for another transaction"
        other.commit()
    assert fire(sql, at, [at], at + MINUTE) is None
    assert slots_fired(sql) == [at]


# -- operators


def test_slots_during_a_pause_are_not_made_up_for(each_sql: Sql, each_clock: Clock) -> None:
    register(each_sql)
    assert pause(each_sql)
    each_clock.advance(3600)
    assert due(each_sql) == []
    assert pause(each_sql, False)
    assert place(each_sql) == each_clock.now
    assert due(each_sql) == ["s"]


def test_a_short_pause_does_not_move_the_next_slot(sql: Sql, clock: Clock) -> None:
    register(sql)
    sql("update schedules set next_at = %s", [clock.now + MINUTE])
    for paused in (True, True, False, False):
        assert pause(sql, paused)
        clock.advance(10)
    assert place(sql) == clock.start + MINUTE


def test_resuming_what_is_not_paused_loses_no_slot(sql: Sql, clock: Clock) -> None:
    register(sql)
    clock.advance(600)
    assert pause(sql, False)
    assert place(sql) == clock.start


def test_a_schedule_may_be_run_by_hand_even_while_it_is_paused(each_sql: Sql, each_clock: Clock) -> None:
    register(each_sql, options={"queue": "q", "tenant": "acme"})
    pause(each_sql)
    each_clock.advance(30)
    ((id_,),) = each_sql("select run_schedule('s')")
    job = core.look(each_sql, id_)
    assert (job.queue, job.tenant, job.payload, job.run_at) == ("q", "acme", {"n": 1}, each_clock.now)
    assert each_sql("select run_schedule('s', %s), run_schedule('s', %s)", [id_, id_]) == [(id_, id_)], (
        "repeated, not run"
    )
    assert core.count(each_sql, "jobs") == 1
    rows = each_sql("select next_at, last_at, last_job, paused from schedules")
    assert rows == [(each_clock.start, None, id_, True)]


def test_a_removed_schedule_fires_no_more_and_its_jobs_stay(sql: Sql, clock: Clock) -> None:
    register(sql)
    at = clock.now
    fire_next(sql)
    assert sql("select remove_schedule('s')") == [(True,)]
    clock.advance(60)
    assert fire(sql, at + MINUTE, [at + MINUTE], at + 2 * MINUTE) is None
    assert core.count(sql, "jobs") == 1


def test_an_unknown_schedule_is_reported(sql: Sql) -> None:
    assert sql("select pause_schedule('x'), run_schedule('x'), remove_schedule('x')") == [(False, None, False)]


def test_a_problem_stays_until_the_schedule_fires_or_is_registered_again(dsn: str, sql: Sql) -> None:
    register(sql)
    flag = "select fire_schedules(jsonb_build_array(jsonb_build_object('name', 's', 'problem', %s::text)))"
    sql(flag, ["no such zone"])
    assert row(sql, "problem") == "no such zone"
    fire_next(sql)
    assert row(sql, "problem") is None
    sql(flag, ["x" * 5000])
    assert len(row(sql, "problem")) == 1000
    with core.session(dsn, autocommit=False) as other:
        core.runner(other)("select 1 from schedules for update")
        sql(flag, ["another"])  # steps back
    register(sql)
    assert row(sql, "problem") is None
