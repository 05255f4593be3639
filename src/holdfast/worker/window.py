"""A worker's counts per time window: a log line, and a row of `ticks`.

A window opens with the first activity after an idle time, and the next opens where it ends. A window without activity
is not stored, so an idle worker runs no queries for it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.model.tick import Counts
from holdfast.store.wire.session import Session
from holdfast.store.workers import WorkerCalls
from holdfast.telemetry import logs
from holdfast.worker.finish import Failures

if TYPE_CHECKING:
    from holdfast.worker.loop import Worker

log = logs.get("worker")
LOGGED_EVERY = 10.0  # seconds, where no rows are written
MOST_TENANTS = 100  # in one row; the rest is counted together
OTHERS = "(others)"


class Windows:
    """One worker's windows."""

    def __init__(self, worker: Worker, session: Session, *, stored: bool) -> None:
        self._worker = worker
        self._session = session
        self.calls = WorkerCalls(worker.settings.schema)
        self._queues = worker.settings.queue_list
        self._stored = stored and worker.settings.window > 0
        # A tick has one line, at its end.
        self._length = math.inf if worker.line == "tick" else worker.settings.window or LOGGED_EVERY
        self.open = False
        self.depth: int | None = None
        self.since = self._look_at = time.monotonic()
        self._last = Counts()

    async def look(self) -> None:
        """Open a window when the counts have changed, and end it when its time is over."""
        now, counts = time.monotonic(), self._worker.counts
        if not self.open:
            if counts == self._last:
                self.since = now
                return
            self.open, self._look_at = True, self.since + self._length
            await self._measure()
        elif now >= self._look_at:
            self._look_at = now + self._length
            await self._end(counts)

    async def close(self) -> None:
        """End the last window when the worker stops."""
        if (counts := self._worker.counts) != self._last:
            await self._end(counts)

    async def _measure(self) -> None:
        if self._stored:
            try:
                self.depth = await self._session.run(self.calls.count_waiting(self._queues))
            except HoldfastError:
                self.depth = None  # for display only: not retried

    async def _end(self, counts: Counts) -> None:
        done, now = counts.since(self._last), time.monotonic()
        if not any(done):
            self.open, self.since = False, now
            return
        tenants, self._worker.claimer.tenants = self._worker.claimer.tenants, Counter()
        if self._stored and not await self._store(done, tenants, now - self.since):
            self._worker.claimer.tenants.update(tenants)  # the window continues until it can be stored
            return
        self._log(done, now - self.since)
        self.since, self._last = now, counts

    async def _store(self, done: Counts, tenants: Counter[str | None], seconds: float) -> bool:
        call = self.calls.record_tick(
            self._worker.id, self._queues, seconds, done, largest(tenants), "window", self.depth
        )
        try:
            _, depth = await self._session.run(call)
        except HoldfastError as error:
            logs.event(log, logging.WARNING, "window not stored", worker=self._worker.id, error=str(error))
            return False
        self.depth = depth
        return True

    def _log(self, done: Counts, seconds: float) -> None:
        worker = self._worker
        failures, worker.finisher.failures = worker.finisher.failures, Failures()
        logs.event(
            log,
            logging.INFO,
            worker.line,
            worker=worker.id,
            seconds=round(seconds, 1),
            batch_claimed_count=done.claimed,
            success_count=done.succeeded,
            fail_count=done.failed,
            skipped_throttle=done.throttled,
            lock_contention_count=done.contention,
            stale_count=worker.finisher.stale,
            running=len(worker.buffer.running),
            **failures.top(),
        )


def largest(tenants: Counter[str | None]) -> dict[str, int]:
    """Return the jobs of each tenant, '' for none; beyond MOST_TENANTS only the largest, and the sum of the rest."""
    counts = {name or "": jobs for name, jobs in tenants.most_common(MOST_TENANTS)}
    if len(tenants) > MOST_TENANTS:
        counts[OTHERS] = counts.get(OTHERS, 0) + tenants.total() - sum(counts.values())
    return counts
