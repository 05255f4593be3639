"""The pages of batches."""

from __future__ import annotations

from uuid import uuid4

from holdfast import Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

HOSTILE = "<script>alert(1)</script>"


async def make(shop: Holdfast, name: str, tenant: str | None = None, jobs: int = 3) -> str:
    """Make a batch of waiting jobs."""
    async with shop.batch(name, tenant=tenant, on_done=shop.registry.tasks["shop.done"]) as batch:
        await (
            shop.registry.tasks["shop.send"]
            .using(tenant=tenant, batch=batch)
            .aenqueue_many([{"to": f"n{each}"} for each in range(jobs)])
        )
    return str(batch.id)


async def test_batches_are_listed_with_their_progress(shop: Holdfast) -> None:
    id_ = await make(shop, HOSTILE)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/batches")
        assert HOSTILE not in page and HOSTILE in words(page)
        assert f'data-id="{id_}"' in page and "<desc>0 succeeded, 0 failed and 0 canceled of 3</desc>" in page


async def test_the_list_goes_on_with_a_cursor(shop: Holdfast) -> None:
    for name in ("first", "second", "third"):
        await make(shop, name, jobs=1)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/batches?limit=2")
        assert "third" in words(page) and "first" not in words(page)
        older = page.partition('" rel="next"')[0].rpartition('href="')[2].replace("&amp;", "&")
        page = words(await viewer.get(older))
        assert "first" in page and "second" not in page and "Newest" in page


async def test_a_batch_is_canceled_with_a_reason_that_the_log_keeps(shop: Holdfast) -> None:
    id_ = await make(shop, "campaign")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get(f"/batches/{id_}"))
        assert "0 of 3 jobs ended" in page and "a job is enqueued when all jobs have ended" in page
        page = words(await viewer.act(f"/batches/{id_}/cancel", reason="sent by mistake"))
        assert "canceled 3 of 3 jobs ended" in page and "waiting jobs do not start" in page
        found = shop.batches.get(id_)
        assert found is not None and found.canceled == 3
        (action,) = shop.actions.list(kind="cancel")
        assert (action.by, action.reason) == ("of None", "sent by mistake")
        again = await viewer.post(f"/batches/{id_}/cancel")
        assert again.status_code == 409 and "has ended: canceled" in words(again.text)


async def test_a_tenant_sees_and_cancels_its_own_batches_only(shop: Holdfast) -> None:
    mine, other = await make(shop, "of-acme", "acme"), await make(shop, "of-others", "others")
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        page = words(await tenant.get("/batches"))
        assert "of-acme" in page and "of-others" not in page
        await tenant.get(f"/batches/{other}", 404)
        await tenant.get(f"/batches/{uuid4()}", 404)
        assert (await tenant.post(f"/batches/{other}/cancel")).status_code == 404
        assert "3 of 3 jobs ended" in words(await tenant.act(f"/batches/{mine}/cancel"))
        found = shop.batches.get(other)
        assert found is not None and found.canceled == 0


async def test_who_may_only_look_cannot_cancel(shop: Holdfast) -> None:
    id_ = await make(shop, "campaign")
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        assert "Cancel the jobs" not in words(await viewer.get(f"/batches/{id_}"))
        assert (await viewer.post(f"/batches/{id_}/cancel")).status_code == 403
        viewer.csrf = "x"
        assert (await viewer.post(f"/batches/{id_}/cancel")).status_code == 403
