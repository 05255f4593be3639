"""Connection pools of the client: one for sync callers, and one for each event loop of async callers.

Each has a second pool, whose connections are lent to handlers for their own transactions. Both run the same `Call`
values. A call whose reply was lost is repeated in its safe form: the client generates the ids, so an enqueue that did
commit is found and not repeated.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from holdfast.errors import DatabaseUnavailable
from holdfast.settings import Settings
from holdfast.store import migrate
from holdfast.store.bulk import Bulk
from holdfast.store.call import Call
from holdfast.store.calls import Calls
from holdfast.store.wire import borrowed, connect
from holdfast.store.wire.deadline import watch
from holdfast.store.wire.opener import READ_COMMITTED, AsyncConnection, Connection, Opener, transaction_for

T = TypeVar("T")
log = logging.getLogger("holdfast.pools")
_TRIES = 3
_WAIT_ERRORS = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable, PoolTimeout)
_LONGEST_LOAN = 300.0  # seconds a handler waits for a free connection
# Two pools, because handlers that enqueue while they hold a lent connection would deadlock on one. Lent connections
# are checked first, because a handler's transaction is not repeated here when its connection is dead.
CALLS, LOANS = "client", "transaction"
POOL = "holdfast"
Lost = (*connect.LOST, PoolTimeout)


class Tell(Protocol):
    """Callback for a job that may start. If not committed, the job is in the caller's open transaction."""

    def __call__(self, job_id: str, *, committed: bool) -> None: ...


