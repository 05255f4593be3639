"""The page of tasks."""

from __future__ import annotations

from holdfast import Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

EVIL = "<script>alert(1)</script>"


async def test_tasks_are_shown_with_their_counts(shop: Holdfast) -> None:
    for _ in range(3):
        await shop.registry.tasks["shop.send"].aenqueue("ada")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/tasks")
        assert "shop.send 3 0 0 0" in words(page) and 'data-id="shop.send"' in page
        assert (await viewer.get("/tasks?fragment=tasks")).startswith('<section class="panel" id="tasks"')


async def test_a_task_is_paused_with_a_reason_and_resumed(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/tasks")
        page = words(await viewer.act("/tasks/pause", name="shop.send", reason="SMTP <b>down</b>", minutes="5"))
        assert "Paused shop.send" in page and "SMTP <b>down</b>" in page and "by of None" in page
        (key,) = shop.limits.list(prefix="task:")
        assert (key.key, key.paused) == ("task:shop.send", True) and key.paused_until is not None
        page = words(await viewer.act("/tasks/resume", name="shop.send"))
        assert "Resumed shop.send." in page and "paused by" not in page


async def test_the_name_of_a_task_is_text(shop: Holdfast) -> None:
    shop.limits.pause(f"task:{EVIL}", by=EVIL, reason=EVIL)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/tasks")
        assert "<script>" not in page and f"{EVIL} paused" in words(page)


async def test_tasks_are_paused_by_operators_alone(shop: Holdfast) -> None:
    shop.limits.pause("task:shop.send")
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        assert "Resume" not in words(await viewer.get("/tasks"))
        for action in ("pause", "resume"):
            assert (await viewer.post(f"/tasks/{action}", name="shop.send")).status_code == 403
    async with browser(shop, serving.token(shop, None)) as operator:
        await operator.get("/tasks")
        operator.csrf = "x"
        assert (await operator.post("/tasks/resume", name="shop.send")).status_code == 403
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        await tenant.get("/tasks", 403)
    assert shop.limits.list("task:")[0].paused
