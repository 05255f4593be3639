"""A worker's connections, one for each purpose (claim, finish, upkeep, listen, renew), reopened after a loss."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from holdfast.errors import DatabaseUnavailable
from holdfast.settings import Settings
from holdfast.store.call import Call, JobDueCallback
from holdfast.store.wire import connect
from holdfast.store.wire.connection_async import AsyncConnection
from holdfast.store.wire.connection_sync import Connection
from holdfast.store.wire.deadline import watch
from holdfast.store.wire.opener import Opener, transaction_for
from holdfast.store.wire.statements_async import arun_on
from holdfast.store.wire.statements_sync import run_on

T = TypeVar("T")
# Backoff in seconds after a serialization failure or a deadlock (40001, 40P01).
_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)


class Session:
    """One async connection for one purpose, not for concurrent use. `on_job_due` is called for jobs that a call made
    due."""

    def __init__(self, settings: Settings, name: str, on_job_due: JobDueCallback | None = None) -> None:
        self._settings = settings
        self._name = name
        self._on_job_due = on_job_due
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self.answered_at = 0.0  # monotonic time of the last reply
        self.asking = False

    async def run(self, call: Call[T]) -> T:
        """Run one call, and repeat it after serialization failures; after an error the next call reconnects."""
        for pause in _PAUSES:
            try:
                return await self._run(call)
            except connect.AGAIN:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        try:
            return await self._run(call)
        except connect.AGAIN as error:
            raise DatabaseUnavailable(
                f"a call met a conflict with other transactions {len(_PAUSES) + 1} times: {connect.message_of(error)}; "
                "it may succeed later"
            ) from error

    async def _run(self, call: Call[T]) -> T:
        """Run one call within call_timeout. Connecting has its own time: there may be several servers to try."""
        self.asking = True
        try:
            conn = self._conn if self._conn is not None and not self._conn.closed else await self._open_in_time()
            # The watch closes the socket first: canceled by asyncio, psycopg waits ten seconds for a silent server.
            async with asyncio.timeout(self._settings.call_timeout + 1):
                with watch.within(conn, self._settings.call_timeout):
                    async with transaction_for(conn):
                        result = await arun_on(conn, call)
                    self.answered_at = time.monotonic()
                    return self._notify(call, result)
        except connect.AGAIN:
            raise
        except (psycopg.Error, TimeoutError) as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise DatabaseUnavailable(f"a call took longer than {self._settings.call_timeout:g} s") from error
            raise connect.explain(error, self._settings, known_good=True) from error
        finally:
            self.asking = False

    def _notify(self, call: Call[T], result: T) -> T:
        if self._on_job_due is not None and call.due is not None and (job := call.due(result)) is not None:
            self._on_job_due(job, committed=True)
        return result

    async def listen(self, channel: str) -> AsyncIterator[str]:
        """Yield "" once the connection listens, then the payloads of notifications until it is lost."""
        try:
            conn = await self._open()
            await conn.execute(f"LISTEN {channel}")
            yield ""
            async with aclosing(_notifications(conn)) as found:
                async for payload in found:
                    yield payload
        except psycopg.Error as error:
            raise connect.explain(error, self._settings, known_good=True) from error
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection, if there is one."""
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    async def _open_in_time(self) -> psycopg.AsyncConnection[Any]:
        async with asyncio.timeout(self._settings.connect_timeout + self._settings.call_timeout + 1):
            return await self._open()

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        opener = Opener(self._settings, self._name)
        self._conn = await AsyncConnection.connect(opener.conninfo(), row_factory=tuple_row, **opener.kwargs())
        return self._conn


async def _notifications(conn: psycopg.AsyncConnection[Any]) -> AsyncGenerator[str]:
    """Yield the payloads of a connection's notifications. psycopg's own notifies() wakes ten times a second, which
    is half of what an idle worker does."""
    pgconn, readable, loop = conn.pgconn, asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(fd := pgconn.socket, readable.set)
    try:
        while True:
            while (notification := pgconn.notifies()) is not None:
                yield notification.extra.decode()
            await readable.wait()
            readable.clear()
            pgconn.consume_input()
    finally:
        loop.remove_reader(fd)


class ThreadSession:
    """A sync connection for the renewal thread, which a slow event loop cannot delay."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._conn: psycopg.Connection[Any] | None = None
        self.answered_at = 0.0

    def run(self, call: Call[T]) -> T:
        """Run one call; after an error the next call reconnects."""
        try:
            if self._conn is None:
                opener = Opener(self._settings, self._name)
                self._conn = Connection.connect(opener.conninfo(), **opener.kwargs())
            with watch.within(self._conn, self._settings.call_timeout):
                with transaction_for(self._conn):
                    result = run_on(self._conn, call)
                self.answered_at = time.monotonic()
                return result
        except psycopg.Error as error:
            self.close()
            raise connect.explain(error, self._settings, known_good=True) from error

    def close(self) -> None:
        """Close the connection, if there is one."""
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()
