"""The page of tokens."""

from __future__ import annotations

import re

from holdfast import Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

HOSTILE = "<script>alert(1)</script>"


async def test_the_header_of_a_new_tokens_page_follows_changes(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/tokens")
        response = await viewer.post("/tokens/create", name="ci", tenant="acme", scopes=["jobs:read"])
        (path,) = re.findall(r'data-page-url="([^"]+)"', response.text)
        assert path == "/tokens" and 'id="status"' in await viewer.get(f"{path}?fragment=status")
        assert 'data-page-url=""' in await viewer.get("/tokens")


async def test_tokens_are_listed_without_their_secret(shop: Holdfast) -> None:
    token, info = shop.tokens.create(HOSTILE, tenant="acme", scopes=["jobs:read"])
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/tokens")
        assert HOSTILE not in page and token not in page
        assert f"{HOSTILE} {info.shown}… acme valid jobs:read" in words(page)
        page = words(await viewer.get("/tokens?tenant=others"))
        assert "There are no tokens that match." in page


async def test_the_list_goes_on_with_a_cursor(shop: Holdfast) -> None:
    for name in ("first", "second", "third"):
        shop.tokens.create(name, tenant="acme", scopes=["jobs:read"])
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/tokens?tenant=acme&limit=2")
        assert "third" in words(page) and "first" not in words(page)
        older = page.partition('" rel="next"')[0].rpartition('href="')[2].replace("&amp;", "&")
        assert "first" in words(await viewer.get(older))


async def test_a_new_token_is_shown_once_and_in_no_url(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/tokens")
        fields = {"name": "ci", "tenant": "acme", "scopes": ["jobs:read", "jobs:write"], "days": "30", "reason": "CI"}
        response = await viewer.post("/tokens/create", **fields)
        assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
        assert "set-cookie" not in response.headers
        (token,) = re.findall(r"hf_[\w-]{40,}", response.text)
        assert token not in await viewer.get("/tokens")
        (info,) = shop.tokens.list(tenant="acme")
        assert info.scopes == ["jobs:read", "jobs:write"] and info.expires_at is not None
        (entry,) = shop.actions.list(kind="tokens.create", by="of None")
        assert entry.reason == "CI"
    async with browser(shop, token) as tenant:
        await tenant.get("/batches")


async def test_a_token_is_for_one_tenant_or_expressly_for_all(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/tokens")
        both = {"tenant": "acme", "everyone": "yes"}
        for fields in ({}, both, {"tenant": "acme", "scopes": "admin"}, {"everyone": "yes", "scopes": "root"}):
            response = await viewer.post("/tokens/create", **{"name": "ci", "scopes": "jobs:read", **fields})
            assert response.status_code == 422
        assert (await viewer.post("/tokens/create", name="ci", everyone="yes")).status_code == 422
        assert not [each for each in shop.tokens.list() if each.name == "ci"]
        response = await viewer.post("/tokens/create", name="ci", scopes="operate", everyone="yes")
        assert response.status_code == 200


async def test_a_token_is_revoked_with_a_reason(shop: Holdfast) -> None:
    _, info = shop.tokens.create("lost", tenant="acme", scopes=["jobs:read"])
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/tokens")
        page = words(await viewer.act(f"/tokens/{info.id}/revoke", reason="leaked"))
        assert "Revoked lost" in page and "acme revoked" in page
        assert shop.tokens.get(info.id).state == "revoked"
        (entry,) = shop.actions.list(kind="tokens.revoke")
        assert (entry.by, entry.reason) == ("of None", "leaked")


async def test_only_administrators_see_and_change_tokens(shop: Holdfast) -> None:
    _, info = shop.tokens.create("mine", tenant="acme", scopes=["jobs:read"])
    fields = {"name": "ci", "scopes": "admin", "everyone": "yes"}
    tokens = [serving.token(shop, None, ["operate", "jobs:read", "jobs:write"]), serving.token(shop, "acme")]
    for token in tokens:
        async with browser(shop, token) as viewer:
            assert "Tokens" not in words(await viewer.get("/batches"))
            await viewer.get("/tokens", 403)
            assert (await viewer.post("/tokens/create", **fields)).status_code == 403
            assert (await viewer.post(f"/tokens/{info.id}/revoke")).status_code == 403
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/tokens")
        viewer.csrf = "x"
        assert (await viewer.post("/tokens/create", **fields)).status_code == 403
    assert not [each for each in shop.tokens.list() if each.name == "ci"] and shop.tokens.get(info.id).state == "valid"
