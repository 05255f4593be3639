"""Events published on the caller's connections, with each real library: they commit or roll back with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Event, Holdfast, Published, UsageError
from tests.support.lent import KINDS, Lent, Psycopg, PsycopgAsync, undone

Sql = Callable[..., list[tuple[Any, ...]]]
NASTY = "'; drop table x; -- %s %(a)s %% $1 :name ? \\ \" \t é 漢 🙂 {0}"


@pytest.fixture(params=KINDS)
def lent(request: pytest.FixtureRequest, dsn: str, hf: Holdfast) -> Iterator[Lent]:
    hf.webhooks.add("https://example.org/hook", tenant=NASTY)
    given = KINDS[request.param](dsn)
    yield given
    given.clear_away()


def publish(hf: Holdfast, lent: Lent, event: Event) -> Published:
    call = hf.webhooks.apublish if lent.is_async else hf.webhooks.publish
    result: Published = lent.do(call, lent.conn, event)
    return result


def test_an_event_is_there_when_the_callers_transaction_commits(lent: Lent, hf: Holdfast) -> None:
    with lent.transaction():
        published = publish(hf, lent, Event("a", {"n": [1, None, NASTY]}, tenant=NASTY, key=NASTY.replace("\t", "")))
        assert hf.webhooks.deliveries() == []
    (delivery,) = hf.webhooks.deliveries()
    assert ([delivery.id], delivery.event) == (published.deliveries, published.event)
    assert (delivery.tenant, delivery.event_type) == (NASTY, "a")
    with lent.transaction():
        again = publish(hf, lent, Event("a", {}, tenant=NASTY, key=NASTY.replace("\t", "")))
    assert (again.event, again.deliveries, again.existing) == (published.event, published.deliveries, True)


def test_an_event_is_never_delivered_when_the_callers_transaction_rolls_back(
    lent: Lent, hf: Holdfast, sql: Sql
) -> None:
    with undone(lent.transaction()):
        publish(hf, lent, Event("a", {}, tenant=NASTY, key="k"))
    assert hf.webhooks.deliveries() == []
    assert sql("select count(*) from dedupe") == [(0,)]


def test_an_id_of_the_callers_own_is_published_once(lent: Lent, hf: Holdfast) -> None:
    event = Event("a", {}, tenant=NASTY, id="018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
    with lent.transaction():
        first = publish(hf, lent, event)
    with lent.transaction():
        second = publish(hf, lent, event)
    assert (first.existing, second.existing) == (False, True)
    assert first.deliveries == second.deliveries and len(hf.webhooks.deliveries()) == 1


@pytest.mark.parametrize(("kind", "expected"), [(Psycopg, "use enqueue, emit, publish"), (PsycopgAsync, "apublish")])
def test_a_connection_of_the_wrong_kind_is_an_error(hf: Holdfast, dsn: str, kind: type[Lent], expected: str) -> None:
    lent = kind(dsn)
    event = Event("a", {})
    with pytest.raises(UsageError, match=expected):
        hf.webhooks.publish(lent.conn, event) if lent.is_async else asyncio.run(hf.webhooks.apublish(lent.conn, event))
    lent.clear_away()
