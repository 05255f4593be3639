"""Write rows once, however often a job runs, in the caller's own tables and transaction.

    with ctx.transaction() as conn:
        insert_once(conn, "facts", {"intake": 7, "kind": "weight", "value": 3.5}, key=["intake", "kind"])
        upsert_if_stronger(conn, "price_points", point, key="dedupe_key", strength="match_strength")

`conn` is a connection or session of psycopg, asyncpg, SQLAlchemy or Django. `table` may be "schema.table". `key` names
one or more columns, which must have a unique index on exactly these columns. Names are quoted, so case matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.store.call import Call
from holdfast.store.sinks import Kept, Sink, check_strength, encode, explained, sink
from holdfast.store.wire import borrowed


def insert_once(conn: Any, table: str, row: Mapping[str, Any], key: str | Sequence[str]) -> bool:
    """Insert a row unless one with the same key exists; return whether it was inserted."""
    made, call = _once(table, row, key)
    with explained(made):
        return borrowed.run(conn, call)


async def ainsert_once(conn: Any, table: str, row: Mapping[str, Any], key: str | Sequence[str]) -> bool:
    """Insert a row once, on an async connection."""
    made, call = _once(table, row, key)
    with explained(made):
        return await borrowed.arun(conn, call)


def upsert_if_stronger(conn: Any, table: str, row: Mapping[str, Any], key: str | Sequence[str], strength: str) -> Kept:
    """Insert a row, or update the one with the same key if the new value in the column `strength` is greater.

    Of equals the first stays, and null is the weakest. Return "inserted", "updated" or "kept".
    """
    made, call = _stronger(table, row, key, strength)
    with explained(made):
        return borrowed.run(conn, call)


async def aupsert_if_stronger(
    conn: Any, table: str, row: Mapping[str, Any], key: str | Sequence[str], strength: str
) -> Kept:
    """Upsert a row, on an async connection."""
    made, call = _stronger(table, row, key, strength)
    with explained(made):
        return await borrowed.arun(conn, call)


def _once(table: str, row: Mapping[str, Any], key: str | Sequence[str]) -> tuple[Sink, Call[bool]]:
    made = sink(table, row, key)
    return made, made.insert_once(encode(row))


def _stronger(table: str, row: Mapping[str, Any], key: str | Sequence[str], strength: str) -> tuple[Sink, Call[Kept]]:
    made = sink(table, row, key)
    check_strength(strength, made)
    return made, made.upsert_if_stronger(encode(row), strength)
