"""A handler's own transaction, which also ends its job: the handler's rows and the job's success commit together.

It is fenced: just before the commit, finish() compares the job's token. If another worker owns the job by then,
everything is rolled back and LeaseLost is raised. So its writes happen exactly once, however often the job ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import LeaseLost, UsageError
from holdfast.store.call import Call
from holdfast.store.wire.pools_async import AsyncPool
from holdfast.store.wire.pools_sync import SyncPool
from holdfast.store.wire.statements_async import arun_on
from holdfast.store.wire.statements_sync import run_on

if TYPE_CHECKING:
    import psycopg

# Most seconds between finish() and the commit. Meanwhile the job's row is locked and cannot be reclaimed, so the server
# ends the transaction of a worker that was frozen or disconnected at this point.
COMMIT_WITHIN = 10.0
_PAUSE = 0.02  # seconds before the last call is repeated


class Transaction:
    """The result of ctx.transaction(), for `with` and for `async with`."""

    def __init__(
        self,
        sync_pool: SyncPool,
        async_pool: AsyncPool,
        finish: Callable[[], Call[list[str]]],
        settled: Callable[[], None],
        job: str,
        turn: threading.Lock,
        opened: Callable[[Any], None],
        check: Callable[[list[str]], bool] | None = None,
    ) -> None:
        self._sync_pool = sync_pool
        self._async_pool = async_pool
        self._finish = finish
        self._settled = settled
        self._job = job
        self._turn = turn
        self._opened = opened  # called with the connection when the transaction opens, and with None when it ends
        self._check = (
            check or self._check_lease
        )  # returns whether the last call succeeded, False to repeat it; raises if it was refused
        self._conn: Any = None

    def __enter__(self) -> psycopg.Connection[Any]:
        self._refuse_loop()
        with contextlib.ExitStack() as stack:
            self._take_turn(stack)
            self._conn = self._sync_pool.begin(stack)
            stack.callback(self._opened, None)
            self._opened(self._conn)
            self._stack = stack.pop_all()
        conn: psycopg.Connection[Any] = self._conn
        return conn

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        with self._stack:
            if error is not None:
                raise error
            while not self._check(run_on(self._conn, self._last_call())):
                time.sleep(_PAUSE)
        if error is None:  # and committed
            self._settled()
        return error is not None  # psycopg.Rollback: rolled back without an error

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        async with contextlib.AsyncExitStack() as stack:
            self._take_turn(stack)
            self._conn = await self._async_pool.begin(stack)
            stack.callback(self._opened, None)
            self._opened(self._conn)
            self._astack = stack.pop_all()
        conn: psycopg.AsyncConnection[Any] = self._conn
        return conn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        async with self._astack:
            if error is not None:
                raise error
            while not self._check(await arun_on(self._conn, self._last_call())):  # noqa: ASYNC110 - the database decides
                await asyncio.sleep(_PAUSE)
        if error is None:
            self._settled()
        return error is not None

    def _refuse_loop(self) -> None:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise UsageError(
                f"job {self._job} would block its worker's event loop while it waits for the database: "
                "write `async with ctx.transaction()` in an async handler"
            )

    def _take_turn(self, stack: contextlib.ExitStack | contextlib.AsyncExitStack) -> None:
        """Allow one transaction at a time: only one can end the job, and a second one's writes would be lost."""
        if self._conn is not None:
            raise UsageError(f"one ctx.transaction() is one transaction; job {self._job} has used this one")
        if not self._turn.acquire(blocking=False):
            raise UsageError(f"job {self._job} has a transaction open already; do all its work in that one")
        stack.callback(self._turn.release)

    def _last_call(self) -> Call[list[str]]:
        call = self._finish()
        limit = f"set_config('idle_in_transaction_session_timeout', '{int(COMMIT_WITHIN * 1000)}', true)"
        sql = f"WITH soon AS MATERIALIZED (SELECT {limit}) SELECT f.* FROM soon, ({call.sql}) f"
        return msgspec.structs.replace(call, sql=sql)

    def _check_lease(self, refused: list[str]) -> bool:
        if refused:
            raise LeaseLost(
                f"job {self._job} no longer belongs to this worker (its lease was lost, or the job has ended); "
                "everything in its transaction was rolled back"
            )
        return True
