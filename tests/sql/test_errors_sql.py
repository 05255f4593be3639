"""The failed attempts of a job, errors in groups, and the stored logs of attempts."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - a fixture
from tests.support.sql_core import Claimed, Sql

AT_ONCE = {"kind": "fixed", "delay": 0}
DAY = 86_400.0


def fail_again(sql: Sql, times: int, error: dict[str, Any] | None = None) -> None:
    """Claim the only job and fail it so many times."""
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


def test_a_task_has_two_hundred_groups_and_the_rest_is_other(sql: Sql) -> None:
    def failing(n: int) -> dict[str, Any]:
        return {"type": "Oops", "fingerprint": f"{n:016x}"}

    for start in range(0, 260, 10):
        for _ in range(10):
            core.put(sql)
        outcomes = [
            {"id": str(job.id), "token": job.token, "outcome": "dead", "error": failing(start + n)}
            for n, job in enumerate(core.claim(sql))
        ]
        sql("select finish('{}', '{}', %s)", [json.dumps(outcomes)])
    found = groups(sql)
    (other,) = [each for each in found if each["type"] == "other"]
    assert len(found) == 201
    assert (other["attempts"], other["dead"]) == (60, 60)


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
