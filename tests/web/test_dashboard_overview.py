"""The front page."""

from __future__ import annotations

from holdfast import Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture


async def test_an_empty_database_has_a_front_page(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get("/"))
        assert "No jobs yet." in page and "none is alive; nothing runs" in page
        assert "Nothing: no limit is reached, no breaker is open, nothing is paused." in page


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
