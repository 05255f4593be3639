"""The front page."""

from __future__ import annotations

import re

from holdfast import Holdfast, Retry
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture


async def test_an_empty_database_has_a_front_page(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get("/"))
        assert "No jobs yet." in page and "none is alive; nothing runs" in page
        assert "Nothing: each queue has a worker, no limit is reached, no breaker is open, nothing is paused." in page
        assert '<span class="level level-critical">' in await viewer.get("/") and "critical no worker is alive" in page


async def test_failed_deliveries_are_shown_to_viewers_of_webhooks(shop: Holdfast, sql: serving.Sql) -> None:
    @shop.task(name="shop.break", retry=Retry.fixed(1, max_attempts=1))
    async def broken() -> None:
        raise ConnectionError("no route")

    await broken.aenqueue()
    await shop.atick()
    await shop.database.async_pool.run(shop.database.calls.workers.upkeep("test", 60.0))  # folds the errors
    sql("update error_groups set task = 'holdfast.webhook'")
    for scopes in (["jobs:read"], ["jobs:read", "webhooks:read"]):
        async with browser(shop, serving.token(shop, None, scopes)) as viewer:
            page = await viewer.get("/")
            assert ("ConnectionError" in page) == ("webhooks:read" in scopes)
            for path in re.findall(r'"(/dead/[^"]+)"', page):
                await viewer.get(path)


async def test_a_queue_without_a_live_worker_is_marked_wherever_it_is_shown(shop: Holdfast, sql: serving.Sql) -> None:
    await shop.registry.tasks["shop.send"].aenqueue("ada")
    await shop.registry.tasks["shop.send"].using(queue="nightly").aenqueue("ada")
    workers = shop.database.calls.workers
    shop.database.sync_pool.run(workers.register("w", "host-a", 42, "1", ["default"], 8, []))
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get("/"))
        assert "warning queue nightly: no worker as of" in page, "the cause beside the level, as in holdfast top"
        assert "nightly no worker" in page and "1 ready; no live worker serves it" in page
        assert "default no worker" not in page and "1 alive, 8 slots" in page
        assert "nightly no worker" in words(await viewer.get("/queues"))
        shop.database.sync_pool.run(workers.unregister("w", gone=False))
        await viewer.act("/queues/resume", name="default")  # shared results are forgotten
        page = await viewer.get("/")
        assert "default stopping" in words(page) and "its workers are stopping" in words(page)
        assert "the only one is stopping; nothing new starts" in words(page)
        assert "level-warning" in page and "all workers are stopping" in page and "2 more" in words(page)


async def test_the_front_page_shows_what_waits_and_what_is_paused(shop: Holdfast) -> None:
    for _ in range(4):
        await shop.registry.tasks["shop.send"].aenqueue("ada")
    shop.limits.pause("tenant:acme", by="ada", reason="<script>alert(1)</script>")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/")
        assert "tenant:acme paused" in words(page) and "by ada: <script>alert(1)</script>" in words(page)
        assert "<script>alert" not in page
        assert "<dt>Ready</dt><dd>4</dd>" in page
        part = await viewer.get("/?fragment=tiles")
        assert part.startswith('<dl class="tiles"')
