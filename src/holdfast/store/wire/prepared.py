"""The fast path of a call on our own connections: a prepared statement, without psycopg's cursor.

A cursor looks up how to adapt each parameter by its type and how to convert each column, and keeps its own record of
prepared statements. That takes 30 us of CPU for each call, a third of what an enqueue takes in the client. Statements
of the hot path (`Call.hot`) are few and constant, and determine the types of their parameters, so all are sent as text.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from typing import Any

from psycopg import generators, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from holdfast.store.call import Rows

_FATAL = pq.ExecStatus.FATAL_ERROR
_WRITE: dict[type, Any] = {
    str: str.encode,
    int: lambda value: b"%d" % value,
    float: lambda value: repr(value).encode(),
    bool: lambda value: b"t" if value else b"f",
    type(None): lambda value: None,
}


def execute(conn: Any, sql: str, params: Sequence[Any]) -> Generator[Any, Any, Rows]:
    """Execute a statement and return its rows as tuples; for `conn.wait`. The connection must be in use by this call
    only, and `sql` must be one of a few texts, because each is prepared once for each connection."""
    pgconn = conn.pgconn
    values = [_WRITE[type(value)](value) for value in params]
    if conn.prepare_threshold is None:  # behind a pooler, which may pass each call to another server connection
        pgconn.send_query_params(_numbered(sql), values)
    else:
        if (name := conn.prepared.get(sql)) is None:
            name = b"holdfast_%d" % len(conn.prepared)
            pgconn.send_prepare(name, _numbered(sql))
            yield from _result(pgconn)
            conn.prepared[sql] = name
        pgconn.send_query_prepared(name, values)
    result = yield from _result(pgconn)
    reader = Transformer(conn)
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, tuple)


def _result(pgconn: Any) -> Generator[Any, Any, Any]:
    """Return the result of what was sent, or raise its error."""
    (result, *_) = yield from generators.execute(pgconn)
    if result.status == _FATAL:
        raise error_from_result(result)
    return result


@functools.cache
def _numbered(sql: str) -> bytes:
    """Return a statement with $1, $2 ... in place of %s."""
    first, *rest = sql.split("%s")
    return "".join([first, *(f"${n}{text}" for n, text in enumerate(rest, 1))]).encode()
