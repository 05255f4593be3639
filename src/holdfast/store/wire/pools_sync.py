# Generated from pools_async.py by tools/async_to_sync.py. Change that file, and run `make sync`.
"""Connection pools of the client, for threads.

Each has a second pool, whose connections are lent to handlers for their own transactions. Both sides run the same
`Call` values. A call whose reply was lost is repeated in its safe form: the client generates the ids, so an enqueue
that did commit is found and not repeated. While the primary is away or changes, calls wait (repeat.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg_pool import ConnectionPool

from holdfast.settings import Settings
from holdfast.store.bulk import Bulk
from holdfast.store.call import Call, JobDueCallback
from holdfast.store.calls import Calls
from holdfast.store.wire import borrowed, connect, hosts
from holdfast.store.wire.coalesce import ThreadCoalescer
from holdfast.store.wire.connection_sync import Connection
from holdfast.store.wire.deadline import watch
from holdfast.store.wire.open_pools import ThreadPools, pool_options
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
from holdfast.store.wire.statements_sync import copy_on, run_on

T = TypeVar("T")
_LONGEST_LOAN = 300.0  # seconds a handler waits for a free connection


class SyncPool(ThreadPools):
    """Runs calls for threads. `on_job_due` is called for jobs that a call made due."""

    def __init__(self, settings: Settings, on_job_due: JobDueCallback | None = None) -> None:
        super().__init__(settings)
        self._on_job_due = on_job_due
        self._calls = Calls(settings.schema)
        self._coalescer: ThreadCoalescer[Call[Any], Any] = ThreadCoalescer(self._run_joined, size=_size_of_job)

    def run(self, call: Call[T], conn: Any = None) -> T:
        """Run one call, and repeat it in its safe form after a lost connection; with `conn`, run it there once."""
        if conn is None and call.join is not None:
            result: T = self._coalescer.ask(call)
        else:
            result = self._run(call, conn)
        if self._on_job_due is not None and call.due is not None and (job := call.due(result)) is not None:
            self._on_job_due(job, committed=conn is None)
        return result

    def _run(self, call: Call[T], conn: Any) -> T:
        if conn is not None:
            with borrowed.explained(self._settings):
                return borrowed.run(conn, call)
        repeats = Repeats(self._openers[CALLS])
        while True:
            try:
                return self._run_once(call, repeats.patience.left)
            except (*Lost, psycopg.Error) as error:
                call, pause = repeats.next(call, error)
                self._forget_dead()
                time.sleep(pause)

    def _run_joined(self, calls: list[Call[Any]]) -> list[Any]:
        """Run calls that may be joined; return the result of each."""
        first = calls[0]
        if len(calls) == 1 or first.join is None:
            return [self._run(first, None)]
        return self._run(first.join([each.job for each in calls if each.job is not None]), None)

    def _run_once(self, call: Call[T], patience: float) -> T:
        pool = self._opened()
        conn = pool.getconn(timeout=patience)  # pool.connection() would also commit, of which there is no need
        try:
            with watch.within(conn, self._settings.call_timeout):
                with transaction_for(conn):
                    return run_on(conn, call)
        except psycopg.errors.ReadOnlySqlTransaction:
            conn.pgconn.finish()  # a standby's: the pool must not use it again
            raise
        finally:
            pool.putconn(conn)

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
            with borrowed.explained(self._settings):
                copy_on(conn, self._calls, bulk)
            return
        try:
            # statement_timeout covers the COPY alone; the deadline covers the commit as well.
            pool = self._opened()
            with pool.connection() as ours:
                with dropped_if_read_only(ours), watch.within(ours, 2 * self._settings.call_timeout):
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
        pool = self._opened(LOANS)
        with pool.connection(timeout=_LONGEST_LOAN) as conn:
            yield conn

    def begin(self, stack: ExitStack) -> psycopg.Connection[Any]:
        """Begin a transaction for a handler on a lent connection, and let the stack end it. While there is no primary,
        wait: nothing has happened yet."""
        patience = hosts.Patience(_LONGEST_LOAN)
        while True:
            try:
                with ExitStack() as opening:
                    pool = self._opened(LOANS, patience.left)
                    conn: psycopg.Connection[Any] = opening.enter_context(pool.connection(timeout=patience.left))
                    opening.enter_context(dropped_if_read_only(conn))
                    opening.enter_context(conn.transaction())
                    cursor = conn.execute(BEGIN)
                    check_writable(cursor.fetchone())
                    stack.push(opening.pop_all())
                    return conn
            except Lost as error:
                time.sleep(pause_before_begin(error, patience))

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a READ COMMITTED transaction for several calls, whatever the database's default."""
        try:
            with self.lent() as conn:
                conn.set_isolation_level(READ_COMMITTED)
                try:
                    with conn.transaction():
                        yield conn
                finally:
                    if not conn.closed:
                        conn.set_isolation_level(None)
        except Lost as error:
            raise explain_failure(error, self._openers[LOANS]) from error

    def run_together(self, parts: Sequence[Call[Any] | Bulk]) -> None:
        """Run calls and copy jobs in one transaction; an error, also of a call's `read`, rolls all back."""
        with self.transaction() as conn:
            for part in parts:
                if isinstance(part, Bulk):
                    copy_on(conn, self._calls, part)
                else:
                    run_on(conn, part)

    def _forget_dead(self, purpose: str = CALLS) -> None:
        """Check all idle connections: after one is lost the rest may be dead, and each would cost a try."""
        if (pool := self._existing(purpose)) is not None:
            pool.check()

    def _check(self, conn: psycopg.Connection[Any]) -> None:
        """Check a connection; if it is dead, check all, since psycopg_pool doubles its wait for each dead one."""
        try:
            ConnectionPool.check_connection(conn)
        except Lost:
            self._forget_dead(LOANS)
            raise

    def _make(self, purpose: str, conninfo: str) -> ConnectionPool[Any]:
        return ConnectionPool(
            conninfo,
            open=False,
            check=self._check if purpose == LOANS else None,
            reconnect_failed=_reconnect,
            connection_class=Connection,
            **pool_options(self._openers[purpose]),
        )


def _size_of_job(call: Call[Any]) -> int:
    return 0 if call.job is None else len(call.job.payload)


def _reconnect(pool: ConnectionPool[Any]) -> None:
    """Reconnect while calls wait: a pool that gave up would not notice that the server is back."""
    if pool.get_stats().get("requests_waiting"):
        pool.check()
