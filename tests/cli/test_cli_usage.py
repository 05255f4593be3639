"""`holdfast usage`, and what doctor says of the last five minutes."""

from __future__ import annotations

import json
import re

import pytest

from holdfast import Fail, Holdfast
from tests.support import flow
from tests.support.flow import Sql
from tests.support.program import as_json, holdfast


@pytest.fixture
def busy(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="ok")
    async def ok() -> None:
        pass

    @hf.task(name="bad")
    async def bad() -> None:
        raise Fail("no")

    flow.put(sql, task="ok", tenant="acme", number=3, age=10)
    flow.put(sql, task="bad", tenant="acme", number=2)
    flow.put(sql, task="ok", number=1)
    hf.tick()


def test_runs_and_failures_of_each_tenant_and_task(dsn: str, busy: None) -> None:
    shown = [line.split() for line in holdfast(dsn, "usage").stdout.splitlines() if line.strip()]
    assert shown[0] == ["tenant", "task", "runs", "failures", "run", "seconds", "queue", "seconds"]
    assert [line[:4] for line in sorted(shown[1:])] == [
        ["(none)", "ok", "1", "0"],
        ["acme", "bad", "2", "2"],
        ["acme", "ok", "3", "0"],
    ]


def test_as_json_with_the_chosen_sums(dsn: str, busy: None) -> None:
    (acme,) = as_json(holdfast(dsn, "usage", "--by", "tenant", "--tenant", "acme", "--json"))
    assert (acme["tenant"], acme["runs"], acme["failures"]) == ("acme", 5, 2)
    assert acme["queue_seconds"] >= 30 and acme["run_seconds"] > 0
    rows = as_json(holdfast(dsn, "usage", "--by", "minute,task", "--task", "ok", "--json"))
    assert sum(row["runs"] for row in rows) == 4 and all(row["minute"].endswith(("00Z", "+00:00")) for row in rows)
    (every,) = as_json(holdfast(dsn, "usage", "--by", "", "--json"))
    assert every["runs"] == 6


def test_times_are_shown_with_their_date(dsn: str, busy: None) -> None:
    (row,) = as_json(holdfast(dsn, "usage", "--by", "day", "--json"))
    day = row["day"][:10]
    (line,) = holdfast(dsn, "usage", "--by", "day").stdout.splitlines()[1:]
    assert line.split()[:2] == [day, "6"]
    for by in ("hour", "minute"):
        assert re.search(rf"^{day} \d\d:\d\d +\d", holdfast(dsn, "usage", "--by", by).stdout, re.MULTILINE), by


def test_no_usage_is_reported_as_such_and_nonsense_is_refused(dsn: str) -> None:
    assert "nothing was run in the last 24h" in holdfast(dsn, "usage").output
    assert json.loads(holdfast(dsn, "usage", "--by", "", "--json").stdout) == []
    refused = holdfast(dsn, "usage", "--by", "colour")
    assert refused.exit_code == 2 and "tenant, task, minute, hour, day" in refused.stderr
    assert holdfast(dsn, "usage", "--since", "soon").exit_code == 2


def test_the_doctor_reports_levels(dsn: str, busy: None, sql: Sql) -> None:
    def found() -> dict[str, str]:
        checks = json.loads(holdfast(dsn, "doctor", "--json").stdout)["checks"]
        return next(each for each in checks if each["name"] == "levels")

    assert found()["level"] == "ok" and "leases lost 0 (good)" in found()["found"]
    ((before,),) = sql("select value from settings where name = 'thresholds'")
    ticks = {"tick_duration": {"warning": 30, "critical": 50}, "lock_contentions": {"warning": 1}}
    sql("update settings set value = %s::jsonb where name = 'thresholds'", [json.dumps(ticks)])
    sql("select record_tick('w', '{q}', 51, 1, 1, 1, 1, 1, 2, '{}')")
    levels = found()
    sql("update settings set value = %s::jsonb where name = 'thresholds'", [json.dumps(before)])
    assert levels["level"] == "warning"
    assert "tick duration 51 s (critical)" in levels["found"] and "lock contentions 2 (warning)" in levels["found"]
