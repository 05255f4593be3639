"""The queues page."""

from __future__ import annotations

from holdfast import Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture


async def test_queues_are_shown_with_their_counts(shop: Holdfast) -> None:
    for _ in range(3):
        await shop.registry.tasks["shop.send"].aenqueue("ada")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/queues")
        assert "default" in words(page) and 'data-id="default"' in page
        assert '<td class="num">3</td>' in page


async def test_a_queue_is_paused_with_a_reason_and_resumed(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/queues")
        page = words(await viewer.act("/queues/pause", name="mail", reason="SMTP <b>down</b>", minutes="5"))
        assert "Paused mail" in page and "SMTP <b>down</b>" in page and "by of None" in page and "ends in" in page
        (key,) = shop.limits.list(prefix="queue:")
        assert key.paused and key.paused_reason == "SMTP <b>down</b>"
        page = words(await viewer.act("/queues/resume", name="mail"))
        assert "Resumed mail." in page
        assert not [each for each in shop.limits.list(prefix="queue:") if each.paused]
        assert "Resumed mail." not in words(await viewer.get("/queues")), "a note is shown once"


async def test_a_form_with_a_wrong_value_says_so(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/queues")
        response = await viewer.post("/queues/pause", name="mail", minutes="soon", colour="red")
        assert response.status_code == 422
        page = words(response.text)
        assert "form.minutes: expected float | null, got 'soon'" in page and "form.colour: no such field" in page
