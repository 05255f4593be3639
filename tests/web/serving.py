"""An application behind its service, and clients with tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import httpx

from holdfast import Holdfast, Limit
from holdfast.web import app

ALL = ("jobs:read", "jobs:write", "webhooks:read", "webhooks:write")


def with_tasks(hf: Holdfast) -> Holdfast:
    """The application of these tests."""

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
    """Requests through ASGI, with this token."""
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app(hf, **options)), base_url="http://service/v1", headers=headers, timeout=60
    )
