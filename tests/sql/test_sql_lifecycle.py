"""Features of a job, function by function: deadlines, requests to cancel, progress, blocks, results,
and how all that is pruned."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_core import Claimed, Sql

DAY = 86_400


# -- deadlines


def expire(sql: Sql, limit: int = 1000) -> int:
    return sql("select expire(%s)", [limit])[0][0]


def test_a_job_expires_at_its_deadline_and_not_before(each_sql: Sql, each_clock: Clock) -> None:
    due = core.put(each_sql, deadline="10 seconds")
    later = core.put(each_sql, delay="5 seconds", deadline="10 seconds")
    never = core.put(each_sql)
    assert expire(each_sql) == 0
    each_clock.advance(9.999)
    assert expire(each_sql) == 0
    each_clock.advance(0.001)
    assert [j.id for j in core.claim(each_sql)] == [never], "a claim steps over it at the very moment"
    assert expire(each_sql) == 2
    for id_ in (due, later):
        job = core.look(each_sql, id_)
        assert (job.status, job.last_error["code"], job.finished_at) == ("canceled", "DEADLINE_EXPIRED", each_clock.now)
    assert expire(each_sql) == 0


def test_a_running_job_does_not_expire(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql, deadline="10 seconds")
    job = core.claim_one(sql)
    clock.advance(60)
    assert expire(sql) == 0
    assert core.finish(sql, job) == []
    assert core.status(sql, id_) == "succeeded"


def test_a_job_that_expires_gives_up_its_dedupe_key(sql: Sql, clock: Clock) -> None:
    core.put(sql, deadline="10 seconds", dedupe_key="k")
    clock.advance(10)
    assert expire(sql) == 1
    core.put(sql, dedupe_key="k")


def test_expire_takes_so_many_at_a_time_the_oldest_first_and_steps_over_what_is_held(dsn: str, sql: Sql) -> None:
    ids = [core.put(sql, deadline=f"{n} hours") for n in range(1, 6)]
    sql("update live set deadline = deadline - interval '1 day'")
    with core.session(dsn, autocommit=False) as holder:
        holder.execute("select 1 from live where id = %s for update", [ids[0]])
        assert expire(sql, 2) == 2
        assert [core.status(sql, id_) for id_ in ids] == ["queued", "canceled", "canceled", "queued", "queued"]
        holder.rollback()
    assert expire(sql, 2) == 2
    assert expire(sql, 2) == 1


def test_a_deadline_goes_with_the_job_from_table_to_table(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql, deadline="100 seconds", delay="1 second", max_attempts=9)
    expected = clock.start + timedelta(seconds=100)
    assert core.look(sql, id_).deadline == expected
    clock.advance(1)
    core.promote(sql)
    assert core.look(sql, id_).deadline == expected
    for end in (core.fail, core.snooze, core.release):
        end(sql, core.claim_one(sql))
        assert core.look(sql, id_).deadline == expected
        sql("update later set run_at = clock()")
        core.promote(sql)
    core.claim_one(sql)
    core.lose(sql)
    assert core.look(sql, id_).deadline == expected


@pytest.mark.parametrize("wrong", ["0 seconds", "-1 hour", "-1000000 years"])
def test_a_deadline_that_has_passed_is_refused(each_sql: Sql, wrong: str) -> None:
    with pytest.raises(psycopg.DataError):
        core.enqueue(each_sql, deadline=wrong)
    assert core.count(each_sql, "jobs") == 0


# -- requests to cancel


def wanted(sql: Sql, *tokens: int) -> set[uuid.UUID]:
    return set(core.firsts(sql("select wanted_cancels(%s::bigint[])", [list(tokens)])))


def test_a_request_is_found_by_the_claim_it_is_meant_for(each_sql: Sql) -> None:
    ids = [core.put(each_sql) for _ in range(4)]
    first, second = core.claim(each_sql, "a", 2), core.claim(each_sql, "b", 2)
    assert core.cancel(each_sql, ids[0], ids[2]) == ["canceling"] * 2
    assert wanted(each_sql, first[0].token) == {ids[0]}
    assert wanted(each_sql, second[0].token) == {ids[2]}
    assert wanted(each_sql, first[0].token, second[0].token, 10**12) == {ids[0], ids[2]}
    assert wanted(each_sql) == set()
    assert core.cancel(each_sql, *ids) == ["canceling"] * 4
    assert core.count(each_sql, "cancels") == 4


def outcome(sql: Sql, job: Claimed, word: str, **more: Any) -> None:
    results = [{"id": str(job.id), "token": job.token, "outcome": word, **more}]
    assert sql("select finish('{}', '{}', %s::jsonb)", [json.dumps(results)]) == []


@pytest.mark.parametrize("word", ["error", "snoozed", "released", "lost", "misspelt", "canceled"])
def test_a_job_that_is_to_be_canceled_ends_whatever_its_attempt_came_to(each_sql: Sql, word: str) -> None:
    id_ = core.put(each_sql, dedupe_key="k")
    job = core.claim_one(each_sql)
    core.cancel(each_sql, id_)
    outcome(each_sql, job, word, error={"type": "Oops"}, delay=60)
    found = core.look(each_sql, id_)
    assert (found.status, found.attempts, found.last_error["type"]) == ("canceled", 1, "Oops")
    assert core.count(each_sql, "cancels") == 0 and core.count(each_sql, "dedupe") == 0


@pytest.mark.parametrize("word", ["succeeded", "failed", "dead"])
def test_a_job_that_ends_for_good_first_keeps_its_end(each_sql: Sql, word: str) -> None:
    id_ = core.put(each_sql)
    job = core.claim_one(each_sql)
    core.cancel(each_sql, id_)
    outcome(each_sql, job, word)
    assert core.status(each_sql, id_) == word
    assert core.cancel(each_sql, id_) == ["finished"]
    assert core.count(each_sql, "cancels") == 0


def test_a_worker_that_dies_after_the_cancel_request_leaves_a_canceled_job(each_sql: Sql) -> None:
    id_ = core.put(each_sql)
    core.claim_one(each_sql)
    core.cancel(each_sql, id_)
    core.lose(each_sql)
    assert core.status(each_sql, id_) == "canceled"


def test_a_zombie_cannot_bring_back_a_job_that_was_canceled(each_sql: Sql) -> None:
    id_ = core.put(each_sql)
    zombie = core.claim_one(each_sql)
    core.cancel(each_sql, id_)
    core.lose(each_sql)
    before = core.state(each_sql)
    assert core.finish(each_sql, zombie) == [id_]
    assert not core.fail(each_sql, zombie) and not core.snooze(each_sql, zombie)
    assert core.release(each_sql, zombie) == [id_]
    assert core.state(each_sql) == before


def test_a_dead_job_that_is_retried_is_not_canceled_by_an_old_request(sql: Sql) -> None:
    id_ = core.put(sql)
    core.cancel(sql, *[core.claim_one(sql).id])
    sql("update live set attempt = max_attempts")
    ((token,),) = sql("select token from live")
    sql("select fail(%s, %s, '{}', null, 'dead')", [id_, token])
    sql("insert into cancels values (%s, %s, clock())", [id_, token])
    assert core.retry_dead(sql, id_) == [id_]
    assert core.fail(sql, core.claim_one(sql))
    assert core.status(sql, id_) == "retrying"


def test_a_cancel_of_a_running_job_is_recorded_once_and_other_jobs_are_left_alone(each_sql: Sql) -> None:
    ended, running, waiting = (core.put(each_sql) for _ in range(3))
    core.finish(each_sql, core.claim_one(each_sql))
    core.claim_one(each_sql)
    results = dict(each_sql("select * from cancel(%s::uuid[])", [[ended, running, running]]))
    assert results == {ended: "finished", running: "canceling"}
    assert core.status(each_sql, waiting) == "queued"
    assert core.firsts(each_sql("select id from cancels")) == [running]


# -- progress


def report(sql: Sql, *reports: dict[str, Any]) -> None:
    sql("select report_progress(%s::jsonb)", [json.dumps(reports)])


def test_progress_is_taken_from_the_worker_that_holds_the_job_and_from_no_other(each_sql: Sql) -> None:
    id_ = core.put(each_sql, max_attempts=9)
    zombie = core.claim_one(each_sql, "zombie")
    report(each_sql, {"id": str(id_), "token": zombie.token, "done": 1, "total": 2, "message": "half"})
    assert core.look(each_sql, id_).progress["message"] == "half"
    core.lose(each_sql)
    report(each_sql, {"id": str(id_), "token": zombie.token, "done": 99})
    owner = core.claim_one(each_sql, "owner")
    report(each_sql, {"id": str(id_), "token": zombie.token, "done": 99}, {"id": str(uuid.uuid4()), "token": 1})
    assert core.look(each_sql, id_).progress["done"] == 1
    report(each_sql, {"id": str(id_), "token": owner.token, "done": 2})
    assert (core.look(each_sql, id_).progress["done"], core.look(each_sql, id_).progress["total"]) == (2, None)
    core.finish(each_sql, owner)
    report(each_sql, {"id": str(id_), "token": owner.token, "done": 99})
    assert core.look(each_sql, id_).progress["done"] == 2
    assert core.count(each_sql, "progress") == 1


def test_two_reports_of_one_job_in_one_call_are_no_error(each_sql: Sql) -> None:
    id_ = core.put(each_sql)
    job = core.claim_one(each_sql)
    report(each_sql, *({"id": str(id_), "token": job.token, "done": n} for n in (1, 2)))
    assert core.look(each_sql, id_).progress["done"] in (1, 2)


@pytest.mark.parametrize("reports", [None, "[]", "[{}]", '[{"id": null, "token": null}]'])
def test_a_report_of_nothing_is_nothing(each_sql: Sql, reports: str | None) -> None:
    each_sql("select report_progress(%s::jsonb)", [reports])
    assert core.count(each_sql, "progress") == 0


# -- blocks

TEXTS: dict[str, Any] = {
    "long": "k" * 100_000,
    "long, of four bytes each": "\U0001f600" * 5000,
    "a quote": "'; drop table holdfast.live; --",
    "a backslash": "\\x00 \\u0000",
    "a line break": "a\nb\r\t",
    "a number": 5,
    "an object": {"a": [1]},
    "a list": ["a"],
    "true": True,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_block_of_any_text_is_noted_and_the_job_is_dead(each_sql: Sql, text: Any) -> None:
    for _ in range(2):
        id_ = core.put(each_sql)
        error = {"block": text, "code": text, "message": text}
        outcome(each_sql, core.claim_one(each_sql), "dead", error=error)
        assert core.status(each_sql, id_) == "dead"
    assert each_sql("select count, last_job from blocks") == [(2, id_)]


@pytest.mark.parametrize("error", [None, "text", 5, [], ["block"], {"block": None}, {"block": ""}, {"Block": "x"}])
def test_an_error_without_a_block_notes_none(each_sql: Sql, error: Any) -> None:
    core.put(each_sql)
    outcome(each_sql, core.claim_one(each_sql), "dead", error=error)
    assert core.count(each_sql, "blocks") == 0


def test_only_a_dead_job_notes_a_block(sql: Sql) -> None:
    for word in ("error", "failed", "snoozed", "canceled", "succeeded"):
        core.put(sql, max_attempts=9)
        outcome(sql, core.claim_one(sql), word, error={"block": "a"}, delay=999)
    assert core.count(sql, "blocks") == 0


def test_many_blocks_in_one_call_that_differ_only_far_behind_are_one(sql: Sql) -> None:
    for _ in range(3):
        core.put(sql)
    jobs = core.claim(sql)
    results = [
        {"id": str(j.id), "token": j.token, "outcome": "dead", "error": {"block": "k" * 500 + str(n)}}
        for n, j in enumerate(jobs)
    ]
    assert sql("select finish('{}', '{}', %s::jsonb)", [json.dumps(results)]) == []
    assert sql("select count from blocks") == [(3,)]


# -- results kept after the fact


def test_a_result_is_kept_for_a_success_that_has_none_and_for_nothing_else(each_sql: Sql) -> None:
    ids = [core.put(each_sql) for _ in range(4)]
    jobs = core.claim(each_sql, limit=3)
    core.finish(each_sql, jobs[0])
    outcome(each_sql, jobs[1], "succeeded", result={"first": True})
    outcome(each_sql, jobs[2], "canceled")
    for id_ in (*ids, uuid.uuid4()):
        each_sql("select keep_result(%s, '[7]')", [id_])
        each_sql("select keep_result(%s, '[8]')", [id_])
    assert [core.look(each_sql, id_).result for id_ in ids] == [[7], {"first": True}, None, None]


# -- pruning


def prune(sql: Sql, limit: int = 1000) -> int:
    return sql("select rows_removed from prune(%s)", [limit])[0][0]


def test_a_request_to_cancel_is_forgotten_when_its_job_has_ended(each_sql: Sql, each_clock: Clock) -> None:
    done, running = core.put(each_sql), core.put(each_sql)
    jobs = core.claim(each_sql)
    core.cancel(each_sql, done, running)
    assert core.finish(each_sql, *[j for j in jobs if j.id == done]) == []
    prune(each_sql)
    assert core.count(each_sql, "cancels") == 2
    each_clock.advance(61)
    prune(each_sql)
    assert core.firsts(each_sql("select id from cancels")) == [running], "as long as it runs it is wanted"


def make_progress(sql: Sql, **options: Any) -> uuid.UUID:
    id_ = core.put(sql, **options)
    (job,) = [j for j in core.claim(sql, limit=99) if j.id == id_]
    report(sql, {"id": str(id_), "token": job.token, "done": 1})
    core.finish(sql, job)
    return id_


def test_progress_is_kept_as_long_as_history_whatever_the_age_of_its_job(each_sql: Sql, each_clock: Clock) -> None:
    """An id holds the time a job was made, not when it ran: it may have waited for months, or bring its own id."""
    old = uuid.UUID("018f0000-0000-7000-8000-000000000000")
    random_ones = [uuid.UUID(int=2**128 - 1), uuid.UUID(int=1)]
    ids = [make_progress(each_sql, id=id_) for id_ in (old, *random_ones)]
    prune(each_sql)
    assert core.count(each_sql, "progress") == 3
    each_clock.advance(5 * DAY)
    recent = make_progress(each_sql)
    prune(each_sql)
    assert core.count(each_sql, "progress") == 4
    each_clock.advance(3.5 * DAY)
    prune(each_sql)
    assert core.firsts(each_sql("select id from progress")) == [recent]
    assert len(ids) == 3


def test_prune_says_when_there_is_more_of_anything_to_remove(each_sql: Sql, each_clock: Clock) -> None:
    """The leader prunes once a minute, and goes on at once while a step was full: or the tables would grow forever."""
    each_sql(
        "insert into progress (id, done, updated_at) select gen_random_uuid(), 1, clock() from generate_series(1, 25)"
    )
    each_sql(
        "insert into batches (id, name, open, created_at, finished_at) "
        "select gen_random_uuid(), 'b', false, clock(), clock() from generate_series(1, 25)"
    )
    each_sql("insert into batch_counts (batch, backend) select id, n from batches, generate_series(1, 3) n")
    each_clock.advance(9 * DAY)
    rounds = 0
    while prune(each_sql, 10) >= 10:
        rounds += 1
        assert rounds < 20
    for table in ("progress", "batches", "batch_counts"):
        assert core.count(each_sql, table) == 0, table


def test_batches_under_way_are_never_pruned(sql: Sql, clock: Clock) -> None:
    sql("select open_batch(gen_random_uuid(), 'open')")
    closed = uuid.uuid4()
    sql("select open_batch(%s, 'closed')", [closed])
    core.put(sql, batch=closed)
    sql("select close_batch(%s)", [closed])
    clock.advance(100 * DAY)
    prune(sql)
    assert core.count(sql, "batches") == 2 and core.count(sql, "batch_counts") == 1


def test_blocks_stay_until_a_person_removes_them(sql: Sql, clock: Clock) -> None:
    core.put(sql)
    outcome(sql, core.claim_one(sql), "dead", error={"block": "a"})
    clock.advance(1000 * DAY)
    prune(sql)
    assert core.count(sql, "blocks") == 1
