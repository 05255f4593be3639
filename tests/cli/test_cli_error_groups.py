"""`holdfast errors`, and the failed attempts and the log of `holdfast jobs show`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import sql_core as core
from tests.support.program import as_json, holdfast

Sql = Callable[..., list[tuple[Any, ...]]]
REFUSED = "0123456789abcdef"


@pytest.fixture
def failed(sql: Sql) -> list[str]:
    """Three dead jobs: two of one error group, one of another."""
    made = []
    for fingerprint in (REFUSED, REFUSED, "fedcba9876543210"):
        job = core.put(sql)
        error = {"type": "app.Refused", "message": "no entry", "fingerprint": fingerprint, "traceback": "Trace\n  x"}
        core.fail(sql, core.claim_one(sql), error | {"frame": "app.py:send"}, outcome="dead")
        made.append(str(job))
    sql("select fold_errors()")
    return made


def test_groups_are_listed_with_counts_and_a_chart(dsn: str, failed: list[str]) -> None:
    groups = {each["fingerprint"]: each for each in as_json(holdfast(dsn, "errors", "--json"))}
    assert {name: (each["attempts"], each["dead"]) for name, each in groups.items()} == {
        REFUSED: (2, 2),
        "fedcba9876543210": (1, 1),
    }
    shown = holdfast(dsn, "errors").stdout
    assert re.search(rf"^{REFUSED} +2 +2 +·+█ .* t +Refused: no entry +app.py:send", shown, re.M), shown
    assert holdfast(dsn, "errors", "--task", "other").stdout == "nothing has failed\n"


def test_a_group_is_shown_with_an_example(dsn: str, failed: list[str]) -> None:
    result = holdfast(dsn, "errors", "show", REFUSED)
    assert "Trace\n  x" in result.stdout and re.search("dead +2", result.stdout)
    assert f"holdfast errors retry {REFUSED}" in result.stderr
    assert as_json(holdfast(dsn, "errors", "show", REFUSED, "--json"))["example_job"] in failed
    unknown = holdfast(dsn, "errors", "show", "ffffffffffffffff")
    assert unknown.exit_code == 1 and "see: holdfast errors" in unknown.stderr


def test_the_jobs_of_a_group_are_listed_retried_and_discarded(dsn: str, failed: list[str], sql: Sql) -> None:
    for noun in ("dead", "jobs"):
        listed = as_json(holdfast(dsn, noun, "--error-group", REFUSED, "--json"))
        assert {job["id"] for job in listed} == set(failed[:2])
    refused = holdfast(dsn, "errors", "retry", REFUSED, stdin="n\n")
    assert refused.exit_code == 1 and "retry 2 jobs?" in refused.stderr
    assert holdfast(dsn, "errors", "retry", REFUSED, "--yes", "--reason", "fixed").stdout == "retried 2 jobs\n"
    assert core.firsts(sql("select id::text from dead")) == failed[2:]
    assert "error_group" in holdfast(dsn, "audit").stdout
    assert holdfast(dsn, "errors", "discard", "fedcba9876543210", "-y").stdout == "discarded 1 job\n"


def test_a_job_is_shown_with_its_failed_attempts_and_its_log(dsn: str, sql: Sql) -> None:
    id_ = str(core.put(sql))
    claimed = core.claim_one(sql)
    line = {"n": 1, "at": 0.5, "level": "info", "text": "reading \x1b[2J"}
    report = {"id": id_, "token": claimed.token, "lines": [line]}
    sql("select report_log(%s::jsonb)", [json.dumps([report])])
    core.fail(sql, claimed, {"type": "app.Oops", "message": "bad", "frame": "app.py:send"}, delay="1 h")
    shown = holdfast(dsn, "jobs", "show", id_, "--log").stdout
    assert re.search(r"^ +1 +\S+ +\S+ \w+ +error +Oops: bad +app.py:send", shown, re.M), shown
    assert "log of attempt 1:" in shown and "info    reading \\x1b[2J" in shown
    assert "log of attempt" not in holdfast(dsn, "jobs", "show", id_).stdout
    document = as_json(holdfast(dsn, "jobs", "show", id_, "--log", "--json"))
    assert [each["outcome"] for each in document["failures"]] == ["error"]
    assert [each["text"] for each in document["log"][0]["lines"]] == ["reading \x1b[2J"]
