"""Connection pools of the client: one for sync callers, and one for each event loop of async callers.

Each has a second pool, whose connections are lent to handlers for their own transactions. Both run the same `Call`
values. A call whose reply was lost is repeated in its safe form: the client generates the ids, so an enqueue that did
commit is found and not repeated. While the primary is away or changes, calls wait (repeat.py).
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import random
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast.settings import Settings
from holdfast.store.bulk import Bulk
from holdfast.store.call import Call, JobDueCallback
from holdfast.store.calls import Calls
from holdfast.store.plan import find_version
from holdfast.store.wire import borrowed, connect, hosts
from holdfast.store.wire.deadline import watch
from holdfast.store.wire.opener import READ_COMMITTED, AsyncConnection, Connection, Opener, transaction_for
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

T = TypeVar("T")
log = logging.getLogger("holdfast.pools")
_RECONNECT = 0.4  # seconds, jittered, after which a pool that cannot connect tries afresh
_LONGEST_LOAN = 300.0  # seconds a handler waits for a free connection
# Two pools, because handlers that enqueue while they hold a lent connection would deadlock on one. Lent connections
# are checked first, because a handler's transaction is not repeated here when its connection is dead.
CALLS, LOANS = "client", "transaction"
POOL = "holdfast"


class SyncPool:
    """Runs calls for threads. `on_job_due` is called for jobs that a call made due."""

    def __init__(self, settings: Settings, on_job_due: JobDueCallback | None = None) -> None:
        self._settings = settings
        self._on_job_due = on_job_due
        self._calls = Calls(settings.schema)
        self._openers = _openers(settings)
        self._locks = {CALLS: threading.Lock(), LOANS: threading.Lock()}  # a handler may wait far longer than a call
        self._pools: dict[str, ConnectionPool[Any]] = {}

    def run(self, call: Call[T], conn: Any = None) -> T:
        """Run one call, and repeat it in its safe form after a lost connection; with `conn`, run it there once."""
        result = self._run(call, conn)
        if self._on_job_due is not None and call.due is not None and (job := call.due(result)) is not None:
            self._on_job_due(job, committed=conn is None)
        return result

    def _run(self, call: Call[T], conn: Any) -> T:
        if conn is not None:
            with callers(self._settings):
                return borrowed.run(conn, call)
        repeats = Repeats(self._openers[CALLS])
        while True:
            try:
                with (
                    self._opened().connection(timeout=repeats.patience.left) as ours,
                    dropped_if_read_only(ours),
                    watch.within(ours, self._settings.call_timeout),
                    transaction_for(ours),
                ):
                    return run_on(ours, call)
            except (*Lost, psycopg.Error) as error:
                call, pause = repeats.next(call, error)
                self._forget_dead()
                time.sleep(pause)

    def copy(self, bulk: Bulk, conn: Any = None) -> None:
        """Copy plain jobs in one transaction, or in the caller's; use enqueue_many() where COPY is not available."""
        self._copy(bulk, conn)
        if self._on_job_due is not None and bulk.ids:
            self._on_job_due(bulk.ids[-1], committed=conn is None)

    def _copy(self, bulk: Bulk, conn: Any) -> None:
        if conn is not None and not isinstance(conn, psycopg.Connection):
            self._run(self._calls.jobs.enqueue_many(bulk.jobs(), "existing"), conn)
            return
        if conn is not None:
            with callers(self._settings):
                copy_on(conn, self._calls, bulk)
            return
        try:
            # statement_timeout covers the COPY alone; the deadline covers the commit as well.
            with (
                self._opened().connection() as ours,
                dropped_if_read_only(ours),
                watch.within(ours, 2 * self._settings.call_timeout),
            ):
                copy_on(ours, self._calls, bulk)
        except Lost as error:
            refuse_pool_timeout(error, self._openers[CALLS])
            self._forget_dead()
            self._run(self._calls.jobs.enqueue_many(bulk.jobs(), "existing", fresh=False), None)
        except psycopg.Error as error:
            raise connect.explain(error, self._settings) from error

    @contextmanager
    def lent(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection to a handler; wait until one is free."""
        with self._opened(LOANS).connection(timeout=_LONGEST_LOAN) as conn:
            yield conn

    def begin(self, stack: ExitStack) -> psycopg.Connection[Any]:
        """Begin a transaction for a handler on a lent connection, and let the stack end it. While there is no primary,
        wait: nothing has happened yet."""
        patience = hosts.Patience(_LONGEST_LOAN)
        while True:
            try:
                with ExitStack() as opening:
                    conn: psycopg.Connection[Any] = opening.enter_context(
                        self._opened(LOANS, patience.left).connection(timeout=patience.left)
                    )
                    opening.enter_context(dropped_if_read_only(conn))
                    opening.enter_context(conn.transaction())
                    check_writable(conn.execute(BEGIN).fetchone())
                    stack.push(opening.pop_all())
                    return conn
            except Lost as error:
                time.sleep(pause_before_begin(error, patience))

    def _forget_dead(self, purpose: str = CALLS) -> None:
        """Check all idle connections: after one is lost the rest may be dead, and each would cost a try."""
        if (pool := self._pools.get(purpose)) is not None:
            pool.check()

    def _check(self, conn: psycopg.Connection[Any]) -> None:
        """Check a connection; if it is dead, check all, since psycopg_pool doubles its wait for each dead one."""
        try:
            ConnectionPool.check_connection(conn)
        except Lost:
            self._forget_dead(LOANS)
            raise

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()

    def _opened(self, purpose: str = CALLS, patience: float | None = None) -> ConnectionPool[Any]:
        ends = time.monotonic() + (self._settings.connect_timeout if patience is None else patience)
        with self._locks[purpose]:
            if (pool := self._pools.get(purpose)) is None:
                check = self._check if purpose == LOANS else None
                pool = self._pools[purpose] = ConnectionPool(
                    connect_once(self._settings, purpose, ends - time.monotonic()),
                    open=True,
                    check=check,
                    reconnect_failed=_try_again,
                    connection_class=Connection,
                    **_pool_options(self._openers[purpose]),
                )
                atexit.register(_close_quietly, weakref.ref(self))
            return pool


class AsyncPool:
    """Runs calls for coroutines, with one pool for each event loop. `on_job_due` as in SyncPool."""

    def __init__(self, settings: Settings, on_job_due: JobDueCallback | None = None) -> None:
        self._settings = settings
        self._on_job_due = on_job_due
        self._calls = Calls(settings.schema)
        self._openers = _openers(settings)
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, AsyncConnectionPool[Any]]] = (
            weakref.WeakKeyDictionary()
        )

    async def run(self, call: Call[T], conn: Any = None) -> T:
        """Run one call, and repeat it in its safe form after a lost connection; with `conn`, run it there once."""
        result = await self._run(call, conn)
        if self._on_job_due is not None and call.due is not None and (job := call.due(result)) is not None:
            self._on_job_due(job, committed=conn is None)
        return result

    async def _run(self, call: Call[T], conn: Any) -> T:
        if conn is not None:
            with callers(self._settings):
                return await borrowed.arun(conn, call)
        repeats = Repeats(self._openers[CALLS])
        while True:
            try:
                async with (await self._opened()).connection(timeout=repeats.patience.left) as ours:
                    with dropped_if_read_only(ours), watch.within(ours, self._settings.call_timeout):
                        async with transaction_for(ours):
                            return await arun_on(ours, call)
            except (*Lost, psycopg.Error) as error:
                call, pause = repeats.next(call, error)
                await self._forget_dead()
                await asyncio.sleep(pause)

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
            with callers(self._settings):
                await acopy_on(conn, self._calls, bulk)
            return
        try:
            async with (await self._opened()).connection() as ours:
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
        async with (await self._opened(LOANS)).connection(timeout=_LONGEST_LOAN) as conn:
            yield conn

    async def begin(self, stack: AsyncExitStack) -> psycopg.AsyncConnection[Any]:
        """Begin a transaction for a handler, as SyncPool does."""
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
                    check_writable(await (await conn.execute(BEGIN)).fetchone())
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

    async def _forget_dead(self, purpose: str = CALLS) -> None:
        """Check all idle connections: after one is lost the rest may be dead, and each would cost a try."""
        if (pool := self._pools.get(asyncio.get_running_loop(), {}).get(purpose)) is not None:
            await pool.check()

    async def _check(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Check a connection; if it is dead, check all, since psycopg_pool doubles its wait for each dead one."""
        try:
            await AsyncConnectionPool.check_connection(conn)
        except Lost:
            await self._forget_dead(LOANS)
            raise

    async def close(self) -> None:
        """Close this event loop's connections."""
        for pool in self._pools.pop(asyncio.get_running_loop(), {}).values():
            await pool.close()

    async def _opened(self, purpose: str = CALLS, patience: float | None = None) -> AsyncConnectionPool[Any]:
        seconds = self._settings.connect_timeout if patience is None else patience
        pools = self._pools.setdefault(asyncio.get_running_loop(), {})
        if purpose not in pools:
            info = await asyncio.to_thread(connect_once, self._settings, purpose, seconds)
            if purpose not in pools:  # another coroutine may have been faster
                check = self._check if purpose == LOANS else None
                pools[purpose] = AsyncConnectionPool(
                    info,
                    open=False,
                    check=check,
                    reconnect_failed=_atry_again,
                    connection_class=AsyncConnection,
                    **_pool_options(self._openers[purpose]),
                )
                await pools[purpose].open()
        return pools[purpose]


def _openers(settings: Settings) -> dict[str, Opener]:
    return {CALLS: Opener(settings, CALLS), LOANS: Opener(settings, LOANS, lent=True)}


def _pool_options(opener: Opener) -> dict[str, Any]:
    settings = opener.settings
    logging.getLogger("psycopg.pool").addFilter(_not_ours)  # adding the same filter again has no effect
    return {
        "kwargs": opener.kwargs(),
        "min_size": 0,
        "max_size": settings.pool_size,
        "timeout": settings.connect_timeout,
        "name": POOL,
        # The pool doubles its backoff of a second while the server is away; starting over keeps it short.
        "reconnect_timeout": _RECONNECT * random.uniform(0.5, 1.5),
    }


def _not_ours(record: logging.LogRecord) -> bool:
    """Return whether a log record is of another pool. Our pool's failures reach callers as errors."""
    args = record.args if isinstance(record.args, tuple) else ()
    ours = any(each == POOL or isinstance(each, Connection | AsyncConnection) for each in args)
    if ours:
        log.debug(record.getMessage())
    return not ours


def _try_again(pool: ConnectionPool[Any]) -> None:
    """Reconnect while calls wait: a pool that gave up would not notice that the server is back."""
    if pool.get_stats().get("requests_waiting"):
        pool.check()


async def _atry_again(pool: AsyncConnectionPool[Any]) -> None:
    """Reconnect while calls wait, as above."""
    if pool.get_stats().get("requests_waiting"):
        await pool.check()


def connect_once(settings: Settings, name: str = CALLS, seconds: float = 0.0) -> str:
    """Return the conninfo, after connecting once: a wrong address, server or schema is reported at once. Where the
    server says that it starts, or that the primary is elsewhere, wait for that long; a handler's worker has been
    connected before, so its handlers wait for any server."""
    opener = Opener(settings, name, lent=name == LOANS)
    info, patience = opener.conninfo(), hosts.Patience(seconds)
    while True:
        try:
            with Connection.connect(info, **opener.kwargs()) as conn:
                connect.check_server(conn.info.server_version)
                found = find_version(lambda sql: conn.execute(sql.encode()).fetchall(), settings.schema)
                connect.check_schema(found, settings.schema, settings.database)
            return info
        except psycopg.Error as error:
            pause = patience.pause() if connect.may_change(info, error, name == LOANS) else None
            if pause is None:
                raise connect.explain(error, settings) from error
            time.sleep(pause)


@contextmanager
def callers(settings: Settings) -> Iterator[None]:
    """Translate the errors of a block that uses the caller's connection."""
    try:
        yield
    except Exception as error:  # the connection may be of any supported library
        explained = connect.explain_callers(error, settings)
        if explained is error:
            raise
        raise explained from error


def run_on(conn: Any, call: Call[T]) -> T:
    """Run a call on a psycopg connection, in its current transaction."""
    return call.read(borrowed.on_psycopg(conn, call.sql, call.params, call.prepare))


async def arun_on(conn: Any, call: Call[T]) -> T:
    """Run a call on an async psycopg connection, in its current transaction."""
    return call.read(await borrowed.on_psycopg_async(conn, call.sql, call.params, call.prepare))


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


async def acopy_on(conn: Any, calls: Calls, bulk: Bulk) -> None:
    """Copy jobs on an async connection; the commit wakes their queue's sleepers."""
    async with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        if bulk.may_have_lanes:
            await arun_on(conn, calls.jobs.begin_bulk())
        async with cursor.copy(calls.jobs.copy_sql) as copy:
            for block in bulk.blocks():
                await copy.write(block)
        if bulk.like.batch is not None:
            await arun_on(conn, calls.batches.add(bulk.like.batch, len(bulk.ids)))
        await arun_on(conn, _after_copy(calls, bulk))


def _after_copy(calls: Calls, bulk: Bulk) -> Call[None]:
    if bulk.may_have_lanes:
        return calls.jobs.announce_lanes(bulk.like, bulk.lanes.values(), len(bulk.ids))
    return calls.jobs.wake(bulk.like.queue, len(bulk.ids))


def _close_quietly(pool: weakref.ref[SyncPool]) -> None:
    if (alive := pool()) is not None:
        alive.close()
