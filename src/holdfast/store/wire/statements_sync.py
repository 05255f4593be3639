# Generated from statements_async.py by tools/async_to_sync.py. Change that file, and run `make sync`.
"""Run calls and copy jobs on a psycopg connection, in its current transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from psycopg.rows import tuple_row

from holdfast.store.bulk import Bulk
from holdfast.store.call import Call, Rows
from holdfast.store.calls import Calls
from holdfast.store.wire.connection_sync import Connection
from holdfast.store.wire.prepared import execute, usable

T = TypeVar("T")


def fetch_rows(conn: Any, sql: str, params: Sequence[Any], prepare: bool | None = None) -> Rows:
    """Return the rows of a statement as tuples, whatever the connection's row factory."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(sql, params, prepare=prepare)
        rows: Rows = cursor.fetchall()
        return rows


def run_on(conn: Any, call: Call[T]) -> T:
    """Run a call on a connection."""
    if call.hot and isinstance(conn, Connection) and usable(conn):
        return call.read(conn.wait(execute(conn, call.sql, call.params)))
    return call.read(fetch_rows(conn, call.sql, call.params, call.prepare))


def copy_on(conn: Any, calls: Calls, bulk: Bulk) -> None:
    """Copy jobs on a connection; the commit wakes their queue's sleepers."""
    with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        if bulk.may_have_lanes:
            run_on(conn, calls.jobs.begin_bulk())
        with cursor.copy(calls.jobs.copy_sql) as copy:
            for block in bulk.blocks():
                copy.write(block)
        if bulk.like.batch is not None:
            run_on(conn, calls.batches.add(bulk.like.batch, len(bulk.ids)))
        run_on(conn, _after_copy(calls, bulk))


def _after_copy(calls: Calls, bulk: Bulk) -> Call[None]:
    if bulk.may_have_lanes:
        return calls.jobs.announce_lanes(bulk.like, bulk.lanes.values(), len(bulk.ids))
    return calls.jobs.wake(bulk.like.queue, len(bulk.ids))
