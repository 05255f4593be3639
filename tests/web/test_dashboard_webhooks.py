"""The pages of webhooks."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from holdfast import Event, Holdfast
from holdfast.model.webhook import Endpoint
from holdfast.web.dashboard import live
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

HOSTILE = "<script>alert(1)</script>"
ACTIONS = ("enable", "disable", "rotate", "test", "change", "remove")


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


async def test_an_endpoint_is_added_and_its_secret_shown_once(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert 'action="/webhooks/add"' in await viewer.get("/webhooks/add")
        given = {"url": "https://one.example.com/hook", "events": "order.*, invoice.paid\nrefund", "tenant": "acme"}
        response = await viewer.post("/webhooks/add", **given, timeout="2.5", description=HOSTILE, reason="new shop")
        assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
        assert "whsec_" in response.text and "set-cookie" not in response.headers
        (made,) = shop.webhooks.list()
        assert (made.url, made.tenant, made.timeout, made.description) == (given["url"], "acme", 2.5, HOSTILE)
        assert made.events == ["order.*", "invoice.paid", "refund"] and not made.dev
        page = await viewer.get(f"/webhooks/{made.id}")
        assert "whsec_" not in page and "order.*, invoice.paid, refund" in words(page)
        (log,) = shop.actions.list(kind="webhooks.add")
        assert (log.target, log.by, log.reason) == (made.id, "of None", "new shop")
        assert "whsec_" not in str(log)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"url": ""}, "1 to 2000 characters"),
        ({"url": "http://one.example.com"}, "https://"),
        (
            {"url": f"https://one.example.com/{HOSTILE}", "timeout": "soon"},
            "the timeout must be a number of seconds, got",
        ),
        ({"url": "https://one.example.com", "timeout": "900"}, "timeout"),
        ({"url": "https://one.example.com", "events": "a*b"}, "types such as order.paid"),
        ({"url": "https://one.example.com", "prefix": "X Y"}, "1 to 40 letters"),
    ],
)
async def test_what_is_wrong_stands_beside_the_form_that_keeps_what_was_typed(
    shop: Holdfast, wrong: dict[str, str], expected: str
) -> None:
    endpoint = add(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get(f"/webhooks/{endpoint.id}/change")
        for path in ("/webhooks/add", f"/webhooks/{endpoint.id}/change"):
            response = await viewer.post(path, description="ours", **wrong)
            assert response.status_code == 422 and HOSTILE not in response.text
            error = response.text.partition('role="alert">')[2].partition("</p>")[0]
            assert expected in error, response.text
            assert 'value="ours"' in response.text and f'action="{path}"' in response.text
    assert shop.webhooks.list() == [replace(endpoint, secret=None)]


async def test_an_endpoint_is_changed_and_only_what_differs_is_recorded(shop: Holdfast) -> None:
    endpoint = add(shop, "acme")
    path = f"/webhooks/{endpoint.id}/change"
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get(path)
        assert 'value="https://one.example.com/hook"' in page and 'value="order.*"' in page
        same = {"url": endpoint.url, "events": "order.*", "timeout": "30", "description": HOSTILE}
        assert "Nothing was changed." in words(await viewer.act(path, **same))
        page = words(await viewer.act(path, **same | {"url": "https://two.example.com/?key=secret", "events": ""}))
        assert "Changed: waiting deliveries use the new values." in page and "Events all" in page
    (log,) = shop.actions.list(kind="webhooks.change")
    assert log.before == {"url": endpoint.url, "events": ["order.*"]}
    assert log.params == {"url": "https://two.example.com/?...", "events": None}


async def test_an_endpoint_is_removed(shop: Holdfast) -> None:
    endpoint = add(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get(f"/webhooks/{endpoint.id}")
        page = words(await viewer.act(f"/webhooks/{endpoint.id}/remove", reason="closed"))
        assert "Removed https://one.example.com/hook" in page and "There are no endpoints yet." in page
        await viewer.get(f"/webhooks/{endpoint.id}", 404)
    assert [(each.kind, each.reason) for each in shop.actions.list(limit=1)] == [("webhooks.remove", "closed")]


async def test_a_tenant_adds_endpoints_of_its_own_and_none_for_development(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        page = await tenant.get("/webhooks/add")
        assert 'name="tenant"' not in page and 'name="dev"' not in page
        url = "https://one.example.com"
        assert (await tenant.post("/webhooks/add", url=url, tenant="others")).status_code == 403
        assert (await tenant.post("/webhooks/add", url=url, dev="yes")).status_code == 403
        assert shop.webhooks.list() == []
        assert (await tenant.post("/webhooks/add", url=url)).status_code == 200
    assert [each.tenant for each in shop.webhooks.list()] == ["acme"]


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


async def test_the_job_of_a_delivery_is_linked_for_viewers_of_jobs(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LONGEST", 0.0)
    add(shop, "acme")
    delivery = publish(shop, "acme")
    for scopes in (["webhooks:read"], ["webhooks:read", "jobs:read"]):
        async with browser(shop, serving.token(shop, "acme", scopes)) as viewer:
            page = await viewer.get(f"/webhooks/deliveries/{delivery}")
            assert (f'href="/jobs/{delivery}"' in page) == ("jobs:read" in scopes)
            assert (await viewer.http.get("/live")).status_code == 200, "all pages follow the figures"
            followed = await viewer.http.get(f"/live?job={delivery}")
            assert followed.status_code == (200 if "jobs:read" in scopes else 403)


async def test_a_delivery_to_a_removed_endpoint_says_so_and_is_not_delivered_again(
    shop: Holdfast, sql: serving.Sql
) -> None:
    endpoint, delivery = add(shop), publish(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        path = f"/webhooks/deliveries/{delivery}"
        page = await viewer.get(path)
        assert f'href="/webhooks/{endpoint.id}"' in page and "Redeliver" in page
        shop.webhooks.remove(endpoint.id)
        page = await viewer.get(path)
        assert f"Endpoint {endpoint.id} , removed" in words(page)
        assert f'href="/webhooks/{endpoint.id}"' not in page and "Redeliver" not in page
        before = sql("select id, run_at from jobs")
        response = await viewer.post(f"{path}/redeliver")
        assert response.status_code == 409 and "has been removed" in response.text
        assert sql("select id, run_at from jobs") == before
