"""Run calls on the caller's connection, of any supported library, inside its transaction.

A connection is recognized by the names of its classes, so no library is imported that the caller does not use. The
driver connection inside SQLAlchemy and Django is never used directly. They begin transactions around their own
statements (SQLAlchemy on asyncpg with its first one), so any other statement would commit by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.settings import Settings
from holdfast.store.call import Call, Rows
from holdfast.store.wire import connect
from holdfast.store.wire.statements_async import afetch_rows
from holdfast.store.wire.statements_sync import fetch_rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Library:
    """One kind of connection. `execute` returns a statement's rows; for an async kind, a coroutine."""

    name: str
    execute: Callable[[Any, str, Sequence[Any]], Any]
    is_async: bool = False


def run(conn: Any, call: Call[T]) -> T:
    """Run a call on a sync connection."""
    return call.read(_find(conn, is_async=False).execute(conn, call.sql, call.params))


async def arun(conn: Any, call: Call[T]) -> T:
    """Run a call on an async connection."""
    return call.read(await _find(conn, is_async=True).execute(conn, call.sql, call.params))


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Translate the errors of a block that uses the caller's connection."""
    try:
        yield
    except Exception as error:  # the connection may be of any supported library
        explanation = connect.explain_callers(error, settings)
        if explanation is error:
            raise
        raise explanation from error


def numbered(sql: str, params: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Return the statement with $1, $2 ... for asyncpg, which encodes values by the types that the server infers.

    Strings are cast to text first, so that the caller's own codecs for json or uuid are not used. A null is written
    into the SQL, because no type can be inferred from it.
    """
    first, *rest = sql.split("%s")
    parts, values = [first], []
    for value, after in zip(params, rest, strict=True):
        if value is not None:
            values.append(value)
        parts += ("NULL" if value is None else f"${len(values)}{'::text' if isinstance(value, str) else ''}", after)
    return "".join(parts), tuple(values)


async def _asyncpg(conn: Any, sql: str, params: Sequence[Any]) -> Rows:
    sql, params = numbered(sql, params)
    return [tuple(row) for row in await conn.fetch(sql, *params)]


def _sqlalchemy(conn: Any, sql: str, params: Sequence[Any]) -> Rows:
    return [tuple(row) for row in conn.exec_driver_sql(*_for_dialect(conn.dialect, sql, params))]


def _sqlalchemy_session(session: Any, sql: str, params: Sequence[Any]) -> Rows:
    return _sqlalchemy(session.connection(), sql, params)


async def _sqlalchemy_async(conn: Any, sql: str, params: Sequence[Any]) -> Rows:
    return [tuple(row) for row in await conn.exec_driver_sql(*_for_dialect(conn.dialect, sql, params))]


async def _sqlalchemy_async_session(session: Any, sql: str, params: Sequence[Any]) -> Rows:
    return await _sqlalchemy_async(await session.connection(), sql, params)


def _for_dialect(dialect: Any, sql: str, params: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    if dialect.name != "postgresql":
        raise _not_postgresql("a SQLAlchemy connection", dialect.name)
    return numbered(sql, params) if dialect.paramstyle == "numeric_dollar" else (sql, tuple(params))


def _django(conn: Any, sql: str, params: Sequence[Any]) -> Rows:
    if (vendor := getattr(conn, "vendor", "no database")) != "postgresql":
        raise _not_postgresql("a Django connection", vendor)
    with conn.cursor() as cursor:
        cursor.execute(sql, params)
        rows: Rows = cursor.fetchall()
        return rows


def _not_postgresql(what: str, found: str) -> UsageError:
    return UsageError(f"conn is {what} to {found}; jobs are rows in PostgreSQL, so leave conn= out there")


_DJANGO = Library("Django connection", _django)
_LIBRARIES = {
    "psycopg.Connection": Library("psycopg Connection", fetch_rows),
    "psycopg.AsyncConnection": Library("psycopg AsyncConnection", afetch_rows, True),
    "asyncpg.connection.Connection": Library("asyncpg Connection", _asyncpg, True),
    "asyncpg.pool.PoolConnectionProxy": Library("asyncpg Connection", _asyncpg, True),
    "sqlalchemy.engine.base.Connection": Library("SQLAlchemy Connection", _sqlalchemy),
    "sqlalchemy.orm.session.Session": Library("SQLAlchemy Session", _sqlalchemy_session),
    "sqlalchemy.orm.scoping.scoped_session": Library("SQLAlchemy Session", _sqlalchemy_session),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": Library("SQLAlchemy AsyncConnection", _sqlalchemy_async, True),
    "sqlalchemy.ext.asyncio.session.AsyncSession": Library("SQLAlchemy AsyncSession", _sqlalchemy_async_session, True),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": Library(
        "SQLAlchemy AsyncSession", _sqlalchemy_async_session, True
    ),
    "django.db.backends.base.base.BaseDatabaseWrapper": _DJANGO,
    "django.utils.connection.ConnectionProxy": _DJANGO,  # what django.db.connection is
}


def _find(conn: Any, *, is_async: bool) -> Library:
    kind = type(conn)
    library = _library_of(kind)
    if library is None:
        supported = ", ".join(dict.fromkeys(each.name for each in _LIBRARIES.values()))
        raise UsageError(f"conn is of type {kind.__module__}.{kind.__qualname__}; it may be one of: {supported}")
    if library.is_async == is_async:
        return library
    if library is _DJANGO:
        raise UsageError(
            "conn is a Django connection, and Django's transactions are for sync code: call enqueue (or emit) in "
            "the function that holds the transaction, and that function through sync_to_async"
        )
    forms = "enqueue, emit, publish, insert_once" if is_async else "await aenqueue, aemit, apublish, ainsert_once"
    raise UsageError(f"conn is a {library.name}, which is {'' if library.is_async else 'not '}async: use {forms} ...")


def _library_of(kind: type[Any]) -> Library | None:
    names = (f"{each.__module__}.{each.__qualname__}" for each in kind.__mro__)
    return next((_LIBRARIES[name] for name in names if name in _LIBRARIES), None)
