"""Secrets of endpoints: sealed at rest, rotated, and shown nowhere (R22)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from aiohttp import web

from holdfast import Holdfast
from holdfast.effects import verify
from holdfast.effects.seal import new_key
from tests.support.hooked import HUSH, ORDER, add, delivering, ended, quick_fixture, respond_with, sent, tried  # noqa: F401 - a fixture
from tests.support.receiver import receiving
from tests.support.running import until


async def test_secrets_are_sealed_with_the_key_that_is_set(dsn: str, sql: Any) -> None:
    with Holdfast(dsn, secret_keys=new_key()) as sealing:
        async with receiving() as receiver:
            endpoint = add(sealing, receiver)
            assert sql(
                "select secrets::text ~ 'fernet:', strpos(secrets::text, %s) from webhook_endpoints", [HUSH]
            ) == [(True, 0)]
            new = sealing.webhooks.rotate(endpoint.id)
            await sent(sealing)
            for secret in (HUSH, new):
                verify(receiver.got[0].body, receiver.got[0].headers, secret)
        await sealing.aclose()


async def test_without_the_key_deliveries_wait_and_lose_no_attempt(dsn: str) -> None:
    key = new_key()
    async with receiving() as receiver:
        with (
            Holdfast(dsn, secret_keys=key) as sealing,
            Holdfast(dsn) as keyless,
            Holdfast(dsn, secret_keys=new_key()) as odd,
        ):
            add(sealing, receiver)
            (delivery,) = sealing.webhooks.publish(None, ORDER).deliveries
            for other in (keyless, odd):
                async with delivering(other):
                    info = await tried(sealing, delivery)
                assert (info.status, info.attempts) == ("PENDING", 0)
                assert "HOLDFAST_SECRET_KEYS" in str(info.error) and key not in str(info.error)
                sealing.webhooks.redeliver(delivery)
                await other.aclose()
            async with delivering(sealing):
                assert (await ended(sealing, delivery)).status == "DELIVERED"
            await sealing.aclose()


async def test_a_secret_whose_key_is_lost_may_be_rotated(dsn: str) -> None:
    async with receiving() as receiver:
        with Holdfast(dsn, secret_keys=new_key()) as lost, Holdfast(dsn, secret_keys=new_key()) as hf:
            endpoint = add(lost, receiver)
            new = hf.webhooks.rotate(endpoint.id)
            assert (await sent(hf)).status == "DELIVERED"
            verify(receiver.got[0].body, receiver.got[0].headers, new)
            await hf.aclose()


async def test_secrets_are_in_no_log_no_error_and_no_result(
    hf: Holdfast, dsn: str, sql: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with receiving(lambda n: web.Response(status=500, text="no")) as receiver:
        receiver.url += "?token=very-secret-token"
        endpoint = add(hf, receiver)
        new = hf.webhooks.rotate(endpoint.id)
        info = await sent(hf)
        receiver.respond = respond_with(200)
        hf.webhooks.redeliver(info.id)
        await until(lambda: hf.webhooks.delivery(info.id))
        async with delivering(hf):
            await until(lambda: hf.webhooks.delivery(info.id).status == "DELIVERED")  # type: ignore[union-attr]
    rows = sql("select j::text from jobs j union all select s::text from webhook_endpoint_state s")
    shown = [caplog.text, repr(endpoint), repr(hf.webhooks.list()), repr(hf.webhooks.deliveries()), str(rows)]
    for secret in (HUSH, new):
        assert not [text for text in shown if secret in text or secret.removeprefix("whsec_") in text]
    assert "very-secret-token" not in caplog.text
    assert not sql("select 1 from jobs where last_error::text ~ 'very-secret-token'")
