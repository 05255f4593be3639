"""The client's pools with a callback after each enqueue, which inline mode sets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.store.bulk import Bulk
from holdfast.store.call import Call
from holdfast.store.wire.pools import AsyncPool, SyncPool

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


class ForbiddenSyncPool:
    """Replaces the pool in tests that do not use the kit."""

    def __init__(self, target: str) -> None:
        self._target = target

    def run(self, *_: Any) -> Any:
        raise UsageError(
            f"a test uses the database of {self._target} without the test kit; add the fixture holdfast_kit to the test"
        )

    copy = run

    def close(self) -> None:
        """Do nothing."""


class ForbiddenAsyncPool(ForbiddenSyncPool):
    """ForbiddenSyncPool for coroutines."""

    async def close(self) -> None:  # type: ignore[override]
        """Do nothing."""


def on_loop() -> bool:
    """Return whether this thread runs an event loop now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
