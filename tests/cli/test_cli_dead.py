"""`holdfast dead`: list, show, retry, discard."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from program import holdfast, told

from holdfast.model.job import ids

Sql = Callable[..., list[tuple[Any, ...]]]
Bury = Callable[..., list[str]]


@pytest.fixture
def bury(sql: Sql) -> Bury:
    """Puts jobs among the dead; answers with their ids."""

    def put(number: int, task: str = "app.send", status: str = "dead", code: str = "TIMEOUT") -> list[str]:
        made = ids.make_many(number)
        error = json.dumps({"type": "app.Refused", "message": "no entry", "code": code, "traceback": "Traceback\n  x"})
        sql(
            "INSERT INTO dead (id, status, queue, priority, lane, run_at, created_at, started_at, finished_at, "
            "attempt, max_attempts, task, payload, last_error) SELECT i, %s::job_status, 'default', 2, 0, now(), "
            "now(), now(), now(), 5, 5, %s, '{}', %s::jsonb FROM unnest(%s::uuid[]) i",
            [status, task, error, made],
        )
        return made

    return put


def count(sql: Sql, table: str) -> int:
    return int(sql(f"SELECT count(*) FROM {table}")[0][0])


def test_dead_lists_failed_and_dead_jobs_with_their_errors(dsn: str, bury: Bury) -> None:
    (dead,), (failed,) = bury(1), bury(1, "app.pack", "failed", "BAD")
    listed = told(holdfast(dsn, "dead", "--json"))
    assert {job["id"]: (job["status"], job["task"], job["last_error"]["code"]) for job in listed} == {
        dead: ("dead", "app.send", "TIMEOUT"), failed: ("failed", "app.pack", "BAD"),
    }  # fmt: skip
    for option, value in (("--status", "failed"), ("--task", "app.pack"), ("--error", "BAD")):
        assert [job["id"] for job in told(holdfast(dsn, "dead", "--json", option, value))] == [failed]
    assert "Refused: no entry" in holdfast(dsn, "dead").stdout
    assert "2" in holdfast(dsn, "dead", "--limit", "1").stderr


def test_show_gives_the_traceback_and_refuses_jobs_that_are_not_dead(dsn: str, bury: Bury) -> None:
    (id_,) = bury(1)
    assert "Traceback\n  x" in holdfast(dsn, "dead", "show", id_).stdout
    assert told(holdfast(dsn, "dead", "show", id_, "--json"))["status"] == "dead"
    alive = told(holdfast(dsn, "jobs", "enqueue", "app.send", "--json"))["id"]
    result = holdfast(dsn, "dead", "show", alive)
    assert result.exit_code == 1
    assert "is queued, neither failed nor dead" in result.stderr


def test_retry_puts_jobs_back_with_fresh_attempts(dsn: str, bury: Bury, sql: Sql) -> None:
    first, second, third = bury(3)
    result = holdfast(dsn, "dead", "retry", first, second)
    assert (result.exit_code, result.stdout) == (0, "retried 2 jobs\n")
    assert sql("SELECT id::text, attempt FROM live ORDER BY id") == [(first, 0), (second, 0)]
    assert sql("SELECT id::text FROM dead") == [(third,)]


def test_retry_of_a_job_that_is_not_dead_says_so(dsn: str, bury: Bury) -> None:
    (id_,) = bury(1)
    other = ids.make()
    result = holdfast(dsn, "dead", "retry", id_, other, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"retried": 1, "left": 1, "ids": [id_], "left_ids": [other]}
    assert other in result.stderr


def test_retry_all_goes_page_by_page_through_all_that_match(dsn: str, bury: Bury, sql: Sql) -> None:
    bury(1203)
    bury(7, "app.pack")
    answer = told(holdfast(dsn, "dead", "retry", "--all", "--task", "app.send", "--yes", "--json"))
    assert (answer["retried"], answer["left"], len(set(answer["ids"]))) == (1203, 0, 1203)
    assert (count(sql, "live"), count(sql, "dead")) == (1203, 7)


def test_all_asks_first(dsn: str, bury: Bury, sql: Sql) -> None:
    bury(3)
    refused = holdfast(dsn, "dead", "retry", "--all", answer="n\n")
    assert refused.exit_code == 1
    assert "retry 3 jobs?" in refused.stderr
    assert holdfast(dsn, "dead", "discard", "--all").exit_code == 1  # nobody there to answer
    assert count(sql, "dead") == 3
    assert "retried 3 jobs\n" in holdfast(dsn, "dead", "retry", "--all", answer="y\n").stdout


def test_discard_moves_jobs_to_history_where_they_keep_their_status(dsn: str, bury: Bury, sql: Sql) -> None:
    first, _ = bury(2)
    assert holdfast(dsn, "dead", "discard", first).stdout == "discarded 1 job\n"
    assert told(holdfast(dsn, "dead", "discard", "--all", "--yes", "--json"))["discarded"] == 1
    assert sql("SELECT status::text, count(*) FROM history GROUP BY 1") == [("dead", 2)]
    assert holdfast(dsn, "dead").stdout == "no failed or dead jobs match\n"


@pytest.mark.parametrize("arguments", [[], ["--all", ids.make()], [ids.make(), "--task", "app.send"]])
def test_it_must_be_clear_which_jobs_are_meant(dsn: str, arguments: list[str]) -> None:
    result = holdfast(dsn, "dead", "retry", *arguments)
    assert result.exit_code == 2
    assert "--all" in result.stderr