class SyncPool:
    """Runs calls for threads. `tell` is called for jobs that a call made due."""

    def __init__(self, settings: Settings, tell: Tell | None = None) -> None:
        self._settings = settings
        self._tell = tell
        self._calls = Calls(settings.schema)
        self._openers = _openers(settings)
        self._lock = threading.Lock()
        self._pools: dict[str, ConnectionPool[Any]] = {}

    def run(self, call: Call[T], conn: Any = None) -> T:
        """Run one call, and repeat it in its safe form after a lost connection; with `conn`, run it there once."""
        result = self._run(call, conn)
        if self._tell is not None and call.due is not None and (job := call.due(result)) is not None:
            self._tell(job, committed=conn is None)
        return result

    def _run(self, call: Call[T], conn: Any) -> T:
        if conn is not None:
            with callers(self._settings):
                return borrowed.run(conn, call)
        for left in reversed(range(_TRIES)):
            try:
                with (
                    self._opened().connection() as ours,
                    watch.within(ours, self._settings.call_timeout),
                    transaction_for(ours),
                ):
                    return run_on(ours, call)
            except (*Lost, psycopg.Error) as error:
                call = _next(call, error, left, self._openers[CALLS])
                self._forget_dead()
                time.sleep(_pause(left))
        raise AssertionError("unreachable")

    def copy(self, bulk: Bulk, conn: Any = None) -> None:
        """Copy plain jobs in one transaction, or in the caller's; use enqueue_many() where COPY is not available."""
        self._copy(bulk, conn)
        if self._tell is not None and bulk.ids:
            self._tell(bulk.ids[-1], committed=conn is None)

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
            with self._opened().connection() as ours, watch.within(ours, 2 * self._settings.call_timeout):
                copy_on(ours, self._calls, bulk)
        except Lost:
            self._forget_dead()
            self._run(self._calls.jobs.enqueue_many(bulk.jobs(), "existing", fresh=False), None)
        except psycopg.Error as error:
            raise connect.explain(error, self._settings) from error

    @contextmanager
    def lent(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection to a handler; wait until one is free."""
        with self._opened(LOANS).connection(timeout=_LONGEST_LOAN) as conn:
            yield conn

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
        with self._lock:
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()

    def _opened(self, purpose: str = CALLS) -> ConnectionPool[Any]:
        with self._lock:
            if purpose not in self._pools:
                check = self._check if purpose == LOANS else None
                self._pools[purpose] = ConnectionPool(
                    first_look(self._settings, purpose),
                    open=True,
                    check=check,
                    reconnect_failed=_try_again,
                    connection_class=Connection,
                    **_pool_options(self._openers[purpose]),
                )
                atexit.register(_close_quietly, weakref.ref(self))
            return self._pools[purpose]


class AsyncPool:
    """Runs calls for coroutines, with one pool for each event loop. `tell` as in SyncPool."""

    def __init__(self, settings: Settings, tell: Tell | None = None) -> None:
        self._settings = settings
        self._tell = tell
        self._calls = Calls(settings.schema)
        self._openers = _openers(settings)
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, AsyncConnectionPool[Any]]] = (
            weakref.WeakKeyDictionary()
        )

    async def run(self, call: Call[T], conn: Any = None) -> T:
        """Run one call, and repeat it in its safe form after a lost connection; with `conn`, run it there once."""
        result = await self._run(call, conn)
        if self._tell is not None and call.due is not None and (job := call.due(result)) is not None:
            self._tell(job, committed=conn is None)
        return result

    async def _run(self, call: Call[T], conn: Any) -> T:
        if conn is not None:
            with callers(self._settings):
                return await borrowed.arun(conn, call)
        for left in reversed(range(_TRIES)):
            try:
                async with (await self._opened()).connection() as ours:
                    with watch.within(ours, self._settings.call_timeout):
                        async with transaction_for(ours):
                            return await arun_on(ours, call)
            except (*Lost, psycopg.Error) as error:
                call = _next(call, error, left, self._openers[CALLS])
                await self._forget_dead()
                await asyncio.sleep(_pause(left))
        raise AssertionError("unreachable")

    async def copy(self, bulk: Bulk, conn: Any = None) -> None:
        """Copy plain jobs in one transaction, or in the caller's; use enqueue_many() where COPY is not available."""
        await self._copy(bulk, conn)
        if self._tell is not None and bulk.ids:
            self._tell(bulk.ids[-1], committed=conn is None)

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
                with watch.within(ours, 2 * self._settings.call_timeout):
                    await acopy_on(ours, self._calls, bulk)
        except Lost:
            await self._forget_dead()
            await self._run(self._calls.jobs.enqueue_many(bulk.jobs(), "existing", fresh=False), None)
        except psycopg.Error as error:
            raise connect.explain(error, self._settings) from error

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection to a handler; wait until one is free."""
        async with (await self._opened(LOANS)).connection(timeout=_LONGEST_LOAN) as conn:
            yield conn

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
            raise _explain(error, self._openers[LOANS]) from error

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

    async def _opened(self, purpose: str = CALLS) -> AsyncConnectionPool[Any]:
        pools = self._pools.setdefault(asyncio.get_running_loop(), {})
        if purpose not in pools:
            info = await asyncio.to_thread(first_look, self._settings, purpose)
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
        # The pool doubles its backoff while the server is away; starting over keeps it short.
        "reconnect_timeout": settings.connect_timeout,
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


def first_look(settings: Settings, name: str = CALLS) -> str:
    """Return the conninfo, after connecting once: a wrong address, server or schema is reported at once."""
    opener = Opener(settings, name, lent=name == LOANS)
    info = opener.conninfo()
    try:
        with Connection.connect(info, **opener.kwargs()) as conn:
            connect.check_server(conn.info.server_version)
            found = migrate.found_version(conn, settings.schema)
            connect.check_schema(found, migrate.expected_version(), settings.schema, settings.database)
    except psycopg.Error as error:
        raise connect.explain(error, settings) from error
    return info


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


def _next(call: Call[T], error: Exception, left: int, opener: Opener) -> Call[T]:
    """Return what to run after a failure, the same call or its safe form, or raise. A call that timed out while it
    waited for a connection or a lock is not repeated."""
    if left and isinstance(error, connect.AGAIN):
        return call
    if left and isinstance(error, connect.LOST) and not isinstance(error, _WAIT_ERRORS):
        return call.repeat() if call.repeat else call
    raise _explain(error, opener) from error


def _explain(error: Exception, opener: Opener) -> Exception:
    """Return the error to raise; for a pool timeout, the reason why no connection could be opened."""
    if not isinstance(error, PoolTimeout):
        return connect.explain(error, opener.settings)
    if opener.failure is not None:
        return connect.explain(opener.failure, opener.settings, known_good=True)
    settings = opener.settings
    return DatabaseUnavailable(
        f"no connection was free for {settings.connect_timeout:g} s: all {settings.pool_size} of this process are in "
        "use; raise HOLDFAST_POOL_SIZE"
    )


def _pause(left: int) -> float:
    return 0.05 * (_TRIES - left)


def _close_quietly(pool: weakref.ref[SyncPool]) -> None:
    if (alive := pool()) is not None:
        alive.close()
