"""`holdfast dead`: list, show, retry, discard; blocks, unblock."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.model.job import ids
from tests.support.program import as_json, holdfast

Sql = Callable[..., list[tuple[Any, ...]]]
Bury = Callable[..., list[str]]


@pytest.fixture
def bury(sql: Sql) -> Bury:
    """Put jobs among the dead and return their ids."""

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
    listed = as_json(holdfast(dsn, "dead", "--json"))
    assert {job["id"]: (job["status"], job["task"], job["last_error"]["code"]) for job in listed} == {
        dead: ("dead", "app.send", "TIMEOUT"),
        failed: ("failed", "app.pack", "BAD"),
    }
    for option, value in (("--status", "failed"), ("--task", "app.pack"), ("--error", "BAD")):
        assert [job["id"] for job in as_json(holdfast(dsn, "dead", "--json", option, value))] == [failed]
    assert "Refused: no entry" in holdfast(dsn, "dead").stdout
    assert "2" in holdfast(dsn, "dead", "--limit", "1").stderr


def test_an_error_is_found_by_the_name_that_the_list_shows(dsn: str, bury: Bury) -> None:
    (id_,) = bury(1)
    for name in ("Refused", "app.Refused"):
        assert [job["id"] for job in as_json(holdfast(dsn, "dead", "--error", name, "--json"))] == [id_]
        assert [job["id"] for job in as_json(holdfast(dsn, "jobs", "--error", name, "--json"))] == [id_]
    for other in ("efused", "app", "%", ""):
        assert as_json(holdfast(dsn, "dead", "--error", other, "--json")) == []


@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_nothing_to_act_on_is_reported_as_the_list_reports_it(
    dsn: str, bury: Bury, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    bury(1)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal, where a bar would be drawn
    result = holdfast(dsn, "dead", verb, "--all", "--error", "Elsewhere")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "no jobs match\n", "")


def test_a_discarded_job_is_shown_as_one_and_not_retried(dsn: str, bury: Bury) -> None:
    (id_,) = bury(1)
    assert as_json(holdfast(dsn, "jobs", "show", id_, "--json"))["discarded"] is False
    as_json(holdfast(dsn, "dead", "discard", id_, "--json"))
    assert as_json(holdfast(dsn, "jobs", "show", id_, "--json"))["discarded"] is True
    assert re.search("discarded +yes", holdfast(dsn, "jobs", "show", id_).stdout)
    assert "discarded, or a newer job" in holdfast(dsn, "dead", "retry", id_).stderr


def test_show_gives_the_traceback_and_refuses_jobs_that_are_not_dead(dsn: str, bury: Bury) -> None:
    (id_,) = bury(1)
    assert "Traceback\n  x" in holdfast(dsn, "dead", "show", id_).stdout
    assert as_json(holdfast(dsn, "dead", "show", id_, "--json"))["status"] == "dead"
    alive = as_json(holdfast(dsn, "jobs", "enqueue", "app.send", "--json"))["id"]
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
    done = json.loads(result.stdout)
    assert (done["kind"], done["state"], done["changed"], done["preview"]) == ("retry", "done", 1, 2)
    assert "skipped 1 job: unknown" in result.stderr


def test_retry_by_filter_goes_through_all_that_match(dsn: str, bury: Bury, sql: Sql) -> None:
    bury(1203)
    bury(7, "app.pack")
    document = as_json(holdfast(dsn, "dead", "retry", "--task", "app.send", "--yes", "--json"))
    assert (document["changed"], document["skipped"], document["filter"]) == (1203, 0, {"task": "app.send"})
    assert (count(sql, "live"), count(sql, "dead")) == (1203, 7)


def test_all_asks_first(dsn: str, bury: Bury, sql: Sql) -> None:
    bury(3)
    refused = holdfast(dsn, "dead", "retry", "--all", stdin="n\n")
    assert refused.exit_code == 1
    assert "retry 3 jobs?" in refused.stderr
    assert holdfast(dsn, "dead", "discard", "--all").exit_code == 1  # no terminal to confirm on
    assert count(sql, "dead") == 3
    assert "retried 3 jobs\n" in holdfast(dsn, "dead", "retry", "--all", stdin="y\n").stdout


def test_discard_moves_jobs_to_history_where_they_keep_their_status(dsn: str, bury: Bury, sql: Sql) -> None:
    first, _ = bury(2)
    assert holdfast(dsn, "dead", "discard", first).stdout == "discarded 1 job\n"
    assert as_json(holdfast(dsn, "dead", "discard", "--all", "--yes", "--json"))["changed"] == 1
    assert sql("SELECT status::text, count(*) FROM history GROUP BY 1") == [("dead", 2)]
    assert holdfast(dsn, "dead").stdout == "no failed or dead jobs match\n"


@pytest.mark.parametrize("arguments", [[], ["--all", ids.make()], [ids.make(), "--task", "app.send"]])
def test_it_must_be_clear_which_jobs_are_meant(dsn: str, arguments: list[str]) -> None:
    result = holdfast(dsn, "dead", "retry", *arguments)
    assert result.exit_code == 2
    assert "--all" in result.stderr


def test_jobs_of_one_batch_are_retried(dsn: str, bury: Bury, sql: Sql) -> None:
    (id_, _), batch = bury(2), ids.make()
    sql("UPDATE dead SET batch = %s WHERE id = %s", [batch, id_])
    assert [job["id"] for job in as_json(holdfast(dsn, "dead", "--batch", batch, "--json"))] == [id_]
    assert as_json(holdfast(dsn, "dead", "retry", "--all", "--batch", batch, "--yes", "--json"))["examples"] == [id_]


@pytest.fixture
def blocked(sql: Sql) -> str:
    """Block two keys through handlers, and return the id of the last job that did so."""
    id_ = ids.make()
    for key in ("shop.example", "forum.example", "shop.example"):
        sql("SELECT note_block(%s, 'ROBOTS: refused', %s)", [key, id_])
    return id_


def test_blocks_are_listed_with_their_reasons(dsn: str, blocked: str) -> None:
    listed = as_json(holdfast(dsn, "dead", "blocks", "--json"))
    assert [(b["key"], b["count"], b["reason"], b["last_job"]) for b in listed] == [
        ("shop.example", 2, "ROBOTS: refused", blocked),
        ("forum.example", 1, "ROBOTS: refused", blocked),
    ]
    header, first, _ = holdfast(dsn, "dead", "blocks").stdout.splitlines()
    assert header.split("  ")[0] == "key" and first.split()[:4] == ["shop.example", "ROBOTS:", "refused", "2"]


def test_unblock_takes_keys_off_the_list_and_says_which_were_not_on_it(dsn: str, blocked: str) -> None:
    result = holdfast(dsn, "dead", "unblock", "shop.example", "elsewhere.example", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "unblocked": 1,
        "left": 1,
        "keys": ["shop.example"],
        "left_keys": ["elsewhere.example"],
    }
    assert "not on the list: elsewhere.example" in result.stderr
    assert [b["key"] for b in as_json(holdfast(dsn, "dead", "blocks", "--json"))] == ["forum.example"]


def test_unblock_all_asks_first(dsn: str, blocked: str, sql: Sql) -> None:
    refused = holdfast(dsn, "dead", "unblock", "--all", stdin="n\n")
    assert refused.exit_code == 1 and "unblock 2 keys?" in refused.stderr
    assert count(sql, "blocks") == 2
    assert holdfast(dsn, "dead", "unblock", "--all", "--yes").stdout == "unblocked 2 keys\n"
    assert holdfast(dsn, "dead", "blocks").stdout == "no key is blocked\n"
    for arguments in ([], ["--all", "shop.example"]):
        assert holdfast(dsn, "dead", "unblock", *arguments).exit_code == 2


def test_an_application_clears_blocks(hf: Holdfast, blocked: str) -> None:
    assert hf.dead.clear_blocks("shop.example", "elsewhere.example") == ["shop.example"]
    assert [block.key for block in hf.dead.blocks()] == ["forum.example"]
    assert hf.dead.clear_blocks() == []
