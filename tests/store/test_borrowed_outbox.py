"""Messages emitted on the caller's connections, with each real library: they commit or roll back with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Holdfast, UsageError
from tests.support.lent import KINDS, Django, Lent, Psycopg, PsycopgAsync, undone

Sql = Callable[..., list[tuple[Any, ...]]]
NASTY = "'; drop table x; -- %s %(a)s %% $1 :name ? \\ \" é 漢 🙂 {0}"


@pytest.fixture(params=KINDS)
def lent(request: pytest.FixtureRequest, dsn: str) -> Iterator[Lent]:
    """A connection of each kind."""
    given = KINDS[request.param](dsn)
    yield given
    given.clear_away()


def emit(hf: Holdfast, lent: Lent, *args: Any, **options: Any) -> Any:
    return lent.do(hf.outbox.aemit if lent.is_async else hf.outbox.emit, lent.conn, *args, **options)


def test_a_message_is_there_when_the_transaction_commits_and_never_when_it_does_not(hf: Holdfast, lent: Lent) -> None:
    with undone(lent.transaction()):
        assert not emit(hf, lent, "email", {"n": 1}, key="k").existing
    assert hf.outbox.list() == []
    with lent.transaction():
        first = emit(hf, lent, "email", {"n": 2}, key="k")
        with undone(lent.savepoint()):
            emit(hf, lent, "email", {"n": 3}, key="other")
        assert emit(hf, lent, "email", {"n": 4}, key="k") == type(first)(first.id, existing=True)
        assert hf.outbox.list() == []
    assert [(it.id, it.payload) for it in hf.outbox.list()] == [(first.id, {"n": 2})]


def test_whatever_a_message_holds_arrives(hf: Holdfast, lent: Lent) -> None:
    payload = {NASTY: [NASTY, 1, 2.5, None, True, {"a": []}]}
    with lent.transaction():
        emit(hf, lent, "email", payload, key=NASTY, tenant=NASTY, order=NASTY)
        emit(hf, lent, "email", "text", key=NASTY)
    plain, full = hf.outbox.list()
    assert (full.payload, full.key, full.tenant, full.order) == (payload, NASTY, NASTY, NASTY)
    assert (plain.payload, plain.tenant, plain.order) == ("text", None, None)
    assert full.idempotency_key != plain.idempotency_key


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Psycopg, "use enqueue, emit"),
        (PsycopgAsync, "use await aenqueue, aemit"),
        (Django, r"call enqueue \(or emit\)"),
    ],
)
def test_a_connection_of_the_wrong_kind_is_an_error_that_names_the_twin(
    hf: Holdfast, dsn: str, kind: type[Lent], expected: str
) -> None:
    lent = kind(dsn)
    with pytest.raises(UsageError, match=expected):
        hf.outbox.emit(lent.conn, "email", 1, key="k") if lent.is_async else asyncio.run(
            hf.outbox.aemit(lent.conn, "email", 1, key="k")
        )
    lent.clear_away()


def test_what_is_no_connection_is_refused(hf: Holdfast) -> None:
    with pytest.raises(UsageError, match="conn is of type"):
        hf.outbox.emit(object(), "email", 1, key="k")
