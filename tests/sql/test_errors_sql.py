"""The failed attempts of a job, errors in groups, and the stored logs of attempts."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.model.view import View
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - a fixture
from tests.support.sql_core import Claimed, Sql

AT_ONCE = {"kind": "fixed", "delay": 0}
DAY = 86_400.0


def fail_again(sql: Sql, times: int, error: dict[str, Any] | None = None) -> None:
    """Claim the only job and fail it `times` times."""
    for n in range(times):
        core.fail(sql, core.claim_one(sql, f"w{n}"), error or {"type": "Oops", "message": f"no {n}"}, "0")


def fold(sql: Sql) -> None:
    sql("select upkeep('leader', '1 minute')")


def groups(sql: Sql) -> list[dict[str, Any]]:
    fold(sql)
    return [row[0] for row in sql("select to_jsonb(e) from errors e order by task, type, message")]


def dead(sql: Sql, task: str = "t", **error: Any) -> uuid.UUID:
    id_ = core.put(sql, task)
    core.fail(sql, core.claim_one(sql), {"type": "Oops", **error}, outcome="dead")
    return id_


def test_each_failed_attempt_is_kept_with_its_worker_times_and_error(sql: Sql) -> None:
    id_ = core.put(sql, retry=AT_ONCE)
    core.fail(
        sql, core.claim_one(sql, "w1"), {"type": "KeyError", "message": "x" * 600, "code": "E7", "frame": "app.py:f"}
    )
    core.lose(sql) if core.claim_one(sql, "w2") else None
    core.fail(sql, core.claim_one(sql, "w3"), {"type": "Last"}, outcome="failed")
    first, second, third = core.look(sql, id_).failures
    assert (first["attempt"], first["worker"], first["outcome"], first["type"]) == (1, "w1", "error", "KeyError")
    assert first["message"] == "x" * 500
    assert (first["code"], first["frame"]) == ("E7", "app.py:f")
    assert first["started_at"] <= first["ended_at"]
    assert (second["attempt"], second["worker"], second["outcome"], second["code"]) == (2, "w2", "lost", "LEASE_LOST")
    assert (third["attempt"], third["outcome"], third["type"]) == (3, "failed", "Last")


def test_the_last_twenty_failures_are_kept(sql: Sql) -> None:
    id_ = core.put(sql, max_attempts=100, retry=AT_ONCE)
    fail_again(sql, 23)
    assert [each["attempt"] for each in core.look(sql, id_).failures] == list(range(4, 24))


@pytest.mark.parametrize("end", ["succeed", "cancel", "cancel, while it waits", "discard", "retry"])
def test_failures_travel_with_the_job(sql: Sql, end: str) -> None:
    id_ = core.put(sql, retry={"kind": "fixed", "delay": 3600})
    core.fail(sql, core.claim_one(sql))
    assert core.place(sql, id_) == "later"
    if end == "cancel, while it waits":
        core.cancel(sql, id_)
    else:
        sql("update later set run_at = clock()")
        core.promote(sql)
        job = core.claim_one(sql)
        if end == "succeed":
            core.finish(sql, job)
        elif end == "cancel":
            core.cancel(sql, id_)
            core.fail(sql, job, {"type": "Second"})
        else:
            core.fail(sql, job, outcome="dead")
            (core.discard_dead if end == "discard" else core.retry_dead)(sql, id_)
    failures = core.look(sql, id_).failures
    assert [each["attempt"] for each in failures] == ([1] if end in ("succeed", "cancel, while it waits") else [1, 2])


@pytest.mark.parametrize("outcome", ["succeeded", "canceled", "snoozed", "released"])
def test_an_attempt_that_did_not_fail_leaves_nothing(sql: Sql, outcome: str) -> None:
    id_ = core.put(sql)
    job = core.claim_one(sql)
    sql("select finish('{}', '{}', %s)", [json.dumps([{"id": str(id_), "token": job.token, "outcome": outcome}])])
    assert core.look(sql, id_).failures is None
    assert groups(sql) == []


def test_errors_of_one_fingerprint_are_one_group(sql: Sql, clock: Clock) -> None:
    ids = [dead(sql, message=f"user {n} is unknown") for n in range(3)]
    other = dead(sql, task="u", message="user 7 is unknown")
    first, second = groups(sql)
    assert (first["task"], first["type"], first["attempts"], first["dead"]) == ("t", "Oops", 3, 3)
    assert (second["task"], second["attempts"]) == ("u", 1)
    assert {row[0] for row in sql("select id from dead where fingerprint = %s", [first["fingerprint"]])} == {*ids}
    assert second["example_job"] == str(other)
    assert second["example"]["message"] == "user 7 is unknown"
    assert list(first["trend"].values()) == [3]


def test_a_fingerprint_of_the_worker_decides_the_group(sql: Sql) -> None:
    for text in ("one", "two"):
        dead(sql, message=text, fingerprint="00112233445566aa")
    dead(sql, message="one", fingerprint="not a fingerprint")
    assert sorted(each["attempts"] for each in groups(sql)) == [1, 2]
    assert all(len(row[0]["fingerprint"]) == 16 for row in sql("select last_error from dead"))


@pytest.mark.parametrize("error", ['"text"', "[1]", "7", "null", "{}", '{"message": {"a": 1}, "type": [1], "code": 5}'])
def test_any_error_can_be_stored_and_has_a_group(sql: Sql, error: str) -> None:
    core.put(sql)
    job = core.claim_one(sql)
    assert sql("select fail(%s, %s, %s::jsonb, p_outcome => 'dead')", [job.id, job.token, error]) == [(True,)]
    (group,) = groups(sql)
    assert (group["attempts"], group["dead"]) == (1, 1)


def test_lost_leases_are_one_group_whatever_the_worker(sql: Sql) -> None:
    for worker in ("host-1", "host-2"):
        core.put(sql, max_attempts=1)
        core.claim_one(sql, worker)
        core.lose(sql)
    (group,) = groups(sql)
    assert (group["code"], group["attempts"], group["dead"]) == ("LEASE_LOST", 2, 2)


def test_retried_and_discarded_jobs_are_no_longer_dead_in_their_group(sql: Sql) -> None:
    ids = [dead(sql, message="same") for _ in range(3)]
    core.retry_dead(sql, ids[0])
    core.discard_dead(sql, ids[1])
    (group,) = groups(sql)
    assert (group["attempts"], group["dead"]) == (3, 1)


def test_a_call_appends_one_row_whatever_it_ends(sql: Sql) -> None:
    for n in range(10):
        core.put(sql, f"t{n % 3}")
    outcomes = [
        {"id": str(job.id), "token": job.token, "outcome": "error", "error": {"type": f"E{n % 2}"}}
        for n, job in enumerate(core.claim(sql))
    ]
    sql("select finish('{}', '{}', %s)", [json.dumps(outcomes)])
    assert core.count(sql, "error_arrivals") == 1
    assert sum(each["attempts"] for each in groups(sql)) == 10
    assert core.count(sql, "error_arrivals") == 0


def die_of_many_errors(sql: Sql, errors: int) -> None:
    """Let one job die of each of `errors` different errors."""
    for start in range(0, errors, 10):
        for _ in range(10):
            core.put(sql)
        outcomes = [
            {"id": str(job.id), "token": job.token, "outcome": "dead"}
            | {"error": {"type": "Oops", "fingerprint": f"{start + n:016x}"}}
            for n, job in enumerate(core.claim(sql))
        ]
        sql("select finish('{}', '{}', %s)", [json.dumps(outcomes)])


def other_group(found: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in found if each["type"] == "other")


def test_a_task_has_two_hundred_groups_and_the_rest_is_other(sql: Sql) -> None:
    die_of_many_errors(sql, 260)
    found = groups(sql)
    other = other_group(found)
    assert len(found) == 201
    assert (other["attempts"], other["dead"]) == (60, 60)


def test_the_group_other_is_pruned_once_none_of_its_jobs_is_dead(sql: Sql, clock: Clock) -> None:
    die_of_many_errors(sql, 220)
    assert other_group(groups(sql))["dead"] == 20
    clock.advance(9 * DAY)
    sql("select prune()")
    assert other_group(groups(sql))["dead"] == 20
    core.discard_dead(sql, *core.firsts(sql("select id from dead")))
    fold(sql)
    sql("select prune()")
    assert groups(sql) == []


def test_groups_are_pruned_when_nothing_failed_for_the_retention_and_nothing_is_dead(sql: Sql, clock: Clock) -> None:
    kept, gone = dead(sql, message="kept"), dead(sql, message="gone")
    core.discard_dead(sql, gone)
    assert len(groups(sql)) == 2
    clock.advance(3 * DAY)
    sql("select prune()")
    assert core.count(sql, "error_counts") == 0
    clock.advance(6 * DAY)
    sql("select prune()")
    assert [each["example_job"] for each in groups(sql)] == [str(kept)]


def test_a_tenant_sees_the_groups_of_its_own_dead_jobs_only(hf: Holdfast, sql: Sql) -> None:
    for tenant, message in (
        ("a", "account 'a-1'"),
        ("a", "account 'a-2'"),
        ("b", "account 'b-1'"),
        (None, "no account"),
    ):
        core.put(sql, tenant=tenant)
        error = {"type": "Oops", "message": message, "traceback": "Traceback", "frame": "app.py:f"}
        core.fail(sql, core.claim_one(sql), error, outcome="dead")
    fold(sql)
    assert {group.dead for group in hf.dead.errors.list()} == {1, 3}
    (group,) = hf.dead.errors.list(tenant="a")
    assert (group.attempts, group.dead, group.frame, group.message) == (2, 2, None, "account 'a-2'")
    assert group.example == {"type": "Oops", "message": "account 'a-2'", "fingerprint": group.fingerprint}
    assert sum(group.trend.values()) == 2
    assert hf.dead.errors.get(group.fingerprint, tenant="a") == group
    assert hf.dead.errors.get(group.fingerprint, tenant="c") is None
    assert hf.dead.errors.list(task="u", tenant="a") == []


@pytest.mark.parametrize("error", ['"text"', "[1]", "7", "null"])
def test_a_tenants_view_shows_any_error(hf: Holdfast, sql: Sql, error: str) -> None:
    core.put(sql, tenant="a")
    job = core.claim_one(sql)
    sql("select fail(%s, %s, %s::jsonb, p_outcome => 'dead')", [job.id, job.token, error])
    (group,) = hf.dead.errors.list(tenant="a")
    assert (group.type, group.dead) == (None, 1)


def test_a_tenants_groups_are_read_along_an_index(hf: Holdfast, sql: Sql) -> None:
    columns = "id, status, queue, priority, lane, run_at, created_at, finished_at, attempt, max_attempts, task, payload"
    values = "gen_random_uuid(), 'dead', 'default', 2, 0, clock(), clock(), clock(), 1, 1, 't', '{}'"
    sql(
        f"insert into dead ({columns}, tenant, fingerprint) "
        f"select {values}, case when n % 500 = 0 then 'a' else 'b' end, 'f' from generate_series(1, 5000) n"
    )
    sql("analyze dead")
    call = hf.database.calls.errors.list(view=View(tenant="a"))
    plan = "\n".join(core.firsts(sql(f"explain {call.sql}", call.params)))
    assert "dead_by_tenant" in plan
    assert "Seq Scan on dead" not in plan


def test_random_changes_keep_failures_and_groups_count_the_dead(sql: Sql, seeded: random.Random) -> None:
    """Whatever moves a job keeps its failures; whatever is dead has a group, which counts it."""
    failed: dict[uuid.UUID, int] = {}
    running: list[Claimed] = []

    def enqueue() -> None:
        delay, tenant = seeded.choice([None, None, "1 hour"]), seeded.choice([None, "a"])
        id_ = core.put(sql, seeded.choice("tuv"), max_attempts=3, retry=AT_ONCE, delay=delay, tenant=tenant)
        failed[id_] = 0

    def end() -> None:
        if running:
            job = running.pop(seeded.randrange(len(running)))
            how = seeded.choice([core.finish, core.snooze, core.release, fail, fail, fail, fail])
            how(sql, job)

    def fail(sql: Sql, job: Claimed) -> None:
        error = {"type": seeded.choice(["Oops", "KeyError"]), "message": f"order {seeded.random()} failed"}
        failed[job.id] += 1
        core.fail(sql, job, error, outcome=seeded.choice(["error", "error", "failed", "dead"]))

    def lose() -> None:
        for job in running:
            failed[job.id] += 1
        running.clear()
        core.lose(sql)

    def some(condition: str) -> list[uuid.UUID]:
        return core.firsts(sql(f"select id from jobs where {condition} order by random() limit 3"))

    def edit() -> None:
        for id_ in some("status in ('queued', 'retrying') or id in (select id from dead)"):
            sql("select edit_job(%s, %s::jsonb)", [id_, json.dumps({"n": seeded.random()})])

    def act() -> None:
        kind, params = seeded.choice(
            [
                ("reschedule", {"run_at": "2999-01-01T00:00:00Z"}),
                ("reschedule", {"run_at": "2000-01-01T00:00:00Z"}),
                ("prioritize", {"priority": 1}),
                ("move", {"queue": "other"}),
            ]
        )
        ids = some("status in ('queued', 'retrying')")
        sql("select act_on_jobs(%s, %s, %s::jsonb)", [kind, ids, json.dumps(params)])

    def expire() -> None:
        sql("update live set deadline = clock() - interval '1 s' where id = any (%s)", [some("status = 'queued'")[:1]])
        sql("select expire()")

    steps: dict[Callable[[], Any], int] = {
        enqueue: 6,
        lambda: running.extend(core.claim(sql, limit=3, queues=("default", "other"))): 5,
        end: 8,
        lose: 1,
        edit: 1,
        act: 1,
        expire: 1,
        lambda: core.cancel(sql, *some("true")[:1]): 1,
        lambda: core.retry_dead(sql, *some("status in ('dead', 'failed')")): 1,
        lambda: core.discard_dead(sql, *some("status in ('dead', 'failed')")[:1]): 1,
        lambda: core.promote(sql): 1,
        lambda: sql("select fold_errors()"): 2,
    }
    for step in seeded.choices(list(steps), list(steps.values()), k=400):
        step()
    sql("select fold_errors()")
    counted = sql("select fingerprint, dead from error_groups where dead > 0 order by 1")
    assert counted == sql("select fingerprint, count(*) from dead group by 1 order by 1")
    assert sql("select sum(attempts) from error_groups") == [(sum(failed.values()) or None,)]
    stored = dict(sql("select id, coalesce(jsonb_array_length(failures), 0) from jobs"))
    assert stored == {id_: min(number, 20) for id_, number in failed.items()}


def report(sql: Sql, job: Claimed, *numbers: int, seconds: float = 1.0) -> None:
    lines = [{"n": n, "at": n / 10, "level": "info", "text": f"line {n}"} for n in numbers]
    each = {"id": str(job.id), "token": job.token, "attempt": job.attempt, "seconds": seconds, "lines": lines}
    sql("select report_log(%s)", [json.dumps([each])])


def logged(sql: Sql, id_: uuid.UUID) -> list[tuple[int, list[int]]]:
    """Return the attempts of a job with the numbers of their lines."""
    rows = sql("select attempt, lines from job_logs where id = %s order by token", [id_])
    return [(attempt, [line["n"] for line in lines]) for attempt, lines in rows]


def test_the_last_two_hundred_lines_of_an_attempt_are_kept_and_none_is_stored_twice(sql: Sql) -> None:
    id_ = core.put(sql)
    job = core.claim_one(sql)
    report(sql, job, *range(1, 151))
    report(sql, job, *range(140, 251))  # after a lost reply lines are sent again
    assert logged(sql, id_) == [(1, [*range(51, 251)])]
    report(sql, job, *range(251, 900))
    assert logged(sql, id_) == [(1, [*range(700, 900)])]


def test_the_logs_of_the_last_five_attempts_are_kept(sql: Sql) -> None:
    id_ = core.put(sql, max_attempts=10, retry=AT_ONCE)
    for _ in range(7):
        job = core.claim_one(sql)
        report(sql, job, 1, 2)
        core.fail(sql, job)
    assert logged(sql, id_) == [(n, [1, 2]) for n in range(3, 8)]


def test_a_worker_that_lost_the_job_stores_no_lines(sql: Sql) -> None:
    id_ = core.put(sql, retry=AT_ONCE)
    job = core.claim_one(sql)
    core.lose(sql)
    report(sql, job, 1)
    assert logged(sql, id_) == []


def test_lines_may_follow_the_success_that_a_handler_committed_itself(sql: Sql) -> None:
    id_ = core.put(sql)
    job = core.claim_one(sql)
    core.finish(sql, job)
    report(sql, job, 1)
    assert logged(sql, id_) == [(1, [1])]


def test_long_lines_are_cut_and_logs_are_pruned_with_history(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql)
    job = core.claim_one(sql)
    lines = [{"n": 1, "at": 0.5, "level": "l" * 30, "text": "x" * 2000}]
    each = {"id": str(job.id), "token": job.token, "attempt": 1, "seconds": 2, "lines": lines}
    sql("select report_log(%s)", [json.dumps([each])])
    ((stored, began),) = sql("select lines, clock() - started_at from job_logs where id = %s", [id_])
    assert (len(stored[0]["text"]), len(stored[0]["level"])) == (1000, 20)
    assert began.total_seconds() == 2
    core.finish(sql, job)
    clock.advance(6 * DAY)
    sql("select prune()")
    assert core.count(sql, "job_logs") == 1
    clock.advance(3 * DAY)
    sql("select prune()")
    assert core.count(sql, "job_logs") == 0
