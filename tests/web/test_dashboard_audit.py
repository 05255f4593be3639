"""The pages of what operators did."""

from __future__ import annotations

from uuid import uuid4

from holdfast import Holdfast
from holdfast.model.job import ids
from holdfast.model.view import View
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

HOSTILE = "<script>alert(1)</script>\u202e"


async def running(shop: Holdfast, tenant: str | None = None) -> str:
    """Start an action on waiting jobs, which no one works on."""
    for _ in range(3):
        await shop.registry.tasks["shop.send"].using(tenant=tenant).aenqueue("ada")
    calls, id_ = shop.database.calls.actions, ids.make()
    where = {"task": "shop.send"}
    shop.database.sync_pool.run(calls.start(id_, "cancel", where, None, {}, "ada", HOSTILE, View(tenant=tenant)))
    return id_


async def test_changes_are_listed_with_who_when_why_before_and_after(shop: Holdfast) -> None:
    shop.limits.set("host:a", concurrency=2, by="ada", reason=HOSTILE)
    shop.limits.set("host:a", rate=2, per=600, by="ada")
    shop.limits.set("host:a", concurrency=5, by="ben")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/audit")
        assert "<script>alert" not in page and "\u202e" not in page
        text = words(page)
        assert "ada limits.set host:a" in text and "<script>alert(1)</script>\\u202e" in text
        assert "ben limits.set host:a concurrency 2 → 5" in text
        assert "concurrency as in code → 2" in text, "as on the page of the key"
        text = words(await viewer.get("/audit?by=ben&target=host:a"))
        assert "rate" not in text, "what a change does not name stays as it is"
        assert "ben limits.set" in text and "ada limits.set" not in text
        assert "Nothing was done that matches." in words(await viewer.get("/audit?kind=edit"))


async def test_the_parts_that_follow_changes_are_served_alone(shop: Holdfast) -> None:
    id_ = await running(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        part = await viewer.get("/audit?fragment=entries,running")
        assert "<html" not in part and 'id="entries"' in part and 'id="running"' in part
        assert "0 of 3 jobs changed" in words(await viewer.get(f"/audit/{id_}?fragment=action"))


async def test_the_log_goes_on_with_a_cursor(shop: Holdfast) -> None:
    for name in ("first", "second", "third"):
        shop.limits.set(f"host:{name}", concurrency=2)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/audit?kind=limits.set&limit=2")
        assert "third" in words(page) and "first" not in words(page)
        older = page.partition('" rel="next"')[0].rpartition('href="')[2].replace("&amp;", "&")
        assert "kind=limits.set" in older
        assert "first" in words(await viewer.get(older))


async def test_an_action_that_runs_is_shown_with_its_progress_and_aborted(shop: Holdfast) -> None:
    id_ = await running(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "Actions that run" in words(await viewer.get("/audit"))
        assert "running 0 of 3 jobs changed" in words(await viewer.get(f"/audit/{id_}"))
        page = words(await viewer.act(f"/audit/{id_}/abort", reason="the wrong filter"))
        assert "aborted 0 of 3 jobs changed" in page and "what it has changed stays changed" in page
        assert shop.actions.get(id_).state == "aborted"
        (entry,) = shop.actions.list(kind="abort")
        assert (entry.by, entry.reason) == ("of None", "the wrong filter")
        assert (await viewer.post(f"/audit/{id_}/abort")).status_code == 409
        assert "Actions that run" not in words(await viewer.get("/audit"))


async def test_a_tenant_sees_and_aborts_its_own_actions_only(shop: Holdfast) -> None:
    mine, other = await running(shop, "acme"), await running(shop, "others")
    shop.limits.set("host:a", concurrency=2)
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        page = await tenant.get("/audit")
        assert mine in page and other not in page and "limits.set" not in words(page).replace("placeholder", "")
        await tenant.get(f"/audit/{other}", 404)
        await tenant.get(f"/audit/{uuid4()}", 404)
        assert (await tenant.post(f"/audit/{other}/abort")).status_code == 404
        await tenant.act(f"/audit/{mine}/abort")
        assert shop.actions.get(other).state == "running"


async def test_who_may_only_look_cannot_abort(shop: Holdfast) -> None:
    id_ = await running(shop)
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        assert "Abort" not in words(await viewer.get(f"/audit/{id_}"))
        assert (await viewer.post(f"/audit/{id_}/abort")).status_code == 403
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/audit")
        viewer.csrf = "x"
        assert (await viewer.post(f"/audit/{id_}/abort")).status_code == 403
        assert shop.actions.get(id_).state == "running"


async def test_the_log_of_all_tenants_needs_operate_as_over_http(shop: Holdfast) -> None:
    id_ = await running(shop)
    shop.limits.set("host:a", concurrency=2, by="ada")
    (entry,) = shop.actions.list(kind="limits.set")
    async with browser(shop, serving.token(shop, None, ["jobs:read", "jobs:write"])) as viewer:
        assert 'href="/audit"' not in await viewer.get("/jobs")
        page = words(await viewer.get("/audit", 403, kind="tokens.create"))
        assert "lacks the scope operate" in page and "--scopes jobs:read,operate --all-tenants" in page
        await viewer.get(f"/audit/{entry.id}", 403)
        assert (await viewer.post(f"/audit/{entry.id}/abort")).status_code == 403
        assert "Changes" not in words(await viewer.get("/limits/key", key="host:a"))
        assert "0 of 3 jobs changed" in words(await viewer.get(f"/audit/{id_}")), "a change of jobs is followed"
        assert "aborted" in words(await viewer.act(f"/audit/{id_}/abort"))
    async with browser(shop, serving.token(shop, None, ["jobs:read", "operate"])) as viewer:
        assert "ada limits.set" in words(await viewer.get("/audit"))
        assert "Changes" in words(await viewer.get("/limits/key", key="host:a"))
