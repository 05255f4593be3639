"""The page of limits, and that of one key."""

from __future__ import annotations

import html
import re

from holdfast import Holdfast
from tests.support import serving
from tests.support.flow import claim_on, put
from tests.support.looking import Browser, browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

EVIL = "domain:<img src=x onerror=alert(1)>\u202e&x=1"


async def test_limits_are_shown_with_their_use_and_filtered(shop: Holdfast) -> None:
    shop.limits.set("domain:a", concurrency=3, by="ada")
    shop.limits.set("api:b", rate=10, per=1)
    shop.limits.pause("domain:c", by="ada", reason="<b>late</b>", for_=600)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get("/limits"))
        assert "domain:a" in page and "ada" in page and "10 / 1 s" in page
        assert "paused by ada" in page and ": <b>late</b>" in page and "ends in" in page
        assert page.index("domain:c") < page.index("domain:a"), "keys that throttle come first"
        page = words(await viewer.get("/limits", prefix="api:"))
        assert "api:b" in page and "domain:a" not in page
        page = words(await viewer.get("/limits", busy="true"))
        assert "domain:c" in page and "api:b" not in page
        assert "No key matches." in words(await viewer.get("/limits", prefix="nothing:"))


async def test_the_limits_of_the_code_are_shown_with_their_overrides(shop: Holdfast) -> None:
    shop.database.sync_pool.run(shop.database.calls.limits.register(shop.registry.limits))
    shop.limits.set("host:{host}", concurrency=7, by="ada")
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "host:{host} concurrency 100 concurrency 7 ada" in words(await viewer.get("/limits"))
        page = await viewer.get("/limits/key", key="host:{host}")
        assert 'name="concurrency" value="7" placeholder="100"' in page and "Pause" not in words(page)


async def test_a_number_is_changed_and_the_change_undone(shop: Holdfast) -> None:
    shop.limits.set("domain:a", concurrency=4, by="bob")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/limits/key", key="domain:a")
        fields = {"key": "domain:a", "shown": _shown(page), "concurrency": "2", "rate": "5", "reason": "slow"}
        page = await viewer.act("/limits/set", **fields)
        assert "Changed domain:a: concurrency 4 → 2, rate as in code → 5." in words(page)
        (key,) = shop.limits.list("domain:a")
        assert (key.concurrency, key.rate, key.changed_by) == (2, 5, "of None")
        page = await _undo(viewer, page)
        (key,) = shop.limits.list("domain:a")
        assert key.override == {"concurrency": 4}, "the rate's defaults are gone, too"
        page = await viewer.act("/limits/clear", key="domain:a")
        assert "Cleared domain:a" in words(page)
        await _undo(viewer, page)
        (key,) = shop.limits.list("domain:a")
        assert key.override == {"concurrency": 4}


async def test_a_form_changes_only_what_its_viewer_changed(shop: Holdfast) -> None:
    shop.limits.set("domain:a", concurrency=4)
    async with browser(shop, serving.token(shop, None)) as viewer:
        shown = _shown(await viewer.get("/limits/key", key="domain:a"))
        shop.limits.set("domain:a", concurrency=9)
        await viewer.act("/limits/set", key="domain:a", shown=shown, concurrency="4", rate="5")
        (key,) = shop.limits.list("domain:a")
        assert (key.concurrency, key.rate) == (9, 5)
        page = await viewer.act("/limits/set", key="domain:a", shown=shown, concurrency="4")
        assert "Nothing was changed." in words(page)


