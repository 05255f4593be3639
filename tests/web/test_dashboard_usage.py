"""The page of usage, and its CSV."""

from __future__ import annotations

from holdfast import Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import (
    Sql,
    shop_fixture,  # noqa: F401 - a fixture
)

HOSTILE = "<script>alert(1)</script>"


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
