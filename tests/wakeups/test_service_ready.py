"""A service that requires RabbitMQ is ready while it is connected, and checks over its one connection."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from holdfast import Holdfast
from holdfast.wakeups import rabbitmq
from holdfast.web import app, health
from tests.support.broker import Relay, channel, real_broker
from tests.support.running import until


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    real_broker()
    made = Relay()
    yield made
    await made.down()


@pytest.fixture
async def exchange() -> AsyncIterator[str]:
    real_broker()
    name = f"holdfast-test-{os.urandom(4).hex()}"
    async with channel(name):
        yield name


def client(hf: Holdfast) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app(hf)), base_url="http://service/v1")


async def test_a_service_is_ready_while_the_broker_that_it_requires_is_there(
    dsn: str, relay: Relay, exchange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "LONGEST_PAUSE", 0.2)
    hf = Holdfast(dsn, amqp_enabled=True, health_require_amqp=True, amqp_url=relay.url, amqp_exchange=exchange)
    async with client(hf) as http:

        async def is_ready() -> bool:
            return (await http.get("/health/ready")).status_code == 200

        async def is_not_ready() -> bool:
            return not await is_ready()

        response = await http.get("/health/ready")
        assert response.status_code == 503 and response.headers["content-type"] == "application/problem+json"
        assert "not connected to RabbitMQ" in response.json()["detail"] and "guest" not in response.text
        assert response.json()["checks"]["database"] == "ok"
        await relay.up()
        await until(is_ready)
        responses = await asyncio.gather(*(http.get("/health/ready") for _ in range(50)))
        assert {each.json()["checks"]["queue"] for each in responses} == {"ok"}
        assert relay.connections == 1
        await relay.down()
        await until(is_not_ready)
        await relay.up()
        await until(is_ready)
        assert relay.connections == 2
    await hf.aclose()
    await until(lambda: relay.open == 0)


async def test_a_silent_broker_causes_no_long_wait(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://guest:guest@127.0.0.1:{silent.getsockname()[1]}/"
        hf = Holdfast(dsn, amqp_enabled=True, health_require_amqp=True, amqp_url=url)
        began = time.monotonic()
        async with client(hf) as http:
            assert (await http.get("/health/ready")).status_code == 503
        assert time.monotonic() - began < 3
        await hf.aclose()


async def test_a_broker_that_is_not_required_is_not_checked(dsn: str) -> None:
    hf = Holdfast(dsn, amqp_enabled=True, amqp_url="amqp://guest:guest@127.0.0.1:1/")
    async with client(hf) as http:
        assert (await http.get("/health/ready")).json()["checks"] == {"database": "ok", "schema": "ok"}
    await hf.aclose()
