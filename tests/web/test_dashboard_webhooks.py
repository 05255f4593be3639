"""The pages of webhooks."""

from __future__ import annotations

from uuid import uuid4

import pytest

from holdfast import Event, Holdfast
from holdfast.model.webhook import Endpoint
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

HOSTILE = "<script>alert(1)</script>"
ACTIONS = ("enable", "disable", "rotate", "test")


def add(shop: Holdfast, tenant: str | None = None, name: str = "one") -> Endpoint:
    url = f"https://{name}.example.com/hook"
    return shop.webhooks.add(url, tenant=tenant, events=["order.*"], description=HOSTILE)


def publish(shop: Holdfast, tenant: str | None = None) -> str:
    return shop.webhooks.publish(None, Event("order.paid", {"text": HOSTILE}, tenant)).deliveries[0]


async def test_endpoints_are_listed_with_their_state(shop: Holdfast) -> None:
    add(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/webhooks")
        assert HOSTILE not in page
        assert f"https://one.example.com/hook {HOSTILE} \N{EN DASH} enabled order.*" in words(page)


async def test_an_endpoint_is_disabled_with_a_reason_and_enabled(shop: Holdfast) -> None:
    path = f"/webhooks/{add(shop).id}"
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get(path)
        page = words(await viewer.act(f"{path}/disable", reason="the <b>customer</b> asked"))
        assert "disabled the <b>customer</b> asked" in page
        page = words(await viewer.act(f"{path}/enable"))
        assert "Enabled." in page and "State enabled" in page


async def test_a_new_secret_is_shown_once_and_in_no_url(shop: Holdfast) -> None:
    endpoint = add(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get(f"/webhooks/{endpoint.id}")
        response = await viewer.post(f"/webhooks/{endpoint.id}/rotate", hours="1")
        assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
        assert "whsec_" in response.text and "set-cookie" not in response.headers
        assert "whsec_" not in await viewer.get(f"/webhooks/{endpoint.id}")
        assert shop.webhooks.get(endpoint.id).secrets == 2


async def test_deliveries_are_shown_and_made_again(shop: Holdfast) -> None:
    endpoint = add(shop)
    delivery = publish(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get(f"/webhooks/{endpoint.id}"))
        assert "order.paid pending \N{EN DASH}" in page
        page = words(await viewer.get(f"/webhooks/{endpoint.id}?status=FAILED"))
        assert "There are no deliveries that match." in page
        page = await viewer.get(f"/webhooks/deliveries/{delivery}")
        assert HOSTILE not in page and HOSTILE in words(page)
        page = words(await viewer.act(f"/webhooks/deliveries/{delivery}/redeliver"))
        assert "is due now" in page
        page = words(await viewer.act(f"/webhooks/{endpoint.id}/test"))
        assert "holdfast.test delivery" in page and "A test event is on its way" in page


async def test_deliveries_go_on_with_a_cursor(shop: Holdfast) -> None:
    endpoint = add(shop)
    ids = [publish(shop) for _ in range(3)]
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get(f"/webhooks/{endpoint.id}?limit=2")
        assert ids[2] in page and ids[0] not in page
        older = page.partition('" rel="next"')[0].rpartition('href="')[2].replace("&amp;", "&")
        assert ids[0] in await viewer.get(older)


async def test_a_tenant_sees_and_changes_its_own_endpoints_only(shop: Holdfast) -> None:
    mine, other = add(shop, "acme"), add(shop, "others", "two")
    delivery = publish(shop, "others")
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        page = words(await tenant.get("/webhooks"))
        assert "one.example.com" in page and "two.example.com" not in page
        for path in (f"/webhooks/{other.id}", f"/webhooks/deliveries/{delivery}", f"/webhooks/{uuid4()}"):
            await tenant.get(path, 404)
        for action in ACTIONS:
            assert (await tenant.post(f"/webhooks/{other.id}/{action}")).status_code == 404
        assert (await tenant.post(f"/webhooks/deliveries/{delivery}/redeliver")).status_code == 404
        await tenant.act(f"/webhooks/{mine.id}/disable")
        assert shop.webhooks.get(other.id).enabled and not shop.webhooks.get(mine.id).enabled


@pytest.mark.parametrize("scopes", [["jobs:read", "jobs:write"], ["webhooks:read", "jobs:read"]])
async def test_scopes_decide_who_sees_and_changes_endpoints(shop: Holdfast, scopes: list[str]) -> None:
    endpoint = add(shop)
    async with browser(shop, serving.token(shop, None, scopes)) as viewer:
        page = await viewer.get("/webhooks", 200 if "webhooks:read" in scopes else 403)
        assert ("one.example.com" in words(page)) == ("webhooks:read" in scopes)
        for action in ACTIONS:
            assert (await viewer.post(f"/webhooks/{endpoint.id}/{action}")).status_code == 403
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/webhooks")
        viewer.csrf = "x"
        for action in ACTIONS:
            assert (await viewer.post(f"/webhooks/{endpoint.id}/{action}")).status_code == 403
    assert shop.webhooks.get(endpoint.id).secrets == 1
