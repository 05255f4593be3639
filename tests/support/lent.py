"""Connections of each real library behind one interface: for jobs that are enqueued on them."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import asyncpg
import psycopg
import psycopg.rows
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.support import django_site


def url(dsn: str, driver: str = "") -> str:
    """Return a libpq string as a URL, for the libraries that take nothing else."""
    given = conninfo_to_dict(dsn)
    return f"postgresql{driver}://{given['user']}@/{given['dbname']}?host={given['host']}&port={given['port']}"


class Undo(Exception):
    """Raised where a block is to be rolled back."""


@contextmanager
def undone(block: AbstractContextManager[Any]) -> Iterator[None]:
    """Roll a block back at its end."""
    with suppress(Undo), block:
        yield
        raise Undo


class Lent(ABC):
    """A connection of one library behind an interface for all: blocks, statements, enqueues."""

    is_async = False
    closed_error: type[Exception] | None = None  # what the library raises once closed; None when it connects again

    def __init__(self, dsn: str, **options: Any) -> None:
        self.runner = asyncio.Runner() if self.is_async else None
        self.dsn = dsn
        self.conn: Any = None
        self.open(**options)

    @abstractmethod
    def open(self, **options: Any) -> None:
        """Connect, and set `conn` to what is lent to enqueue."""

    def do(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return the result of a call of the library."""
        return self.runner.run(_awaited(call, args, options)) if self.runner is not None else call(*args, **options)

    def enqueue(self, task: Any, *args: Any) -> Any:
        using = task.using(conn=self.conn)
        return self.do(using.aenqueue if self.is_async else using.enqueue, *args)

    def enqueue_many(self, task: Any, calls: list[Any]) -> list[str]:
        using = task.using(conn=self.conn)
        ids: list[str] = self.do(using.aenqueue_many if self.is_async else using.enqueue_many, calls).ids
        return ids

    def execute(self, statement: str) -> None:
        self.do(self.conn.execute, statement)

    def transaction(self) -> AbstractContextManager[Any]:
        return self.block(self.conn.transaction())

    def savepoint(self) -> AbstractContextManager[Any]:
        return self.transaction()

    def block(self, entered: Any) -> AbstractContextManager[Any]:
        return self._async_block(entered) if self.is_async else entered

    @contextmanager
    def _async_block(self, entered: Any) -> Iterator[None]:
        self.do(entered.__aenter__)
        try:
            yield
        except BaseException as error:
            self.do(entered.__aexit__, type(error), error, error.__traceback__)
            raise
        self.do(entered.__aexit__, None, None, None)

    def close(self) -> None:
        self.do(self.conn.close)

    def clear_away(self) -> None:
        """Remove everything it made."""
        self.close()
        if self.runner is not None:
            self.runner.close()


async def _awaited(call: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    result = call(*args, **options)
    return await result if inspect.isawaitable(result) else result


class Psycopg(Lent):
    closed_error = psycopg.OperationalError

    def open(self, **options: Any) -> None:
        # Not tuples: the row factory is the caller's choice.
        self.conn = psycopg.connect(self.dsn, row_factory=psycopg.rows.dict_row, **options)


class PsycopgAsync(Lent):
    is_async = True
    closed_error = psycopg.OperationalError

    def open(self, **options: Any) -> None:
        self.conn = self.do(psycopg.AsyncConnection.connect, self.dsn, row_factory=psycopg.rows.dict_row, **options)


class Asyncpg(Lent):
    is_async = True
    closed_error = asyncpg.InterfaceError

    def open(self) -> None:
        self.conn = self.do(asyncpg.connect, url(self.dsn))


class AsyncpgPool(Lent):
    is_async = True
    closed_error = asyncpg.InterfaceError

    def open(self) -> None:
        self.pool = self.do(asyncpg.create_pool, url(self.dsn), min_size=1, max_size=1)
        self.conn = self.do(self.pool.acquire)

    def close(self) -> None:
        self.do(self.pool.release, self.conn)

    def clear_away(self) -> None:
        self.close()
        self.do(self.pool.close)
        super().clear_away()


class Alchemy(Lent):
    driver = "+psycopg"
    closed_error = sqlalchemy.exc.ResourceClosedError

    def open(self, **options: Any) -> None:
        make = create_async_engine if self.is_async else sqlalchemy.create_engine
        self.engine = make(url(self.dsn, self.driver), **options)
        self.conn = self.do(self.connect)

    def connect(self) -> Any:
        return self.engine.connect()

    def execute(self, statement: str) -> None:
        self.do(self.conn.execute, sqlalchemy.text(statement))

    def transaction(self) -> AbstractContextManager[Any]:
        return self.block(self.conn.begin())

    def savepoint(self) -> AbstractContextManager[Any]:
        return self.block(self.conn.begin_nested())

    def clear_away(self) -> None:
        self.close()
        self.do(self.engine.dispose)
        super().clear_away()


class AlchemySession(Alchemy):
    closed_error = None

    def connect(self) -> Any:
        return Session(self.engine)


class AlchemyAsync(Alchemy):
    is_async = True


class AlchemyAsyncSession(AlchemyAsync):
    closed_error = None

    def open(self, **options: Any) -> None:
        self.engine = create_async_engine(url(self.dsn, self.driver), **options)
        self.conn = AsyncSession(self.engine)


class Alchemy2(Alchemy):
    driver = "+psycopg2"


class AlchemySession2(AlchemySession):
    driver = "+psycopg2"


class AlchemyAsyncpg(AlchemyAsync):
    driver = "+asyncpg"


class AlchemyAsyncpgSession(AlchemyAsyncSession):
    driver = "+asyncpg"


class Django(Lent):
    def open(self) -> None:
        django_site.set_up(self.dsn)
        from django.db import connection

        self.conn = connection

    def execute(self, statement: str) -> None:
        with self.conn.cursor() as cursor:
            cursor.execute(statement)

    def transaction(self) -> AbstractContextManager[Any]:
        from django.db import transaction

        return transaction.atomic()


KINDS: dict[str, type[Lent]] = {
    "psycopg": Psycopg,
    "psycopg-async": PsycopgAsync,
    "asyncpg": Asyncpg,
    "asyncpg-pool": AsyncpgPool,
    "sqlalchemy-psycopg": Alchemy,
    "sqlalchemy-psycopg2": Alchemy2,
    "sqlalchemy-psycopg-session": AlchemySession,
    "sqlalchemy-psycopg2-session": AlchemySession2,
    "sqlalchemy-psycopg-async": AlchemyAsync,
    "sqlalchemy-asyncpg": AlchemyAsyncpg,
    "sqlalchemy-psycopg-async-session": AlchemyAsyncSession,
    "sqlalchemy-asyncpg-session": AlchemyAsyncpgSession,
    "django": Django,
}
