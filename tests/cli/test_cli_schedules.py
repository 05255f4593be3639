"""`holdfast schedules`: list, pause, resume, run, remove."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Cron, Holdfast
from tests.support.program import as_json, holdfast, ran

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def nightly(hf: Holdfast, sql: Sql) -> str:
    """A schedule at three in the morning in Berlin, registered, with a live worker that has its task."""

    @hf.task(name="app.report")
    async def report(kind: str) -> None: ...

    report.using(tenant="acme").schedule("nightly", Cron("0 3 * * *", "Europe/Berlin", "all"), "full")
    hf.database.sync_pool.run(hf.database.calls.schedules.register(hf.registry.schedules.values()))
    sql(
        "select register_worker('w', 'h', 1, '1', '{default}', 1, %s::jsonb)",
        [json.dumps(hf.registry.describe_tasks())],
    )
    sql("update schedules set next_at = '2030-06-01 01:00+00', last_at = '2030-05-31 01:00+00'")
    return "nightly"


def test_the_table_shows_the_next_slot_in_the_schedules_own_zone(dsn: str, nightly: str) -> None:
    for command in (["schedules"], ["schedules", "list"]):
        header, line = ran(dsn, *command).stdout.splitlines()
        assert header.split()[:5] == ["name", "task", "cron", "zone", "missed"]
        assert line.split()[:9] == ["nightly", "app.report", "0", "3", "*", "*", "*", "Europe/Berlin", "all"]
        assert "2030-06-01 03:00:00+0200" in line


def test_a_narrow_terminal_shows_everything_of_a_schedule(dsn: str, sql: Sql, nightly: str) -> None:
    job = holdfast(dsn, "schedules", "run", nightly).stdout.strip()
    sql("""select fire_schedules('[{"name": "nightly", "problem": "the leader has no zones"}]')""")
    shown = re.sub(r"\x1b\[[\d;]*m", "", ran(dsn, "schedules", COLUMNS="80", FORCE_COLOR="1").stdout)
    first, second, *others = shown.splitlines()
    assert first == "nightly  app.report  0 3 * * *"
    assert second == "    zone Europe/Berlin  missed all  next slot 2030-06-01 03:00:00+0200"
    for part in (f"last job {job}", "registered ", "note the leader has no zones"):
        assert any(part in line for line in others)
    assert max(map(len, shown.splitlines())) <= 80


def test_a_listed_schedule_as_json_has_every_field(dsn: str, sql: Sql, nightly: str) -> None:
    (found,) = as_json(holdfast(dsn, "schedules", "--json"))
    assert as_json(holdfast(dsn, "schedules", "list", "--json"))[0]["name"] == nightly
    expected = {
        "name": "nightly",
        "task": "app.report",
        "cron": "0 3 * * *",
        "zone": "Europe/Berlin",
        "missed": "all",
        "payload": {"kind": "full"},
        "paused": False,
        "note": "",
        "last_job": None,
        "last_slot": "2030-05-31T01:00:00Z",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["options"]["tenant"] == "acme"
    assert datetime.fromisoformat(found["next_slot"]) == datetime.fromisoformat("2030-06-01T01:00:00+00:00")
    ((now,),) = sql("select now()")
    assert abs(timedelta(seconds=found["in_seconds"]) - (datetime.fromisoformat("2030-06-01T01:00+00:00") - now)) < (
        timedelta(seconds=10)
    )
    assert abs(datetime.fromisoformat(found["last_registered"]) - now) < timedelta(seconds=10)


def test_right_after_registration_the_slot_to_come_is_worked_out(dsn: str, sql: Sql, nightly: str) -> None:
    sql("update schedules set next_at = '2030-06-01 12:34:56+00'")
    (found,) = as_json(holdfast(dsn, "schedules", "--json"))
    assert found["next_slot"] == "2030-06-02T01:00:00Z"


def test_an_empty_list_of_schedules_says_so(dsn: str) -> None:
    assert "task.schedule(NAME, CRON)" in holdfast(dsn, "schedules").stdout
    assert as_json(holdfast(dsn, "schedules", "--json")) == []


def test_pause_and_resume(dsn: str, sql: Sql, nightly: str) -> None:
    assert holdfast(dsn, "schedules", "pause", nightly).stdout == "paused nightly\n"
    assert sql("select paused from schedules") == [(True,)]
    (found,) = as_json(holdfast(dsn, "schedules", "--json"))
    assert (found["paused"], found["note"], found["next_slot"]) == (True, "paused", None)
    document = as_json(holdfast(dsn, "schedules", "resume", nightly, "--json"))
    assert document == {"name": nightly, "outcome": "resumed"}
    assert sql("select paused from schedules") == [(False,)]


def test_run_enqueues_one_job_now_and_prints_its_id(dsn: str, sql: Sql, nightly: str) -> None:
    id_ = holdfast(dsn, "schedules", "run", nightly).stdout.strip()
    assert sql("select id::text, task, tenant, payload from jobs") == [(id_, "app.report", "acme", {"kind": "full"})]
    assert as_json(holdfast(dsn, "schedules", "--json"))[0]["last_job"] == id_
    assert as_json(holdfast(dsn, "schedules", "run", nightly, "--json"))["job"] != id_


def test_remove(dsn: str, sql: Sql, nightly: str) -> None:
    assert holdfast(dsn, "schedules", "remove", nightly).stdout == "removed nightly\n"
    assert sql("select count(*) from schedules") == [(0,)]


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "remove"])
def test_an_unknown_name_is_exit_code_2_with_the_nearest(dsn: str, nightly: str, verb: str) -> None:
    result = holdfast(dsn, "schedules", verb, "nightl")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no schedule named 'nightl'; did you mean 'nightly'?" in result.stderr


def test_schedules_that_cannot_be_fired_or_read_here_have_a_note(dsn: str, sql: Sql, nightly: str) -> None:
    sql("""select fire_schedules('[{"name": "nightly", "problem": "the leader has no zones"}]')""")
    assert "the leader has no zones" in holdfast(dsn, "schedules").stdout
    sql("update schedules set problem = null, cron = '@dawn', zone = 'Mars/Base'")
    (found,) = as_json(holdfast(dsn, "schedules", "--json"))
    assert "'Mars/Base'" in found["note"]
    assert holdfast(dsn, "schedules").exit_code == 0


def test_a_task_that_no_live_worker_has_is_noted(dsn: str, sql: Sql, nightly: str) -> None:
    sql("update workers set heartbeat_at = now() - interval '1 hour'")
    assert "no live worker has this task" in holdfast(dsn, "schedules").stdout


def test_a_queue_that_no_live_worker_serves_is_noted(dsn: str, sql: Sql, nightly: str) -> None:
    sql("""update schedules set options = '{"queue": "reports"}'""")
    assert as_json(holdfast(dsn, "schedules", "--json"))[0]["note"] == "no live worker serves queue reports"
    sql("update workers set queues = '{default,reports}', stopping = true")
    assert "no live worker serves queue reports" in holdfast(dsn, "schedules").stdout
    sql("update workers set stopping = false")
    assert as_json(holdfast(dsn, "schedules", "--json"))[0]["note"] == ""
