"""The page of workers."""

from __future__ import annotations

from holdfast import Holdfast
from tests.support import serving
from tests.support.flow import claim_on, put
from tests.support.looking import browser, words
from tests.support.serving import Sql, shop_fixture  # noqa: F401 - a fixture

EVIL = "<script>alert(1)</script>"


def _register(hf: Holdfast, worker: str, host: str, queues: list[str]) -> None:
    calls = hf.database.calls.workers
    hf.database.sync_pool.run(calls.register(worker, host, 42, "1.2.3", queues, 8, []))


async def test_without_workers_the_page_says_that_nothing_runs(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "No worker is registered; nothing runs." in words(await viewer.get("/workers"))


async def test_workers_are_shown_with_what_they_run(shop: Holdfast, sql: Sql) -> None:
    _register(shop, "w", "host-a", ["default", "mail"])
    put(sql)
    put(sql)
    claim_on(sql, "w")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get("/workers"))
        assert "host-a pid 42 w alive" in page and "default, mail" in page and "1.2.3" in page and " 2 of 8 " in page


async def test_workers_that_stop_or_are_gone_are_marked(shop: Holdfast, sql: Sql) -> None:
    _register(shop, "w", "host-a", ["default"])
    _register(shop, "v", "host-b", ["default"])
    shop.database.sync_pool.run(shop.database.calls.workers.unregister("w", gone=False))
    sql("UPDATE workers SET heartbeat_at = heartbeat_at - interval '1 hour' WHERE id = 'v'")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get("/workers"))
        assert "host-a pid 42 w stopping" in page and "host-b pid 42 v gone" in page


async def test_jobs_of_a_worker_that_is_gone_are_shown(shop: Holdfast, sql: Sql) -> None:
    put(sql)
    claim_on(sql, "lost-worker")
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "lost-worker: 1 jobs, lease expires in" in words(await viewer.get("/workers"))


async def test_what_a_worker_says_of_itself_is_text(shop: Holdfast) -> None:
    _register(shop, EVIL, EVIL, [EVIL])
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/workers")
        assert "<script>" not in page and EVIL in words(page)


async def test_a_worker_is_asked_to_drain_and_then_to_stop_now(shop: Holdfast, sql: Sql) -> None:
    _register(shop, "w", "host-a", ["default"])
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert 'name="now" value="yes">' in await viewer.get("/workers")
        page = words(await viewer.act("/workers/stop", worker="w", reason=f"it leaks {EVIL}"))
        assert "Within a few seconds w claims nothing more, finishes its jobs and ends." in page
        assert "draining" in page and f": it leaks {EVIL}" in page and "Stop now" in page
        page = words(await viewer.act("/workers/stop", worker="w", now="yes"))
        assert "w releases its jobs and ends." in page and "stopping" in page and "Stop now" not in page
        assert (await viewer.post("/workers/stop", worker="nobody")).status_code == 404
    assert sql("SELECT kind, target, by, reason FROM audit WHERE kind LIKE 'workers%%' ORDER BY id") == [
        ("workers.drain", "w", "of None", f"it leaks {EVIL}"),
        ("workers.stop", "w", "of None", None),
    ]


async def test_who_may_only_look_stops_no_worker(shop: Holdfast, sql: Sql) -> None:
    _register(shop, "w", "host-a", ["default"])
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        assert "/workers/stop" not in await viewer.get("/workers")
        assert (await viewer.post("/workers/stop", worker="w")).status_code == 403
    assert sql("SELECT count(*) FROM worker_stops") == [(0,)]


async def test_workers_are_shown_to_viewers_of_all_tenants(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        await tenant.get("/workers", 403)
