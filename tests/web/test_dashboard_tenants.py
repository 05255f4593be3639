"""The page of tenants."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.web.dashboard.tenants import EMPTY, with_shares
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

EVIL = "<script>alert(1)</script>"


async def test_tenants_are_shown_with_their_jobs_and_weights(shop: Holdfast) -> None:
    send = shop.registry.tasks["shop.send"]
    for tenant in ("acme", "acme", "bolt"):
        await send.using(tenant=tenant).aenqueue("ada")
    shop.limits.set("tenant:acme", weight=3)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get("/tenants"))
        assert "acme 0 % 75 % 3 0 2 0 0" in page and "bolt 0 % 25 % 1 0 1 0 0" in page


def test_the_fair_share_is_the_weight_among_those_that_have_work() -> None:
    rows = [
        {**EMPTY, "tenant": "a", "running": 3},
        {**EMPTY, "tenant": "b", "running": 1, "ready": 5},
        {**EMPTY, "tenant": "idle"},
        {**EMPTY, "tenant": "paused", "ready": 9},
    ]
    shares = {each["tenant"]: (each["share"], each["fair"]) for each in with_shares(rows, {"a": 3.0}, {"paused"})}
    assert shares == {"a": (0.75, 0.75), "b": (0.25, 0.25), "idle": (0.0, None), "paused": (0.0, None)}


@pytest.mark.parametrize("tenant", ["acme", EVIL])
async def test_a_tenant_is_paused_with_a_reason_and_resumed(shop: Holdfast, tenant: str) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/tenants")
        page = await viewer.act("/tenants/pause", name=tenant, reason=EVIL)
        assert f"Paused {tenant}" in words(page) and f": {EVIL}" in words(page) and "<script>" not in page
        (key,) = shop.limits.list(prefix="tenant:")
        assert (key.key, key.paused, key.paused_by) == (f"tenant:{tenant}", True, "of None")
        assert f"Resumed {tenant}." in words(await viewer.act("/tenants/resume", name=tenant))
        assert "No tenant has jobs, and none is paused." in words(await viewer.get("/tenants"))


async def test_tenants_are_paused_by_operators_alone(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        assert "Pause" not in words(await viewer.get("/tenants"))
        assert (await viewer.post("/tenants/pause", name="acme")).status_code == 403
    async with browser(shop, serving.token(shop, None)) as operator:
        await operator.get("/tenants")
        operator.csrf = "x"
        assert (await operator.post("/tenants/pause", name="acme")).status_code == 403
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        await tenant.get("/tenants", 403)
    assert shop.limits.list("tenant:") == []
