"""What a token and a tenant may ask for at once: rates, concurrent requests and slots."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from holdfast import Holdfast
from holdfast.web import admission, authenticate
from holdfast.web.service import CALLER, SLOT, Service, token_key
from tests.conftest import PATIENCE
from tests.support import serving
from tests.support.looking import Browser, browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture


def scope_of(path: str, **headers: str) -> Scope:
    """Return the scope of a GET."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": raw}


async def test_a_token_may_have_a_rate(shop: Holdfast) -> None:
    async with (
        serving.client(shop, serving.token(shop, rate=0.001)) as http,
        serving.client(shop, serving.token(shop)) as free,
    ):
        assert [(await http.get("/jobs")).status_code for _ in range(3)] == [200] + [429] * 2
        assert 900 < int((await http.get("/jobs")).headers["retry-after"]) <= 1000
        assert [(await free.get("/jobs")).status_code for _ in range(9)] == [200] * 9


def test_a_burst_is_one_second_of_the_rate() -> None:
    now = [1000.0]
    rates = admission.Rates(lambda: now[0])
    assert [rates.wait("a", 4) == 0 for _ in range(6)] == [True] * 4 + [False] * 2
    assert rates.wait("a", 4) == pytest.approx(0.25)
    now[0] += 0.5
    assert [rates.wait("a", 4) == 0 for _ in range(3)] == [True] * 2 + [False]


def test_a_slow_rate_is_kept() -> None:
    now = [1000.0]
    rates = admission.Rates(lambda: now[0])
    passed = 0
    for _ in range(1000):
        passed += rates.wait("a", 0.1) == 0
        now[0] += 0.1
    assert passed == 10


async def test_a_waiting_request_of_a_tenant_gives_its_slot_back(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "AT_ONCE", 2)
    working: list[tuple[str, Any]] = []
    go = asyncio.Event()

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        working.append((scope[CALLER].tenant, scope[SLOT]))
        await go.wait()

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    service = Service(shop)
    admitted = admission.Admission(100)
    checked = authenticate.AuthenticationMiddleware(inner, service, admitted, "/v1", {"jobs"}, [])
    bearers = [f"Bearer {serving.token(shop, tenant)}" for tenant in ("acme", "globex")]
    for each in bearers:
        await service.caller(token_key(each))  # known from now on, so that there is no wait
    scopes = [scope_of("/v1/jobs", authorization=each) for each in (*bearers[:1] * 4, bearers[1])]
    requests = [asyncio.create_task(checked(scope, nothing, nothing)) for scope in scopes]
    for count in (3, 4, 5):
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(working) == count
        assert {tenant for tenant, _ in working[:3]} == {"acme", "globex"}
        next(slot for tenant, slot in working[count - 3 :] if tenant == "acme").release()
    go.set()
    await asyncio.gather(*requests)
    assert admitted._tenants == {}, "a tenant without requests costs nothing"


def test_rates_are_watched_of_so_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_RATES", 3)
    rates = admission.Rates()
    assert [rates.wait(f"{n % 5}", 1) == 0 for n in range(5)] == [True] * 5
    assert [rates.wait(each, 1) == 0 for each in ("2", "3", "4")] == [False] * 3
    assert rates.wait("1", 1) == 0, "it was forgotten"


async def entered(viewer: Browser, token: str) -> Scope:
    """Begin a request of the token; return its scope."""
    caller = await viewer.app.service.caller(token_key(f"Bearer {token}"))
    assert caller is not None
    scope = scope_of("/v1/jobs")
    async with asyncio.timeout(PATIENCE):
        await viewer.app.admission.enter(scope, caller)
    return scope


async def test_a_tokens_rate_counts_pages_of_the_dashboard_too(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, rate=0.001)) as viewer:
        await viewer.get("/jobs")
        assert "this token may send 0.001 requests a second" in words(await viewer.get("/jobs", 429))
        assert int((await viewer.http.get("/jobs")).headers["retry-after"]) > 900


async def test_the_requests_of_a_tenant_are_bounded_over_the_api_and_the_dashboard_together(dsn: str) -> None:
    with Holdfast(dsn, max_requests=4) as hf:
        token = serving.token(hf)
        async with browser(hf, token) as mine, browser(hf, serving.token(hf, None)) as operator:
            await mine.get("/jobs")
            other = await entered(mine, token)
            assert "1 of your requests are in progress" in words(await mine.get("/jobs", 429))
            await operator.get("/jobs")
            mine.app.admission.leave(other)
            await mine.get("/jobs")
        await hf.aclose()


async def test_a_page_waits_for_a_slot_of_its_tenant(shop: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "AT_ONCE", 1)
    token = serving.token(shop)
    async with browser(shop, token) as viewer:
        running, tenants = await entered(viewer, token), viewer.app.admission._tenants
        page = asyncio.create_task(viewer.http.get("/jobs"))
        async with asyncio.timeout(PATIENCE):
            while tenants["acme"].active < 2:  # noqa: ASYNC110 - counted, the page waits for a slot
                await asyncio.sleep(0)
        assert not page.done()
        viewer.app.admission.leave(running)
        async with asyncio.timeout(PATIENCE):
            assert (await page).status_code == 200
        assert tenants == {}
