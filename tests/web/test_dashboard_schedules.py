"""The page of schedules."""

from __future__ import annotations

from holdfast import Cron, Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

NAME = "nightly/<b>report</b>"


async def register(shop: Holdfast) -> None:
    """Register a schedule, as a worker does when it starts."""
    shop.registry.tasks["shop.send"].using().schedule(NAME, Cron("0 3 * * *", "Europe/Berlin", "skip"), "ada")
    shop.database.sync_pool.run(shop.database.calls.schedules.register(shop.registry.schedules.values()))


async def test_schedules_are_shown_with_their_next_slot(shop: Holdfast) -> None:
    await register(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/schedules")
        assert "<b>report" not in page
        text = words(page)
        assert f"{NAME} shop.send no live worker has it 0 3 * * * Europe/Berlin" in text and "skip" in text


async def test_a_queue_that_no_live_worker_serves_is_shown(shop: Holdfast) -> None:
    shop.registry.tasks["shop.send"].using(queue="reports").schedule(NAME, "0 3 * * *", "ada")
    calls, pool = shop.database.calls, shop.database.sync_pool
    pool.run(calls.schedules.register(shop.registry.schedules.values()))
    pool.run(calls.workers.register("w", "h", 1, "1", ["default"], 1, shop.registry.describe_tasks()))
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert f"{NAME} shop.send no live worker serves queue reports 0 3" in words(await viewer.get("/schedules"))


async def test_a_schedule_is_run_paused_resumed_and_removed(shop: Holdfast) -> None:
    await register(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/schedules")
        assert "Enqueued job" in words(await viewer.act("/schedules/run", name=NAME))
        assert [each.task for each in shop.jobs.list()] == ["shop.send"]
        assert f"{NAME} paused" in words(await viewer.act("/schedules/pause", name=NAME, reason="the report is wrong"))
        assert [each.paused for each in shop.schedules.list()] == [True]
        await viewer.act("/schedules/resume", name=NAME)
        assert [each.paused for each in shop.schedules.list()] == [False]
        assert "There are no schedules" in words(await viewer.act("/schedules/remove", name=NAME))
        kinds = {each.kind: each.by for each in shop.actions.list(target=NAME)}
        assert set(kinds.values()) == {"of None"} and len(kinds) == 4
        assert (await viewer.post("/schedules/run", name=NAME)).status_code == 404


async def test_a_problem_is_shown_with_its_schedule(shop: Holdfast) -> None:
    await register(shop)
    shop.database.sync_pool.run(shop.database.calls.schedules.flag({NAME: "no zone <i>Mars</i>"}))
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "no zone <i>Mars</i>" in words(await viewer.get("/schedules"))


async def test_schedules_are_changed_by_operators_and_seen_by_no_tenant(shop: Holdfast) -> None:
    await register(shop)
    async with browser(shop, serving.token(shop, None, ["jobs:read", "jobs:write"])) as viewer:
        assert "Run now" not in words(await viewer.get("/schedules"))
        for action in ("run", "pause", "resume", "remove"):
            assert (await viewer.post(f"/schedules/{action}", name=NAME)).status_code == 403
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        await tenant.get("/schedules", 403)
    assert not shop.jobs.list() and len(shop.schedules.list()) == 1