async def test_a_wrong_number_is_refused_with_a_sentence(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/limits/key", key="domain:a")
        response = await viewer.post("/limits/set", key="domain:a", burst="0.5")
        assert response.status_code == 422 and "burst must be 1 or more" in words(response.text)
        response = await viewer.post("/limits/set", key="domain:a", concurrency="many")
        assert response.status_code == 422 and "form.concurrency: expected int" in words(response.text)
        assert (await viewer.post("/limits/set", key="domain:a", shown="[1")).status_code == 422
        assert shop.limits.list() == []


async def test_a_key_is_paused_and_resumed_with_a_record(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/limits/key", key="domain:a")
        page = words(await viewer.act("/limits/pause", key="domain:a", reason="down", minutes="5"))
        assert "Paused domain:a" in page and "by of None" in page and ": down" in page
        assert "Resumed domain:a." in words(await viewer.act("/limits/resume", key="domain:a"))
        assert "domain:a was not paused." in words(await viewer.act("/limits/resume", key="domain:a"))
        assert "domain:a has no open breaker." in words(await viewer.act("/limits/reset", key="domain:a"))


async def test_an_open_breaker_is_shown_and_closed(shop: Holdfast, sql: serving.Sql) -> None:
    put(sql, keys=["api:b"])
    shop.limits.set("api:b", breaker_after=5)
    claim_on(sql)
    sql("UPDATE limits SET open_until = clock() + interval '5 minutes', failure_streak = 5 WHERE key = 'api:b'")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get("/limits"))
        assert "api:b open" in page and "open after 5 failures in a row; one job tries again in" in page
        assert "Closed the breaker of api:b." in words(await viewer.act("/limits/reset", key="api:b"))
        assert [each.breaker for each in shop.limits.list("api:b")] == ["closed"]


async def test_what_a_breaker_did_is_shown_with_how_long_and_by_whom(shop: Holdfast, sql: serving.Sql) -> None:
    shop.limits.set("domain:a", breaker_after=2, by="ada")
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "It did not open in the last 30 days." in words(await viewer.get("/limits/key", key="domain:a"))
        at = "clock() - interval '10 min'"
        sql(f"INSERT INTO breaker_events (key, at, event, failures) VALUES ('domain:a', {at}, 'opened', 2)")
        sql("SELECT make_limits('{domain:a}')")
        sql("UPDATE limits SET failure_streak = 2, open_until = clock() + interval '1 h' WHERE key = 'domain:a'")
        page = words(await viewer.act("/limits/reset", key="domain:a", reason=f"back {EVIL}"))
        assert "closed by an operator 2 10 m" in page and "of None back domain:<img" in page
        assert "10 m ago opened 2" in page


async def test_a_hostile_key_is_text(shop: Holdfast) -> None:
    shop.limits.pause(EVIL, by="<script>", reason="</td><script>alert(1)</script>")
    async with browser(shop, serving.token(shop, None)) as viewer:
        for page in (await viewer.get("/limits"), await viewer.get("/limits/key", key=EVIL)):
            assert "<img" not in page and "<script>" not in page and "onerror=alert(1)&gt;\\u202e&amp;x" in page
        page = words(await viewer.act("/limits/resume", key=EVIL))
        assert "Resumed domain:<img" in page, "the key is in the address of the next page"


async def test_who_may_not_operate_sees_no_forms_and_cannot_post(shop: Holdfast) -> None:
    shop.limits.set("domain:a", concurrency=4)
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        page = await viewer.get("/limits/key", key="domain:a")
        assert "Pause" not in words(page) and "/limits/set" not in page and "Undo" not in words(page)
        for action in ("set", "clear", "pause", "resume", "reset"):
            assert (await viewer.post(f"/limits/{action}", key="domain:a")).status_code == 403
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        await tenant.get("/limits", 403)
        await tenant.get("/limits/key", 403, key="domain:a")


async def test_changes_need_the_token_of_the_form(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/limits/key", key="domain:a")
        viewer.csrf = "x"
        assert (await viewer.post("/limits/set", key="domain:a", concurrency="1")).status_code == 403
        assert shop.limits.list() == []


def _shown(page: str) -> str:
    found = re.search(r'name="shown" value="([^"]*)"', page)
    assert found is not None
    return html.unescape(found[1])


async def _undo(viewer: Browser, page: str) -> str:
    """Post the first form that undoes a change."""
    (form,) = re.findall(r"<form((?:(?!</form>).)*)<button class=\"link\">Undo</button>", page, re.S)
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)}
    return await viewer.act("/limits/set", **{name: value for name, value in fields.items() if name != "csrf"})
