"""Poll which jobs are to be canceled. A notification is only a hint, because any database client may send one; it may
also be lost, or there is no listener."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Set

from holdfast.errors import HoldfastError
from holdfast.model.clock import CLOCK, Clock
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs
from holdfast.worker.prefetch import PrefetchBuffer

log = logs.get("worker")
POLL_INTERVAL = 2.0  # seconds between polls while jobs run


class CancelPoll:
    """Reads requests to cancel running jobs, and passes their ids on."""

    def __init__(
        self,
        session: Session,
        calls: Calls,
        buffer: PrefetchBuffer,
        on_cancel: Callable[[Set[str]], None],
        clock: Clock = CLOCK,
    ) -> None:
        self._session = session
        self._calls = calls
        self._buffer = buffer
        self._on_cancel = on_cancel
        self._clock = clock
        self._requested = asyncio.Event()
        self._due_at = clock.monotonic() + POLL_INTERVAL
        self._warnings = logs.RateLimitedLog(log, clock=clock)

    def poll_soon(self) -> None:
        """Poll at once."""
        self._requested.set()

    async def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until a poll is requested."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._requested.wait()

    async def look(self) -> None:
        """Poll if it is due or requested, and jobs run."""
        now = self._clock.monotonic()
        if not (self._requested.is_set() or now >= self._due_at):
            return
        self._requested.clear()
        self._due_at = now + POLL_INTERVAL
        if self._buffer.running:
            await self._look()

    async def _look(self) -> None:
        try:
            ids = await self._session.run(self._calls.jobs.wanted_cancels(list(self._buffer.leases)))
        except HoldfastError as error:
            self._warnings.failed("cancel requests not read", error)
            return
        if ids:
            self._on_cancel(set(ids))
