"""`holdfast top`, and what it reads: hf.queues.figures, minutes and wanted."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli import render
from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.program import as_json, holdfast, ran, started

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def busy(sql: Sql) -> None:
    """Two queues, two tenants of which one has three quarters of what runs, a full limit, a worker."""
    sql("select register_worker('w', 'h', 1, '1', '{default}', 4, '[]')")
    for n in range(4):
        core.put(sql, tenant="acme" if n else "bree")
    sql("select claim('w', p_limit => 4)")
    sql("select claim('w', p_limit => 4)")  # where the tenants have lanes of their own
    for _ in range(3):
        core.put(sql, queue="mail")
    core.put(sql, delay="1 h")
    sql("select set_limit('domain:x', '{\"concurrency\": 2}')")
    sql("insert into limits (key, running) values ('domain:x', 2)")


def looked(sql: Sql, dsn: str, *arguments: str) -> str:
    """Return the picture of a new snapshot."""
    sql("delete from snapshots")
    result = holdfast(dsn, "top", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_one_picture_of_everything(dsn: str, sql: Sql, busy: None) -> None:
    for arguments in (["--once"], []):
        shown = looked(sql, dsn, *arguments)
        lines = [line.split() for line in shown.splitlines()]
        assert "1 worker  4 of 4 slots busy" in shown and "1 later" in shown
        assert ["default", "0", "4"] in lines
        assert any(line[:3] == ["mail", "3", "0"] and line[-2:] == ["no", "worker"] for line in lines)
        assert ["acme", "[###############.....]", "75", "%", "3", "0"] in lines
        assert ["bree", "[#####...............]", "25", "%", "1", "0"] in lines
        assert any(line[:4] == ["domain:x", "2", "of", "2"] for line in lines)
        assert any(line[:3] == ["w", "4", "default"] for line in lines)


def test_rates_failures_and_waits_are_of_the_last_minute(dsn: str, sql: Sql) -> None:
    ids = [core.put(sql) for _ in range(4)]
    claimed = core.claim(sql, limit=4)
    core.finish(sql, *claimed[1:])
    core.fail(sql, claimed[0], outcome="dead")
    shown = looked(sql, dsn)
    assert re.search(r"^ended +\S+█ +4 a minute +25% failed", shown, re.M), shown
    assert re.search(r"^default +0 +0 +4 +25% ", shown, re.M) and "1 dead" in shown
    assert len(ids) == 4


def test_the_picture_as_json(dsn: str, sql: Sql, busy: None) -> None:
    now = as_json(holdfast(dsn, "top", "--json"))
    queues = {queue["queue"]: (queue["ready"], queue["running"], queue["later"]) for queue in now["queues"]}
    assert queues == {"default": (0, 4, 1), "mail": (3, 0, 0)}
    assert [(t["tenant"], t["running"], t["share"]) for t in now["tenants"]] == [("acme", 3, 0.75), ("bree", 1, 0.25)]
    assert [(each["key"], each["running"]) for each in now["limits"]] == [("domain:x", 2)]
    assert (now["workers"], now["slots"], [worker["id"] for worker in now["alive"]]) == (1, 4, ["w"])
    assert now["age"] < 60 and now["minutes"] == []


def test_keys_that_let_nothing_start_come_first_and_the_rest_is_counted(dsn: str, sql: Sql, busy: None) -> None:
    sql("insert into limits (key, running) select 'host:' || n, 100 from generate_series(10, 21) n")
    sql("select pause('queue:mail')")
    sql("select set_limit('source:x', '{\"breaker_after\": 5}')")
    sql("insert into limits (key, open_until, failure_streak) values ('source:x', now() + interval '241 s', 5)")
    shown = looked(sql, dsn)
    keys = re.findall(r"^(?:domain|source|host|queue):\S+", shown, re.M)
    assert keys[:3] == ["domain:x", "queue:mail", "source:x"] and len(keys) == 10
    assert "and 5 more keys" in shown
    assert re.search(r"^mail +3 +0 .* paused, no worker$", shown, re.M)


def test_a_worker_that_is_lost_counts_for_nothing_and_claimed_jobs_fill_no_more_than_its_slots(
    dsn: str, sql: Sql, busy: None
) -> None:
    sql("update workers set concurrency = 3")
    assert "1 worker  3 of 3 slots busy, 1 claimed ahead" in looked(sql, dsn)
    sql("update workers set heartbeat_at = now() - interval '5 minutes'")
    sql("update claims set expires_at = now() - interval '4 minutes'")
    shown = looked(sql, dsn)
    assert "0 workers  0 of 0 slots busy" in shown
    assert re.search(r"^w +3 +default +5(\.0\d)? min ago, lost", shown, re.M), shown
    assert re.search(r"^default +0 +4 +no worker$", shown, re.M), shown


def test_each_column_of_limits_has_a_header_and_a_queue_notes_all_that_stops_it(dsn: str, sql: Sql, busy: None) -> None:
    sql("insert into throttled values ('domain:x', 'acme', 1234, now())")
    sql("select pause('queue:mail')")
    shown = looked(sql, dsn)
    assert re.search("^key +use +rate +breaker +paused +throttled +note *$", shown, re.M), shown
    assert re.search(r"^domain:x +2 of 2 +1,234 +set by", shown, re.M), shown
    assert re.search("^mail +3 +0 .*paused, no worker$", shown, re.M), shown


def test_health_names_what_is_wrong(dsn: str, sql: Sql, busy: None) -> None:
    assert re.search("^health +warning +queue mail: no worker$", looked(sql, dsn), re.M), "as on the dashboard"
    sql("update live set run_at = now() - interval '2 h', created_at = now() - interval '2 h' where queue = 'mail'")
    assert re.search(r"^health +critical +wait over target 120x +queue mail: no worker", looked(sql, dsn), re.M)


def test_an_empty_database_has_a_picture_too(dsn: str, sql: Sql) -> None:
    shown = looked(sql, dsn)
    assert "0 workers  0 of 0 slots busy" in shown and re.search("^health +critical +no worker is alive$", shown, re.M)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (140, 45)])
def test_it_fits_a_terminal(dsn: str, sql: Sql, busy: None, tmp_path: Path, columns: int, lines: int) -> None:
    for n in range(30):
        core.put(sql, queue=f"queue-{n}")
    sql("insert into limits (key, running) select 'host:' || n, 100 from generate_series(10, 41) n")
    size = {"FORCE_COLOR": "1", "COLUMNS": str(columns), "LINES": str(lines)}
    with started(dsn, "top", "--every", "0.1", folder=tmp_path, **size) as program:
        wait_until(lambda: program.output.count("holdfast") > 1)
        program.process.send_signal(signal.SIGINT)
        assert program.ended() == 0
        assert "\x1b[?1049l" in program.output, "the screen before it comes back"
    frame = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", program.output.split("holdfast")[1]).splitlines()
    assert max(map(len, frame)) <= columns and len(frame) <= lines
    for part in ("queue-", "acme", "domain:x", "more queues", "more keys"):
        assert part in "\n".join(frame)


def test_a_narrow_terminal_shows_it_within_its_width(dsn: str, busy: None) -> None:
    shown = re.sub(r"\x1b\[[\d;]*m", "", ran(dsn, "top", "--once", COLUMNS="80", FORCE_COLOR="1").stdout)
    assert max(map(len, shown.splitlines())) <= 80
    assert "domain:x" in shown and "acme" in shown


def test_a_long_queue_is_estimated_and_marked_as_such(dsn: str, sql: Sql) -> None:
    """A table of more than 16 MB is sampled; here two jobs fill a page."""
    sql(
        "insert into live (id, task, payload) select uuid7(), 't', json_build_object('x', repeat('x', 1700)) "
        "from generate_series(1, 6000)"
    )
    (queue,) = as_json(holdfast(dsn, "top", "--json"))["queues"]
    assert queue["ready"] == pytest.approx(6000, rel=0.1) and "ready" in queue["estimated"]
    assert re.search(r"^default +~[56],\d{3} +0 ", holdfast(dsn, "top").stdout, re.M)
    assert re.search(r"^default +~[56],\d{3} +0 +0 +0 ", holdfast(dsn, "jobs", "queues").stdout, re.M)


def test_a_queue_wants_as_many_slots_as_start_its_backlog_in_time(dsn: str, hf: Holdfast, sql: Sql) -> None:
    for _ in range(30):
        core.put(sql, queue="mail")
    assert holdfast(dsn, "jobs", "wanted", "mail", "--within", "10s").stdout == "3\n"  # a second each, while unknown
    assert as_json(holdfast(dsn, "jobs", "wanted", "mail", "--json")) == {"queue": "mail", "slots": 1}
    assert hf.queues.wanted("mail", within=1) == 30
    unknown = holdfast(dsn, "jobs", "wanted", "mial")
    assert unknown.stdout == "0\n" and "did you mean 'mail'?" in unknown.stderr
    assert holdfast(dsn, "jobs", "wanted", "mail", "--within", "0").exit_code != 0


def test_a_chart_has_a_character_for_each_value() -> None:
    assert render.sparkline([0, 1, 4, 8]) == "·▁▄█"
    assert render.sparkline([0, 0]) == "··" and render.sparkline([]) == ""
