"""The fast path of a call on our own connections: a prepared statement, without psycopg's cursor.

A cursor looks up how to adapt each parameter by its type and how to convert each column, and keeps its own record of
prepared statements. That takes 30 us of CPU for each call, a third of what an enqueue takes in the client. Statements
of the hot path (`Call.hot`) are few and constant, and determine the types of their parameters, so all are sent as text.

psycopg sends DEALLOCATE ALL after a ROLLBACK. So a statement that is gone is prepared again, which is only possible
outside of transactions; inside of one, a call takes the cursor (`usable`).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Generator, Sequence
from typing import Any

from psycopg import errors, generators, pq
from psycopg.adapt import Transformer

from holdfast.store.call import Rows

_FATAL, _IDLE = pq.ExecStatus.FATAL_ERROR, pq.TransactionStatus.IDLE
_WRITE: dict[type, Any] = {
    str: str.encode,
    int: lambda value: b"%d" % value,
    float: lambda value: repr(value).encode(),
    bool: lambda value: b"t" if value else b"f",
    type(None): lambda value: None,
}


def _write_other(value: Any) -> bytes:
    """Return the text of a value of another type; for a subclass, such as an enum, that of its kind."""
    if isinstance(value, str):
        return str.encode(value)
    return b"%d" % value if isinstance(value, int) else str(value).encode()


def usable(conn: Any) -> bool:
    """Return whether the fast path is possible on one of our connections: it is in no transaction."""
    return bool(conn.autocommit and conn.pgconn.transaction_status == _IDLE)


def execute(conn: Any, sql: str, params: Sequence[Any]) -> Generator[Any, Any, Rows]:
    """Execute a statement and return its rows as tuples; for `conn.wait`. The connection must be in use by this call
    only, and `sql` must be one of a few texts, because each is prepared once for each connection."""
    values = [_WRITE.get(type(value), _write_other)(value) for value in params]
    try:
        result = yield from _send(conn, sql, values)
    except errors.InvalidSqlStatementName:  # nothing was executed
        conn.prepared.clear()
        result = yield from _send(conn, sql, values)
    reader = Transformer(conn)
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, tuple)


def _send(conn: Any, sql: str, values: list[bytes | None]) -> Generator[Any, Any, Any]:
    pgconn = conn.pgconn
    name, numbered = _statement(sql)
    if conn.prepare_threshold is None:  # behind a pooler, which may pass each call to another server connection
        pgconn.send_query_params(numbered, values)
        return (yield from _result(pgconn))
    if name not in conn.prepared:
        pgconn.send_prepare(name, numbered)
        yield from _result(pgconn)
        conn.prepared.add(name)
    pgconn.send_query_prepared(name, values)
    return (yield from _result(pgconn))


def _result(pgconn: Any) -> Generator[Any, Any, Any]:
    """Return the result of what was sent, or raise its error."""
    (result, *_) = yield from generators.execute(pgconn)
    if result.status == _FATAL:
        raise errors.error_from_result(result)
    return result


@functools.cache
def _statement(sql: str) -> tuple[bytes, bytes]:
    """Return a statement's name, which only this text has, and the text with $1, $2 ... in place of %s."""
    first, *rest = sql.split("%s")
    numbered = "".join([first, *(f"${n}{text}" for n, text in enumerate(rest, 1))]).encode()
    return b"holdfast_" + hashlib.sha256(numbered).hexdigest()[:20].encode(), numbered
