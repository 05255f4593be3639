"""An application behind its service, and clients with tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any

import httpx
import pytest

from holdfast import Holdfast, Limit
from holdfast.web import app

Sql = Callable[..., list[tuple[Any, ...]]]
ALL = ("jobs:read", "jobs:write", "webhooks:read", "webhooks:write")


def with_tasks(hf: Holdfast) -> Holdfast:
    """Return the application of these tests."""

    @hf.task(name="shop.send", limits=[Limit("host:{host}", concurrency=100)])
    async def send(to: str, copies: int = 1, at: datetime | None = None, host: str = "h") -> str:
        return f"{to} x {copies}"

    @hf.task(name="shop.fail")
    async def fail(why: str = "") -> None: ...

    @hf.task(name="shop.done", queue="done")
    async def done(batch: str) -> None: ...

    @hf.channel("email")
    async def email(delivery: Any) -> None: ...

    return hf


def token(hf: Holdfast, tenant: str | None = "acme", scopes: Sequence[str] | None = None, **more: Any) -> str:
    return hf.tokens.create(f"of {tenant}", tenant=tenant, scopes=scopes or (ALL if tenant else ["admin"]), **more)[0]


def client(hf: Holdfast, bearer: str | None = None, **options: Any) -> httpx.AsyncClient:
    """Return a client through ASGI, with this token."""
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app(hf, **options)), base_url="http://service/v1", headers=headers, timeout=60
    )


@pytest.fixture(name="shop")
async def shop_fixture(hf: Holdfast) -> AsyncIterator[Holdfast]:
    """The application on the test's database."""
    yield with_tasks(hf)
    await hf.aclose()


@pytest.fixture(name="http")
async def http_fixture(shop: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the tenant acme."""
    async with client(shop, token(shop)) as made:
        yield made


@pytest.fixture(name="operator")
async def operator_fixture(shop: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    """A client for all tenants."""
    async with client(shop, token(shop, None)) as made:
        yield made


def json_body(response: httpx.Response, status: int = 200) -> Any:
    """Return the JSON body of a response, which must have this status."""
    assert response.status_code == status, response.text
    return response.json()


def problem(response: httpx.Response, status: int, name: str) -> dict[str, Any]:
    """Return the problem document of a response."""
    body = json_body(response, status)
    assert response.headers["content-type"] == "application/problem+json"
    assert body["type"] == f"urn:holdfast:problem:{name}" and body["status"] == status and body["title"]
    assert body["detail"]
    return dict(body)
