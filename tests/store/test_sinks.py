"""Sinks on tables of the caller's, with each real library."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from typing import Any

import psycopg
import pytest

from holdfast import InvalidPayload, UsageError
from holdfast.effects import ainsert_once, aupsert_if_stronger, insert_once, upsert_if_stronger
from tests.support.lent import KINDS, Asyncpg, Django, Lent, Psycopg, PsycopgAsync, undone

Sql = Callable[..., list[tuple[Any, ...]]]
NASTY = "'; drop table x; -- %s %(a)s %% $1 :name ? \\ \" \n\t é 漢 🙂 {0}"
COLUMNS = """
    intake integer, source text, note text, match_strength integer, price numeric(20, 6), data jsonb, raw json,
    tags text[], seen timestamptz, day date, took interval, image bytea, share double precision, host inet, big numeric,
    ref uuid, flag boolean"""


@pytest.fixture(params=KINDS)
def lent(request: pytest.FixtureRequest, dsn: str, table: None) -> Iterator[Lent]:
    given = KINDS[request.param](dsn)
    yield given
    given.clear_away()


@pytest.fixture
def table(sql: Sql) -> Iterator[None]:
    sql(f"create table public.points ({COLUMNS}, unique (intake, source))")
    yield
    sql("drop table public.points")


@pytest.fixture
def own(dsn: str, table: None) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


def once(lent: Lent, row: dict[str, Any], key: Any = ("intake", "source"), table: str = "public.points") -> bool:
    result: bool = lent.do(ainsert_once if lent.is_async else insert_once, lent.conn, table, row, key)
    return result


def stronger(lent: Lent, row: dict[str, Any], table: str = "public.points") -> str:
    call = aupsert_if_stronger if lent.is_async else upsert_if_stronger
    result: str = lent.do(call, lent.conn, table, row, ["intake", "source"], "match_strength")
    return result


def test_a_row_is_inserted_once(lent: Lent, sql: Sql) -> None:
    with lent.transaction():
        assert once(lent, {"intake": 1, "source": "ebay", "note": "first"}) is True
        assert once(lent, {"intake": 1, "source": "ebay", "note": "second"}) is False
        assert once(lent, {"intake": 2, "source": "ebay"}) is True
    assert sql("select intake, source, note from public.points order by 1") == [(1, "ebay", "first"), (2, "ebay", None)]


def test_a_row_is_gone_when_the_callers_transaction_rolls_back(lent: Lent, sql: Sql) -> None:
    with undone(lent.transaction()):
        assert once(lent, {"intake": 1, "source": "a"})
        assert stronger(lent, {"intake": 2, "source": "a", "match_strength": 1}) == "inserted"
    assert sql("select count(*) from public.points") == [(0,)]


def test_only_a_stronger_row_takes_the_place_of_another(lent: Lent, sql: Sql) -> None:
    results = []
    with lent.transaction():
        for strength, note in ((None, "null"), (None, "again"), (5, "a"), (5, "b"), (4, "c"), (None, "d"), (6, "e")):
            row = {"intake": 1, "source": "s", "match_strength": strength, "note": note}
            results.append(stronger(lent, row))
    assert results == ["inserted", "kept", "updated", "kept", "kept", "kept", "updated"]
    assert sql("select match_strength, note from public.points") == [(6, "e")]


def test_values_of_every_kind_arrive(lent: Lent, sql: Sql) -> None:
    row = {
        "intake": 1,
        "source": NASTY,
        "price": Decimal("12345678901234.000001"),
        "data": {"a": [1, None, {"b": NASTY}]},
        "raw": [1, "x", None],
        "tags": ["a", NASTY, None],
        "seen": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "day": date(2026, 1, 31),
        "took": timedelta(days=-2, seconds=5, microseconds=7),
        "image": b"\x00\xff%s",
        "share": float("inf"),
        "host": ip_address("2001:db8::1"),
        "big": 10**30,
        "note": None,
        "ref": uuid.UUID(int=7),
        "flag": True,
    }
    with lent.transaction():
        assert once(lent, row)
    assert sql(f"select {', '.join(row)} from public.points") == [tuple(row.values())]


def test_a_text_in_a_json_column_is_a_json_text(lent: Lent, sql: Sql) -> None:
    with lent.transaction():
        once(lent, {"intake": 1, "source": "s", "data": '{"a": 1}'})
    assert sql("select data from public.points") == [('{"a": 1}',)]


def test_a_missing_unique_index_is_named(lent: Lent, sql: Sql) -> None:
    words = r'create it: CREATE UNIQUE INDEX ON "public"."points" \("source"\)'
    with pytest.raises(UsageError, match=words), lent.transaction():
        once(lent, {"intake": 1, "source": "s"}, "source")
    sql('CREATE UNIQUE INDEX ON "public"."points" ("source")')
    with lent.transaction():
        assert once(lent, {"intake": 1, "source": "s"}, "source")


@pytest.mark.parametrize(
    ("row", "into", "words"),
    [
        ({"intake": 1, "source": "s", "nope": 2}, "public.points", 'column "nope" of relation "points" does not exist'),
        ({"intake": 1, "source": "s"}, "public.nowhere", 'relation "public.nowhere" does not exist'),
        ({"intake": 1, "source": "s"}, "Public.points", 'relation "Public.points" does not exist'),
        ({"intake": "many", "source": "s"}, "public.points", "does not fit its column"),
    ],
)
def test_what_the_table_lacks_is_named(lent: Lent, row: dict[str, Any], into: str, words: str) -> None:
    with pytest.raises(UsageError, match=words), lent.transaction():
        once(lent, row, table=into)


def test_a_constraint_of_the_tables_own_is_the_callers_to_handle(own: psycopg.Connection[Any]) -> None:
    own.execute("alter table public.points add check (intake < 5)")
    with pytest.raises(psycopg.errors.CheckViolation):
        insert_once(own, "public.points", {"intake": 9, "source": "s"}, ["intake", "source"])


@pytest.mark.parametrize(
    "name", ['a"b', "a b", "a;b", "1a", "", "a.b.c", "a%s", "a-b", "x" * 64, "漢" * 22, None, 5, "a\x00"]
)
def test_a_name_that_is_none_is_refused_before_a_query(name: Any) -> None:
    conn = object()  # never looked at
    with pytest.raises(UsageError, match="a table"):
        insert_once(conn, name, {"a": 1}, "a")
    if name != "a.b.c":
        with pytest.raises(UsageError, match="a column"):
            insert_once(conn, "t", {name: 1, "a": 1}, "a")
    with pytest.raises(UsageError, match=r"a column|names column"):
        insert_once(conn, "t", {"a": 1}, [name])
    with pytest.raises(UsageError, match=r"the column of strength|names column"):
        upsert_if_stronger(conn, "t", {"a": 1}, "a", name)


@pytest.mark.parametrize(
    ("row", "key", "words"),
    [
        ({}, "a", "at least one"),
        ([1], "a", "a row must be a dict"),
        ({"a": 1}, [], "it is empty"),
        ({"a": 1, "b": None}, ["a", "b"], "column 'b' of the key is null"),
        ({"a": 1}, "b", "names column 'b', which the row does not have; it has a"),
    ],
)
def test_a_call_that_cannot_work_is_refused(row: Any, key: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        insert_once(object(), "t", row, key)


def test_a_strength_that_is_part_of_the_key_is_refused() -> None:
    with pytest.raises(UsageError, match="a column of the key"):
        upsert_if_stronger(object(), "t", {"a": 1, "b": 2}, ["a", "b"], "b")


@pytest.mark.parametrize("value", ["a\x00b", {"a": "\x00"}, {"a": float("nan")}, "\ud800", object()])
def test_a_value_that_cannot_be_stored_is_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        insert_once(object(), "t", {"a": value}, "a")


def test_odd_names_are_taken_as_written(own: psycopg.Connection[Any]) -> None:
    own.execute('create table public."Größe$1" ("select" text primary key, "Value" integer)')
    try:
        assert insert_once(own, "public.Größe$1", {"select": "x", "Value": 1}, "select")
        assert upsert_if_stronger(own, "public.Größe$1", {"select": "x", "Value": 2}, "select", "Value") == "updated"
        assert own.execute('select "Value" from public."Größe$1"').fetchall() == [(2,)]
    finally:
        own.execute('drop table public."Größe$1"')


def test_a_partitioned_table_will_do(own: psycopg.Connection[Any]) -> None:
    own.execute("create table public.parts (day date, k text, s integer, unique (day, k)) partition by range (day)")
    own.execute(
        "create table public.parts_2026 partition of public.parts for values from ('2026-01-01') to ('2027-01-01')"
    )
    try:
        result = [
            upsert_if_stronger(own, "public.parts", {"day": date(2026, 1, 1), "k": "a", "s": s}, ["day", "k"], "s")
            for s in (1, 2, 2)
        ]
        assert result == ["inserted", "updated", "kept"]
    finally:
        own.execute("drop table public.parts")


@pytest.mark.parametrize(("kind", "call"), [(PsycopgAsync, insert_once), (Asyncpg, upsert_if_stronger)])
def test_an_async_connection_needs_the_async_call(dsn: str, kind: type[Lent], call: Any) -> None:
    lent = kind(dsn)
    more = () if call is insert_once else ("b",)
    try:
        with pytest.raises(UsageError, match=r"which is async: use await .*ainsert_once"):
            call(lent.conn, "t", {"a": 1, "b": 1}, "a", *more)
    finally:
        lent.clear_away()


@pytest.mark.parametrize("kind", [Psycopg, Django])
def test_a_sync_connection_needs_the_sync_call(dsn: str, kind: type[Lent]) -> None:
    lent = kind(dsn)
    try:
        with pytest.raises(UsageError, match="conn is a "):
            asyncio.run(ainsert_once(lent.conn, "t", {"a": 1}, "a"))
    finally:
        lent.clear_away()


def in_threads(n: int, work: Callable[[int], None]) -> None:
    failed: list[BaseException] = []

    def run(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("isolation", [psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ])
def test_of_many_writers_one_inserts_and_the_strongest_wins(
    dsn: str, sql: Sql, table: None, seeded: random.Random, isolation: psycopg.IsolationLevel
) -> None:
    results: list[tuple[str, int, str]] = []
    lots = [[seeded.randrange(1000) for _ in range(40)] for _ in range(8)]

    def write(writer: int) -> None:
        with psycopg.connect(dsn) as conn:
            conn.isolation_level = isolation
            for turn, strength in enumerate(lots[writer]):
                source = str(turn % 4)
                row = {"intake": 1, "source": source, "match_strength": strength, "data": {"by": writer}}
                while True:
                    try:
                        with conn.transaction():
                            result = upsert_if_stronger(
                                conn, "public.points", row, ["intake", "source"], "match_strength"
                            )
                        break
                    except psycopg.errors.SerializationFailure:
                        assert isolation is psycopg.IsolationLevel.REPEATABLE_READ
                results.append((source, strength, result))

    in_threads(8, write)
    found = dict(sql("select source, match_strength from public.points"))
    assert found == {s: max(strength for at, strength, _ in results if at == s) for s in "0123"}
    assert sorted(s for s, _, result in results if result == "inserted") == list("0123")
    for source in "0123":  # each update was to something stronger than before, so no strength came twice
        changed = [strength for at, strength, result in results if at == source and result != "kept"]
        assert len(changed) == len(set(changed))


def test_of_many_writers_exactly_one_inserts_each_row(dsn: str, sql: Sql, table: None) -> None:
    inserted: list[tuple[int, int]] = []

    def write(writer: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            for turn in range(50):
                if insert_once(
                    conn, "public.points", {"intake": turn, "source": "s", "note": str(writer)}, ("intake", "source")
                ):
                    inserted.append((turn, writer))

    in_threads(8, write)
    assert sorted(turn for turn, _ in inserted) == list(range(50))
    assert sql("select intake, note from public.points order by 1") == [(t, str(w)) for t, w in sorted(inserted)]


def test_a_json_column_keeps_its_numbers(own: psycopg.Connection[Any]) -> None:
    insert_once(
        own, "public.points", {"intake": 1, "source": "s", "data": json.loads('{"n": 1.5}')}, ["intake", "source"]
    )
    assert own.execute("select data ->> 'n' from public.points").fetchall() == [("1.5",)]
