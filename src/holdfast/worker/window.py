"""A worker's counts per time window: a log line, and a row of `ticks`.

A window opens with the first activity after an idle time, and the next opens where it ends. A window without activity
is not stored, so an idle worker runs no queries for it.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping

from holdfast.errors import HoldfastError
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.tick import Counts
from holdfast.settings import Settings
from holdfast.store.wire.session import Session
from holdfast.store.workers import WorkerCalls
from holdfast.telemetry import logs
from holdfast.worker.attempt_log import FailureCounts
from holdfast.worker.finish import Finisher
from holdfast.worker.intake import ClaimCounts
from holdfast.worker.prefetch import PrefetchBuffer

log = logs.get("worker")
LOGGED_EVERY = 10.0  # seconds, where no rows are written
MOST_TENANTS = 100  # in one row; the rest is counted together
OTHERS = "(others)"


class Activity:
    """What a worker has done since it started."""

    def __init__(self, slots: int, claims: ClaimCounts, buffer: PrefetchBuffer, finisher: Finisher) -> None:
        self._slots = slots
        self._claims = claims
        self._buffer = buffer
        self._finisher = finisher

    @property
    def counts(self) -> Counts:
        """Return the counts since the worker started."""
        claims, finisher = self._claims, self._finisher
        return Counts(
            claims.claimed,
            self._buffer.started,
            finisher.succeeded,
            finisher.failed,
            claims.throttled,
            claims.contention,
        )

    @property
    def stale(self) -> int:
        """Return the number of results refused because their lease was lost."""
        return self._finisher.stale

    @property
    def running(self) -> int:
        """Return the number of running handlers."""
        return len(self._buffer.running)

    def take_tenants(self) -> Counter[str | None]:
        """Return the jobs claimed of each tenant, and count the next from zero."""
        tenants, self._claims.tenants = self._claims.tenants, Counter()
        return tenants

    def put_back(self, tenants: Counter[str | None]) -> None:
        """Count these tenants' jobs in the current window."""
        self._claims.tenants.update(tenants)

    def take_failures(self) -> FailureCounts:
        """Return the failures of the window that ends."""
        return self._finisher.take_failures()

    def counters(self) -> dict[str, float]:
        """Return the counters of the metrics port."""
        counts = self.counts
        return {
            "claims": self._claims.claims,
            "jobs_claimed": counts.claimed,
            "jobs_throttled": counts.throttled,
            "lock_contentions": counts.contention,
            "results_refused": self.stale,
        }

    def gauges(self) -> dict[str, float]:
        """Return the gauges of the metrics port."""
        return {"jobs_running": self.running, "jobs_ready": len(self._buffer.ready), "worker_slots": self._slots}


class WindowRows:
    """The rows of `ticks` that a worker writes."""

    def __init__(self, worker: str, settings: Settings, session: Session) -> None:
        self._worker = worker
        self._queues = settings.queue_list
        self._session = session
        self.calls = WorkerCalls(settings.schema)

    async def depth(self) -> int | None:
        """Return how many jobs wait; for display only, so an error is not retried."""
        try:
            return await self._session.run(self.calls.count_waiting(self._queues))
        except HoldfastError:
            return None

    async def record(
        self, seconds: float, done: Counts, tenants: Mapping[str, int], kind: str, depth: int | None
    ) -> tuple[str, int]:
        """Store a row; return its id and how many jobs wait now."""
        call = self.calls.record_tick(self._worker, self._queues, seconds, done, tenants, kind, depth)
        return await self._session.run(call)

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()


class Windows:
    """One worker's windows. `line` is the log event of each."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        rows: WindowRows,
        activity: Activity,
        line: str = "window",
        clock: Clock = CLOCK,
    ) -> None:
        self._worker = worker
        self.rows = rows
        self.activity = activity
        self._line = line
        self._clock = clock
        self._stored = line == "window" and settings.window > 0
        # A tick has one line, at its end.
        self._length = settings.window or LOGGED_EVERY if line == "window" else math.inf
        self.open = False
        self.depth: int | None = None
        self.since = self._look_at = clock.monotonic()
        self._last = Counts()

    def start(self, *, stored: bool) -> None:
        """Begin the first window now."""
        self._stored = self._stored and stored
        self.since = self._clock.monotonic()

    async def look(self) -> None:
        """Open a window when the counts have changed, and end it when its time is over."""
        now, counts = self._clock.monotonic(), self.activity.counts
        if not self.open:
            if counts == self._last:
                self.since = now
                return
            self.open, self._look_at = True, self.since + self._length
            if self._stored:
                self.depth = await self.rows.depth()
        elif now >= self._look_at:
            self._look_at = now + self._length
            await self._end(counts)

    async def close(self) -> None:
        """End the last window when the worker stops."""
        if (counts := self.activity.counts) != self._last:
            await self._end(counts)
        await self.rows.close()

    async def _end(self, counts: Counts) -> None:
        done, now = counts.since(self._last), self._clock.monotonic()
        if not any(done):
            self.open, self.since = False, now
            return
        tenants = self.activity.take_tenants()
        if self._stored and not await self._store(done, tenants, now - self.since):
            self.activity.put_back(tenants)  # the window continues until it can be stored
            return
        self._log(done, now - self.since)
        self.since, self._last = now, counts

    async def _store(self, done: Counts, tenants: Counter[str | None], seconds: float) -> bool:
        try:
            _, self.depth = await self.rows.record(seconds, done, largest(tenants), "window", self.depth)
        except HoldfastError as error:
            logs.event(log, logging.WARNING, "window not stored", worker=self._worker, error=str(error))
            return False
        return True

    def _log(self, done: Counts, seconds: float) -> None:
        logs.event(
            log,
            logging.INFO,
            self._line,
            worker=self._worker,
            seconds=round(seconds, 1),
            batch_claimed_count=done.claimed,
            success_count=done.succeeded,
            fail_count=done.failed,
            skipped_throttle=done.throttled,
            lock_contention_count=done.contention,
            stale_count=self.activity.stale,
            running=self.activity.running,
            **self.activity.take_failures().top(),
        )


def largest(tenants: Counter[str | None]) -> dict[str, int]:
    """Return the jobs of each tenant, '' for none; beyond MOST_TENANTS only the largest, and the sum of the rest."""
    counts = {name or "": jobs for name, jobs in tenants.most_common(MOST_TENANTS)}
    if len(tenants) > MOST_TENANTS:
        counts[OTHERS] = counts.get(OTHERS, 0) + tenants.total() - sum(counts.values())
    return counts
