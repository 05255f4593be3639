"""The database of an application under test: pools with a callback after each enqueue, for inline mode."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import msgspec

from holdfast.client.database import Database
from holdfast.client.operation import Steps
from holdfast.client.polling import Polling
from holdfast.errors import UsageError
from holdfast.model.job import BatchInfo, JobInfo
from holdfast.settings import Settings
from holdfast.store.bulk import Bulk
from holdfast.store.call import Call, Rows
from holdfast.store.wire.pools_async import AsyncPool
from holdfast.store.wire.pools_sync import SyncPool

T = TypeVar("T")
_MAKES_JOBS = re.compile(
    r"INSERT INTO \w+\.live|\.(enqueue(_many)?|emit|(close|cancel)_batch|retry_dead|run_schedule)\("
)


class KitSyncPool(SyncPool):
    """Connections for threads."""

    after_enqueue: Callable[[], None] | None = None

    def run(self, call: Call[T], conn: Any = None) -> T:
        __tracebackhide__ = True
        result = super().run(call, conn)
        if conn is None and self.after_enqueue is not None and _MAKES_JOBS.search(call.sql):
            self.after_enqueue()
        return result

    def copy(self, bulk: Bulk, conn: Any = None) -> None:
        __tracebackhide__ = True
        super().copy(bulk, conn)
        if conn is None and self.after_enqueue is not None:
            self.after_enqueue()


class KitAsyncPool(AsyncPool):
    """Connections for coroutines."""

    after_enqueue: Callable[[], Awaitable[None]] | None = None

    async def run(self, call: Call[T], conn: Any = None) -> T:
        __tracebackhide__ = True
        result = await super().run(call, conn)
        if conn is None and self.after_enqueue is not None and _MAKES_JOBS.search(call.sql):
            await self.after_enqueue()
        return result

    async def copy(self, bulk: Bulk, conn: Any = None) -> None:
        __tracebackhide__ = True
        await super().copy(bulk, conn)
        if conn is None and self.after_enqueue is not None:
            await self.after_enqueue()

    def close_idle_loops(self) -> None:
        """Close the connections of event loops that are not running; closed loops have none."""
        for loop in list(self._pools):
            if not loop.is_closed() and not loop.is_running() and not on_loop():
                with suppress(RuntimeError):  # another thread may close the loop
                    loop.run_until_complete(self.close())


class KitDatabase(Database):
    """The database of a bound application."""

    sync_pool: KitSyncPool
    async_pool: KitAsyncPool

    def __init__(self, settings: Settings, sync_pool: KitSyncPool) -> None:
        super().__init__(settings)
        self.sync_pool = sync_pool
        self.async_pool = KitAsyncPool(settings)


class KitPolling(Polling):
    """Polls, and calls `refuse` with a job that is waited for without a timeout and has not ended."""

    def __init__(self, refuse: Callable[[str, JobInfo | None], None]) -> None:
        self._refuse = refuse

    def until(self, poll: Call[T | None], ended: Callable[[T], bool], name: str, timeout: float | None) -> Steps[T]:
        given = poll

        def read(rows: Rows) -> T | None:
            found = given.read(rows)
            if not isinstance(found, BatchInfo) and not (found is not None and ended(found)):
                self._refuse(name, cast("JobInfo | None", found))
            return found

        return super().until(
            poll if timeout is not None else msgspec.structs.replace(poll, read=read), ended, name, timeout
        )


class ForbiddenDatabase(Database):
    """Replaces the database in tests that do not use the kit."""

    def __init__(self, settings: Settings, target: str) -> None:
        super().__init__(settings)
        self._pool: Any = ForbiddenPool(target)

    @property
    def sync_pool(self) -> SyncPool:
        pool: SyncPool = self._pool
        return pool

    @property
    def async_pool(self) -> AsyncPool:
        pool: AsyncPool = self._pool
        return pool


class ForbiddenPool:
    """Refuses each call, in threads and in coroutines: nothing is awaited before the error."""

    def __init__(self, target: str) -> None:
        self._target = target

    def run(self, *_: Any) -> Any:
        raise UsageError(
            f"a test uses the database of {self._target} without the test kit; add the fixture holdfast_kit to the test"
        )

    copy = run


def on_loop() -> bool:
    """Return whether this thread runs an event loop now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
