"""Messages in users' tests: found as they were emitted, delivered by drain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import ANY

import psycopg
import pytest

from holdfast import Context, Delivery, UsageError
from holdfast.testing import Kit


@dataclass
class Email:
    to: str


def test_an_emitted_message_is_found_by_its_fields(kit: Kit) -> None:
    kit.refute_emitted()
    kit.hf.outbox.emit(None, "email", Email("a@b.c"), key="1", tenant="acme", order="o")
    kit.hf.outbox.emit(None, "email", Email("d@e.f"), key="2")
    kit.hf.outbox.emit(None, "email", Email("d@e.f"), key="2")
    (one,) = kit.assert_emitted("email", Email("a@b.c"), key="1", tenant="acme", order="o")
    assert (one.status, one.payload) == ("pending", {"to": "a@b.c"})
    assert len(kit.assert_emitted("email", {"to": ANY}, count=2)) == 2
    assert [it.key for it in kit.all_emitted()] == [it.key for it in kit.all_emitted("email")] == ["1", "2"]
    kit.refute_emitted("sms")
    kit.refute_emitted("email", Email("x"))
    kit.refute_emitted("email", tenant="other")


def test_what_is_missing_is_reported_with_what_is_there(kit: Kit) -> None:
    with pytest.raises(AssertionError, match="nothing was emitted in this test"):
        kit.assert_emitted("email")
    kit.hf.outbox.emit(None, "email", Email("a@b.c"), key="1")
    with pytest.raises(AssertionError) as caught:
        kit.assert_emitted("email", Email("d@e.f"), key="1")
    assert "no message was emitted that fits channel='email', key='1', payload={'to': 'd@e.f'}" in str(caught.value)
    assert "email//1 {'to': 'a@b.c'} pending\n      payload is {'to': 'a@b.c'}, not {'to': 'd@e.f'}" in str(
        caught.value
    )
    with pytest.raises(AssertionError, match="1 fit, not 2"):
        kit.assert_emitted("email", count=2)
    with pytest.raises(AssertionError, match="1 emitted that fit anything"):
        kit.refute_emitted()


def test_a_drain_delivers(kit: Kit) -> None:
    sent: list[Any] = []

    @kit.hf.channel("email")
    async def send(delivery: Delivery[Email]) -> None:
        sent.append((delivery.payload.to, delivery.maybe_sent))
        if not delivery.maybe_sent:
            raise ConnectionError

    @kit.hf.task()
    def buy(ctx: Context) -> None:
        with ctx.transaction():
            ctx.emit(send, Email("a@b.c"), key="1")

    buy.enqueue()
    drained = kit.drain(with_retries=True)
    assert [(each.task, each.outcome) for each in drained][1:] == [
        ("channel:email", "error"),
        ("channel:email", "succeeded"),
    ]
    assert sent == [("a@b.c", False), ("a@b.c", True)]
    assert kit.assert_emitted(send, key="1")[0].status == "delivered"


def test_messages_for_another_service_stay_in_the_outbox(kit: Kit) -> None:
    kit.hf.outbox.emit(None, "sms", "hello", key="1")
    kit.drain()
    assert kit.assert_emitted("sms")[0].status == "pending"


def test_inline_mode_delivers_at_once(kit: Kit) -> None:
    sent: list[str] = []

    @kit.hf.channel("email")
    def send(delivery: Delivery[str]) -> None:
        sent.append(delivery.key)

    with kit.inline():
        kit.hf.outbox.emit(None, send, "x", key="1")
        assert sent == ["1"]
        with psycopg.connect(kit.dsn) as conn:
            kit.hf.outbox.emit(conn, send, "x", key="2")
        assert sent == ["1"]
    assert sent == ["1", "2"]


def test_an_open_transaction_can_be_looked_into(kit: Kit) -> None:
    with psycopg.connect(kit.dsn) as conn:
        kit.hf.outbox.emit(conn, "email", {"n": 1}, key="1")
        kit.refute_emitted("email")
        kit.assert_emitted("email", {"n": 1}, conn=conn)
        assert kit.all_emitted(conn=conn)[0].key == "1"
        with pytest.raises(AssertionError, match="a transaction is still open"):
            kit.assert_emitted("email")


async def test_an_async_connection_cannot(kit: Kit) -> None:
    async with await psycopg.AsyncConnection.connect(kit.dsn) as conn:
        await kit.hf.outbox.aemit(conn, "email", 1, key="1")
        with pytest.raises(UsageError, match="must not be an async connection"):
            kit.assert_emitted("email", conn=conn)
    kit.assert_emitted("email")
