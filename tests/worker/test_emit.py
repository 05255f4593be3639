"""What an emit returns, and what it refuses (R20, R21); what becomes of messages is in test_outbox.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from holdfast import ConfigurationError, Delivery, Holdfast, InvalidPayload, UsageError


@dataclass
class Email:
    to: str
    n: int = 0


@contextmanager
def connected(hf: Holdfast) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(hf.settings.dsn) as conn:
        yield conn


def test_a_second_emit_returns_the_first(hf: Holdfast) -> None:
    first = hf.outbox.emit(None, "email", {"n": 1}, key="k")
    assert hf.outbox.emit(None, "email", {"n": 2}, key="k") == type(first)(first.id, existing=True)
    assert not hf.outbox.emit(None, "email", {"n": 1}, key="k", tenant="acme").existing
    assert [it.payload for it in hf.outbox.list()] == [{"n": 1}, {"n": 1}]


def test_an_emit_that_the_caller_rolls_back_leaves_nothing(hf: Holdfast) -> None:
    with connected(hf) as conn:
        message = hf.outbox.emit(conn, "email", 1, key="k")
        assert hf.outbox.get(message.id) is None
        conn.rollback()
        again = hf.outbox.emit(conn, "email", 1, key="k")
        assert not again.existing
    assert hf.outbox.get(message.id) is None
    assert hf.outbox.get(again.id) is not None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"key": None}, "needs a key="),
        ({"key": 5}, "key of a message must be a string"),
        ({"key": ""}, "1 to 300"),
        ({"key": "x" * 301}, "1 to 300"),
        ({"key": "a\nb"}, "must not contain control characters"),
        ({"key": "\ud800"}, "lone surrogate"),
        ({"channel": "a b"}, "channel's name"),
        ({"channel": "channel:email"}, "channel's name"),
        ({"channel": None}, "channel's name"),
        ({"channel": "holdfast.webhooks"}, "cannot begin with 'holdfast.'"),
        ({"tenant": ""}, "a tenant must have"),
        ({"tenant": "a\x00"}, "NUL"),
        ({"order": ""}, "order of a message must have"),
        ({"order": 5}, "order of a message must be a string"),
        ({"payload": object()}, "cannot be encoded"),
        ({"payload": float("nan")}, "JSON cannot represent"),
        ({"payload": "a\x00b"}, "NUL"),
        ({"payload": "\ud800"}, "cannot be encoded"),
        ({"payload": "x" * 2_000_000}, "more than the 1,048,576 allowed"),
        ({"payload": json.loads("[" * 150 + "]" * 150)}, "levels deep"),
    ],
)
def test_an_invalid_message_is_refused_before_a_query(given: dict[str, Any], expected: str) -> None:
    hf = Holdfast("postgresql://nowhere.invalid/x")
    call = {"channel": "email", "payload": 1, "key": "k"} | given
    with pytest.raises(UsageError, match=expected):
        hf.outbox.emit(None, **call)


def test_a_payload_that_the_handler_could_not_take_is_refused(hf: Holdfast) -> None:
    @hf.channel("email")
    def send(delivery: Delivery[Email]) -> None: ...

    for payload in ({"to": 1}, [], None, {"n": 1}):
        with pytest.raises(InvalidPayload, match="channel 'email' takes a payload of type Email"):
            hf.outbox.emit(None, "email", payload, key="k")
    assert hf.outbox.emit(None, "email", {"to": "a@b.c"}, key="k").id


def test_handlers_that_take_no_delivery_are_refused(hf: Holdfast) -> None:
    def none() -> None: ...
    def two(a: Delivery[str], b: Delivery[str]) -> None: ...
    def other(email: Email) -> None: ...

    for handler in (none, two, other):
        with pytest.raises(ConfigurationError, match="takes one Delivery"):
            hf.channel("email")(handler)  # type: ignore[call-overload]
    assert "channel:email" not in hf.registry.tasks
    with pytest.raises(UsageError, match="channel's name"):
        hf.channel("no channel")
    with pytest.raises(ConfigurationError, match="in parentheses"):
        hf.channel(none)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"use @hf\.channel"):
        hf.task(name="channel:email")(none)


def test_a_channel_is_registered_once_and_is_still_a_function(hf: Holdfast) -> None:
    @hf.channel("email")
    def send(delivery: Delivery[Email]) -> str:
        """Sends."""
        return f"{delivery.payload.to} {delivery.idempotency_key} {delivery.maybe_sent}"

    by_hand = Delivery(Email("a@b.c"), "k", "email", maybe_sent=True)
    assert send(by_hand) == "a@b.c email//k True"
    assert (send.__doc__, send.name, repr(send)) == ("Sends.", "email", "<channel 'email' on queue 'outbox'>")
    with pytest.raises(ConfigurationError, match="two tasks are named 'channel:email'"):
        hf.channel("email")(send.task.handler)
    with pytest.raises(UsageError, match="emitted, not enqueued"):
        send.task.enqueue(Email("a@b.c"))
