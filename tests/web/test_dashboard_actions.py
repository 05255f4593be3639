"""Changes of many jobs: selected ones, and all that match."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

from holdfast import Holdfast
from holdfast.web.dashboard.search import FILTERS
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture


async def enqueue(shop: Holdfast, tenant: str, number: int) -> list[str]:
    send = shop.registry.tasks["shop.send"].using(tenant=tenant)
    return [(await send.aenqueue(f"{tenant} {each}")).id for each in range(number)]


async def test_selected_jobs_are_changed_at_once(shop: Holdfast) -> None:
    ids = await enqueue(shop, "acme", 3)
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/jobs")
        page = await viewer.act("/actions/selected", kind="cancel", ids=ids[:2], reason="a mistake")
        assert "2 jobs were canceled." in words(page)
        page = await viewer.act("/actions/selected", kind="retry", ids=ids)
        assert "0 jobs were retried; 3 left as they were." in words(page)
        assert "No job was selected." in words(await viewer.act("/actions/selected", kind="retry"))
    assert [shop.jobs.get(each).status for each in ids] == ["canceled", "canceled", "queued"]


async def test_a_change_of_selected_jobs_leads_back_to_the_list_as_it_was_filtered(shop: Holdfast) -> None:
    ids = await enqueue(shop, "acme", 3)
    async with browser(shop, serving.token(shop, None)) as viewer:
        first = await viewer.get("/jobs?limit=2&tenant=acme&args=to%3Dacme+2&task=")
        (here,) = re.findall(r'name="next" value="(/jobs[^"]*)">\s*<span', first)
        fields = {"kind": "cancel", "next": html.unescape(here)}
        for some, said in (({"ids": ids[2:]}, "1 job was canceled."), ({}, "No job was selected.")):
            response = await viewer.post("/actions/selected", **fields, **some)
            assert response.headers["location"] == "/jobs?limit=2&tenant=acme&args=to%3Dacme+2"
            assert said in words(await viewer.get(response.headers["location"]))
        for elsewhere in ("//evil.example", "https://evil.example", "x"):
            response = await viewer.post("/actions/selected", kind="cancel", next=elsewhere)
            assert response.headers["location"] == "/jobs"


async def test_a_change_of_all_that_match_leaves_out_no_part_of_the_search(shop: Holdfast) -> None:
    ids = await enqueue(shop, "acme", 2)
    nothing = dict.fromkeys(("task", "queue", "tenant", "error"), "x") | {"args": "to=x"}
    async with browser(shop, serving.token(shop, None)) as viewer:
        for name, value in nothing.items():
            query = urlencode({"kind": "cancel", "status": "queued", name: value})
            assert "No job matches" in words(await viewer.get(f"/actions?{query}")), name
            await viewer.act("/actions", **{"kind": "cancel", "status": "queued", name: value})
    assert {shop.jobs.get(each).status for each in ids} == {"queued"}


async def test_each_field_of_a_search_narrows_a_change_of_all_that_match(shop: Holdfast) -> None:
    task = shop.registry.tasks["shop.send"].using(tenant="acme", queue="mail")
    async with shop.batch("import") as batch:
        job = await task.using(batch=batch).aenqueue("ada")
    fits = {"status": "queued", "task": "shop.send", "queue": "mail", "tenant": "acme", "batch": batch.id}
    fits |= {"since": "24h", "until": "2199-01-01T00:00:00Z", "args": "to=ada"}
    none = {"error": "ValueError", "error_group": "0123456789abcdef", "since": "2199-01-01T00:00:00Z"}
    none |= {"until": "2020-01-01T00:00:00+02:00"}
    assert fits.keys() | none.keys() == set(FILTERS)
    async with browser(shop, serving.token(shop, None)) as viewer:
        for name, value in none.items():
            kind = "retry" if name == "error_group" else "cancel"  # waiting jobs have no error
            assert "No job matches" in words(await viewer.get("/actions", kind=kind, **{name: value})), name
            await viewer.act("/actions", kind=kind, **{name: value})
        assert shop.jobs.get(job.id).status == "queued"
        for name, value in fits.items():
            page = words(await viewer.get("/actions", kind="cancel", **{name: value}))
            assert "1 job will be canceled." in page, name
        assert "1 of 1 jobs changed" in words(await viewer.act("/actions", kind="cancel", **fits))


async def test_all_that_match_are_previewed_and_changed(shop: Holdfast) -> None:
    mine, other = await enqueue(shop, "acme", 3), await enqueue(shop, "globex", 1)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/jobs?tenant=acme&status=queued")
        link = re.search(r'<a href="([^"]+)">Cancel</a>', page)
        assert link is not None
        page = await viewer.get(link[1].replace("&amp;", "&"))
        assert "3 jobs will be canceled." in words(page) and mine[0] in page
        page = await viewer.act("/actions", kind="cancel", tenant="acme", status="queued", reason="moved away")
        assert "3 of 3 jobs changed" in words(page) and "moved away" in words(page)
        assert "No job matches" in words(await viewer.get("/actions?kind=cancel&tenant=acme"))
    assert [shop.jobs.get(each).status for each in (*mine, *other)] == ["canceled"] * 3 + ["queued"]


async def test_a_tenants_changes_concern_its_own_jobs(shop: Holdfast) -> None:
    mine, other = await enqueue(shop, "acme", 1), await enqueue(shop, "globex", 1)
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        await tenant.get("/jobs")
        assert "1 job will be canceled." in words(await tenant.get("/actions?kind=cancel&queue=default"))
        assert "would match every job" in await tenant.get("/actions?kind=cancel", 422)
        await tenant.act("/actions/selected", kind="cancel", ids=other)
        await tenant.act("/actions", kind="cancel", queue="default")
    assert [shop.jobs.get(each).status for each in (*mine, *other)] == ["canceled", "queued"]


async def test_changes_need_jobs_write(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        await enqueue(shop, "acme", 1)
        assert "All that match" not in words(await viewer.get("/jobs"))
        await viewer.get("/actions?kind=cancel", 403)
        assert (await viewer.post("/actions", kind="cancel")).status_code == 403
