"""Shared by tests of webhooks: an endpoint at a receiver on this machine, and deliveries that are waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from holdfast import DeliveryInfo, Endpoint, Event, Holdfast, Retry
from tests.support.receiver import Receiver
from tests.support.running import until, working

HUSH = "whsec_" + "aHVzaCBodXNoIGh1c2ggaHVzaCBodXNoIGh1c2ggIQ=="
ORDER = Event("order.paid", {"order": 7, "note": "é 漢 🙂 \u0000"}, tenant="acme")


@pytest.fixture(name="quick", autouse=True)
def quick_fixture(hf: Holdfast) -> None:
    """Three attempts without a pause."""
    hf.webhooks.retry = Retry.fixed(0, max_attempts=3)


@asynccontextmanager
async def delivering(hf: Holdfast, **settings: Any) -> AsyncIterator[None]:
    async with working(hf, queues="webhooks", **settings):
        yield


def add(hf: Holdfast, to: Receiver, tenant: str | None = "acme", **options: Any) -> Endpoint:
    return hf.webhooks.add(to.url, tenant=tenant, dev=True, **({"secret": HUSH} | options))


async def ended(hf: Holdfast, delivery: str) -> DeliveryInfo:
    """Return a delivery once it has ended."""
    return await until(lambda: (d := hf.webhooks.delivery(delivery)) and d.status != "PENDING" and d)


async def tried(hf: Holdfast, delivery: str) -> DeliveryInfo:
    """Return a delivery once an attempt has failed."""
    return await until(lambda: (d := hf.webhooks.delivery(delivery)) and d.error and d)


async def sent(hf: Holdfast, event: Event = ORDER) -> DeliveryInfo:
    """Publish to one endpoint and wait for the end."""
    (delivery,) = hf.webhooks.publish(None, event).deliveries
    async with delivering(hf):
        return await ended(hf, delivery)


def respond_with(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Any:
    return lambda _: web.Response(status=status, headers=headers, body=body)
