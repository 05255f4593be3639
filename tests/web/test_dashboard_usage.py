"""The page of usage, and its CSV."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from holdfast import Holdfast
from holdfast.model.tick import Usage
from holdfast.web.dashboard import usage
from holdfast.web.dashboard.usage import filled
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import (
    Sql,
    shop_fixture,  # noqa: F401 - a fixture
)

HOSTILE = "<script>alert(1)</script>"


def bars(page: str) -> list[float]:
    """Return where the bars of the page's chart begin, from the left."""
    chart = page.partition('class="chart"')[2].partition("</svg>")[0]
    return sorted(map(float, re.findall(r'class="bar[^"]*" x="([0-9.]+)"', chart)))


def use(sql: Sql, ago: str, tenant: str, task: str, runs: int) -> None:
    """Count usage of so long ago."""
    row: list[str | int] = [ago, tenant, task, runs]
    sql(
        "insert into usage_counts values (date_trunc('minute', clock() - %s::interval), %s, %s, 1, %s, 1, 2.5, 0.5)",
        row,
    )


async def test_usage_is_summed_by_tenant_and_task_over_a_span(shop: Holdfast, sql: Sql) -> None:
    use(sql, "1 min", "acme", HOSTILE, 3)
    use(sql, "2 min", "acme", HOSTILE, 4)
    use(sql, "1 min", "", "mail", 5)
    use(sql, "3 days", "acme", "mail", 11)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/usage")
        assert HOSTILE not in page and f"acme {HOSTILE} 7 2" in words(page) and "none mail 5 1" in words(page)
        assert "Attempts ended 12" in words(page)
        page = words(await viewer.get("/usage?by=tenant&since=7d&tenant=acme"))
        assert "acme 18 3" in page and "Attempts per day" in page
        await viewer.get("/usage?since=1000d", 422)
        await viewer.get("/usage?by=colour", 422)


async def test_the_csv_has_the_same_sums_and_no_formulas(shop: Holdfast, sql: Sql) -> None:
    use(sql, "1 min", "=cmd|' /C calc'!A0", 'mail,"x"', 3)
    async with browser(shop, serving.token(shop, None)) as viewer:
        response = await viewer.http.get("/usage.csv?by=tenant,task&since=7d")
        assert response.headers["content-type"] == "text/csv; charset=utf-8"
        assert response.headers["content-disposition"] == 'attachment; filename="usage.csv"'
        head, row = response.text.splitlines()
        assert head == "tenant,task,runs,failures,run_seconds,queue_seconds"
        assert row == """'=cmd|' /C calc'!A0,"mail,""x\""",3,1,2.5,0.5"""


async def test_the_bars_stand_at_their_time_also_where_nothing_ran_between(shop: Holdfast, sql: Sql) -> None:
    use(sql, "1 min", "acme", "mail", 3)
    use(sql, "20 hours", "acme", "mail", 4)
    async with browser(shop, serving.token(shop, None)) as viewer:
        places = bars(await viewer.get("/usage"))
        assert len(places) == 4, "of two hours, what ended and what failed"
        assert places[0] < 120 and places[-1] > 500
        assert min(bars(await viewer.get("/usage?since=30d"))) > 500, "the last day or two of thirty"


@pytest.mark.parametrize(("unit", "runs"), [("hour", [0] * 2 + [3] + [0] * 24), ("day", [0, 3, 0])])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York"])
def test_hours_and_days_without_rows_are_zero(unit: str, runs: list[int], zone: str) -> None:
    at = ZoneInfo(zone)
    since, until = datetime(2030, 1, 1, 22, 30, tzinfo=at), datetime(2030, 1, 3, 1, 0, tzinfo=at)
    found = filled([Usage({unit: datetime(2030, 1, 2, tzinfo=at)}, 3, 1, 2.0, 1.0)], unit, since, until)
    assert [each.runs for each in found] == runs
    assert found[0].by[unit] == datetime(2030, 1, 1, 22 if unit == "hour" else 0, tzinfo=at)
    assert filled([], unit, until, since) == []


def test_the_day_on_which_clocks_change_is_one_day_of_25_hours() -> None:
    at = ZoneInfo("America/New_York")
    since, until = datetime(2030, 11, 2, tzinfo=at), datetime(2030, 11, 5, tzinfo=at)
    last = {unit: Usage({unit: datetime(2030, 11, 4, tzinfo=at)}, 3, 1, 2.0, 1.0) for unit in ("hour", "day")}
    assert [each.runs for each in filled([last["day"]], "day", since, until)] == [0, 0, 3]
    hours = filled([last["hour"]], "hour", since, until)
    assert len(hours) == 73 and hours[49].runs == 3


async def test_what_is_left_out_is_said(shop: Holdfast, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST", 2)
    monkeypatch.setattr(usage, "MOST_CSV", 2)
    for each in ("mail", "send", "fetch"):
        use(sql, "1 min", "acme", each, 3)
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "These are the 2 largest; the CSV has up to 2." in words(await viewer.get("/usage"))
        assert "These are the 2 newest; the CSV has up to 2." in words(await viewer.get("/usage?by=task,day"))
        *_, last = (await viewer.http.get("/usage.csv")).text.splitlines()
        assert last == "the first 2 rows; for the others choose a shorter span or one tenant or task"
        assert len((await viewer.http.get("/usage.csv?task=mail")).text.splitlines()) == 2


async def test_the_form_keeps_the_end_of_the_span(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/usage?until=2199-01-01T00:00:00Z")
        assert '<input type="text" name="until" value="2199-01-01T00:00:00Z"' in page
        assert 'name="until"' not in await viewer.get("/usage")


async def test_a_tenant_sees_its_own_usage_only(shop: Holdfast, sql: Sql) -> None:
    use(sql, "1 min", "acme", "mail", 3)
    use(sql, "1 min", "others", "secret", 4)
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        page = words(await tenant.get("/usage"))
        assert "acme mail 3 1" in page and "secret" not in page and "Attempts ended 3" in page
        assert "secret" not in await tenant.get("/usage.csv")
        assert "Nothing has run" in words(await tenant.get("/usage?tenant=others"))


async def test_usage_needs_the_scope_to_read_jobs(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, "acme", ["webhooks:read"])) as viewer:
        await viewer.get("/usage", 403)
        await viewer.get("/usage.csv", 403)
    async with browser(shop) as anonymous:
        assert (await anonymous.http.get("/usage.csv")).status_code == 303
