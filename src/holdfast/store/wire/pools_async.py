"""Connection pools of the client, for coroutines.

Each has a second pool, whose connections are lent to handlers for their own transactions. Both sides run the same
`Call` values. A call whose reply was lost is repeated in its safe form: the client generates the ids, so an enqueue
that did commit is found and not repeated. While the primary is away or changes, calls wait (repeat.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool

from holdfast.settings import Settings
from holdfast.store.bulk import Bulk
from holdfast.store.call import Call, JobDueCallback
from holdfast.store.calls import Calls
from holdfast.store.wire import borrowed, connect, hosts
from holdfast.store.wire.coalesce import LoopCoalescer
from holdfast.store.wire.connection_async import AsyncConnection
from holdfast.store.wire.deadline import watch
from holdfast.store.wire.open_pools import LoopPools, pool_options
from holdfast.store.wire.opener import CALLS, LOANS, READ_COMMITTED, transaction_for
from holdfast.store.wire.repeat import (
    BEGIN,
    Lost,
    Repeats,
    check_writable,
    dropped_if_read_only,
    explain_failure,
    pause_before_begin,
    refuse_pool_timeout,
)
from holdfast.store.wire.statements_async import acopy_on, arun_on

T = TypeVar("T")
_LONGEST_LOAN = 300.0  # seconds a handler waits for a free connection


class AsyncPool(LoopPools):
    """Runs calls for coroutines. `on_job_due` is called for jobs that a call made due."""

    def __init__(self, settings: Settings, on_job_due: JobDueCallback | None = None) -> None:
        super().__init__(settings)
        self._on_job_due = on_job_due
        self._calls = Calls(settings.schema)
        self._coalescer: LoopCoalescer[Call[Any], Any] = LoopCoalescer(self._run_joined, size=_size_of_job)

    async def run(self, call: Call[T], conn: Any = None) -> T:
        """Run one call, and repeat it in its safe form after a lost connection; with `conn`, run it there once."""
        if conn is None and call.join is not None:
            result: T = await self._coalescer.ask(call)
        else:
            result = await self._run(call, conn)
        if self._on_job_due is not None and call.due is not None and (job := call.due(result)) is not None:
            self._on_job_due(job, committed=conn is None)
        return result

    async def _run(self, call: Call[T], conn: Any) -> T:
        if conn is not None:
            with borrowed.explained(self._settings):
                return await borrowed.arun(conn, call)
        repeats = Repeats(self._openers[CALLS])
        while True:
            try:
                return await self._run_once(call, repeats.patience.left)
            except (*Lost, psycopg.Error) as error:
                call, pause = repeats.next(call, error)
                await self._forget_dead()
                await asyncio.sleep(pause)

    async def _run_joined(self, calls: list[Call[Any]]) -> list[Any]:
        """Run calls that may be joined; return the result of each."""
        first = calls[0]
        if len(calls) == 1 or first.join is None:
            return [await self._run(first, None)]
        return await self._run(first.join([each.job for each in calls if each.job is not None]), None)

    async def _run_once(self, call: Call[T], patience: float) -> T:
        pool = await self._opened()
        conn = await pool.getconn(timeout=patience)  # pool.connection() would also commit, of which there is no need
        try:
            with watch.within(conn, self._settings.call_timeout):
                async with transaction_for(conn):
                    return await arun_on(conn, call)
        except psycopg.errors.ReadOnlySqlTransaction:
            conn.pgconn.finish()  # a standby's: the pool must not use it again
            raise
        finally:
            await pool.putconn(conn)

    async def copy(self, bulk: Bulk, conn: Any = None) -> None:
        """Copy plain jobs in one transaction, or in the caller's; use enqueue_many() where COPY is not available."""
        await self._copy(bulk, conn)
        if self._on_job_due is not None and bulk.ids:
            self._on_job_due(bulk.ids[-1], committed=conn is None)

    async def _copy(self, bulk: Bulk, conn: Any) -> None:
        if conn is not None and not isinstance(conn, psycopg.AsyncConnection):
            await self._run(self._calls.jobs.enqueue_many(bulk.jobs(), "existing"), conn)
            return
        if conn is not None:
            with borrowed.explained(self._settings):
                await acopy_on(conn, self._calls, bulk)
            return
        try:
            # statement_timeout covers the COPY alone; the deadline covers the commit as well.
            pool = await self._opened()
            async with pool.connection() as ours:
                with dropped_if_read_only(ours), watch.within(ours, 2 * self._settings.call_timeout):
                    await acopy_on(ours, self._calls, bulk)
        except Lost as error:
            refuse_pool_timeout(error, self._openers[CALLS])
            await self._forget_dead()
            await self._run(self._calls.jobs.enqueue_many(bulk.jobs(), "existing", fresh=False), None)
        except psycopg.Error as error:
            raise connect.explain(error, self._settings) from error

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection to a handler; wait until one is free."""
        pool = await self._opened(LOANS)
        async with pool.connection(timeout=_LONGEST_LOAN) as conn:
            yield conn

    async def begin(self, stack: AsyncExitStack) -> psycopg.AsyncConnection[Any]:
        """Begin a transaction for a handler on a lent connection, and let the stack end it. While there is no primary,
        wait: nothing has happened yet."""
        patience = hosts.Patience(_LONGEST_LOAN)
        while True:
            try:
                async with AsyncExitStack() as opening:
                    pool = await self._opened(LOANS, patience.left)
                    conn: psycopg.AsyncConnection[Any] = await opening.enter_async_context(
                        pool.connection(timeout=patience.left)
                    )
                    opening.enter_context(dropped_if_read_only(conn))
                    await opening.enter_async_context(conn.transaction())
                    cursor = await conn.execute(BEGIN)
                    check_writable(await cursor.fetchone())
                    stack.push_async_exit(opening.pop_all())
                    return conn
            except Lost as error:
                await asyncio.sleep(pause_before_begin(error, patience))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Open a READ COMMITTED transaction for several calls, whatever the database's default."""
        try:
            async with self.lent() as conn:
                await conn.set_isolation_level(READ_COMMITTED)
                try:
                    async with conn.transaction():
                        yield conn
                finally:
                    if not conn.closed:
                        await conn.set_isolation_level(None)
        except Lost as error:
            raise explain_failure(error, self._openers[LOANS]) from error

    async def run_together(self, parts: Sequence[Call[Any] | Bulk]) -> None:
        """Run calls and copy jobs in one transaction; an error, also of a call's `read`, rolls all back."""
        async with self.transaction() as conn:
            for part in parts:
                if isinstance(part, Bulk):
                    await acopy_on(conn, self._calls, part)
                else:
                    await arun_on(conn, part)

    async def _forget_dead(self, purpose: str = CALLS) -> None:
        """Check all idle connections: after one is lost the rest may be dead, and each would cost a try."""
        if (pool := self._existing(purpose)) is not None:
            await pool.check()

    async def _check(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Check a connection; if it is dead, check all, since psycopg_pool doubles its wait for each dead one."""
        try:
            await AsyncConnectionPool.check_connection(conn)
        except Lost:
            await self._forget_dead(LOANS)
            raise

    def _make(self, purpose: str, conninfo: str) -> AsyncConnectionPool[Any]:
        return AsyncConnectionPool(
            conninfo,
            open=False,
            check=self._check if purpose == LOANS else None,
            reconnect_failed=_reconnect,
            connection_class=AsyncConnection,
            **pool_options(self._openers[purpose]),
        )


def _size_of_job(call: Call[Any]) -> int:
    return 0 if call.job is None else len(call.job.payload)


async def _reconnect(pool: AsyncConnectionPool[Any]) -> None:
    """Reconnect while calls wait: a pool that gave up would not notice that the server is back."""
    if pool.get_stats().get("requests_waiting"):
        await pool.check()
