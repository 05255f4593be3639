"""Collect the outcomes of attempts, and send them to the database in groups.

Outcomes accumulate while a flush is running, so a busy worker writes many at a time and an idle one writes at once,
without timers. While the database is unavailable, a flush is repeated (send.py): nothing is lost, and leases are
renewed or expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from holdfast.errors import SchemaError
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.job import Job
from holdfast.model.outcome import SETTLED, Outcome, ending_of
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs
from holdfast.telemetry.metrics import Stats
from holdfast.worker.attempt_log import AttemptLogger, FailureCounts
from holdfast.worker.flush import FIRST_PAUSE, Deferrals, Flush
from holdfast.worker.link import Progress
from holdfast.worker.prefetch import PrefetchBuffer
from holdfast.worker.send import EndingBatches, OutcomeSender
from holdfast.worker.wakeup import Wakeup

log = logs.get("worker")
LARGEST = 1000
LONGEST_WAIT = 0.05  # seconds a claim waits for a flush


class Finisher:
    """Collects outcomes from the slots and flushes them. It wakes the claim loop when limits may have room or jobs may
    be due again."""

    def __init__(
        self,
        session: Session,
        calls: Calls,
        buffer: PrefetchBuffer,
        progress: Progress,
        wakeup: Wakeup,
        on_mismatch: Callable[[SchemaError], None],
        stats: Stats | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._next = Flush()
        self._full: list[Flush] = []
        self._something = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._buffer = buffer
        self.stats = stats
        self.succeeded = 0
        self._monotonic = clock.monotonic
        self._logs_each = log.isEnabledFor(logging.DEBUG)  # cached: this is the hot path
        self._log = AttemptLogger(clock)
        self._batches = EndingBatches(session, calls, clock)
        deferrals = Deferrals(buffer.leases)
        self._sender = OutcomeSender(session, calls, deferrals, progress, wakeup, self._put_back, on_mismatch, clock)

    @property
    def failed(self) -> int:
        """Return the number of failed attempts."""
        return self._log.failed

    @property
    def stale(self) -> int:
        """Return the number of outcomes refused because their lease was lost."""
        return self._sender.stale

    def take_failures(self) -> FailureCounts:
        """Return the failures of the window that ends."""
        return self._log.take_failures()

    def add(self, job: Job, outcome: Outcome | None) -> None:
        """Add the outcome of one attempt; drop it if the lease is known to be lost."""
        lease = job.lease
        if lease.lost:
            self._sender.stale += 1
            return
        flush = self._next
        if outcome is None:
            flush.ids.append(job.id)
            flush.tokens.append(lease.token)
            self.succeeded += 1
            if self.stats is not None:
                self.stats.succeeded[job.task].append(self._monotonic() - job.started)
            if self._logs_each:
                self._log.succeeded(job)
        else:
            (flush.results if outcome.outcome == SETTLED else flush.outcomes).append(outcome)
            self._note(job, outcome)
        if job.lane or self._buffer.queue_limited:
            flush.freed = True
        if job.batch is not None:
            flush.batches.add(job.batch)
        lease.open -= 1
        if not lease.open:
            flush.closed.append(lease.token)
        if len(flush) >= LARGEST:
            self._full.append(flush)
            self._next = Flush()
        self._idle.clear()
        self._something.set()

    def _note(self, job: Job, outcome: Outcome) -> None:
        if outcome.outcome in ("succeeded", SETTLED):
            self.succeeded += 1
        self._log.note(job, outcome)
        if self.stats is not None:
            seconds = self._monotonic() - job.started if job.started else None
            self.stats.note(job.task, ending_of(job, outcome), seconds)

    def mark_started(self, job: Job) -> None:
        """Store the start of a job that started long after it was claimed, before its outcome is stored."""
        self._sender.starts.jobs.append(job)
        self._something.set()

    async def run(self) -> None:
        """Flush until canceled; cancel it after `drained`."""
        starts = self._sender.starts
        while True:
            await self._something.wait()
            await starts.store()
            while self._full or self._next:
                await self._flush()
            if not starts.jobs:
                self._something.clear()
                self._idle.set()

    async def _flush(self) -> None:
        if not self._full:
            self._full, self._next = [self._next], Flush()
        flush = self._full[0]
        await self._sender.send(flush)
        del self._full[0]
        self._batches |= flush.batches
        if self.stats is not None:
            self.stats.settle()
        await self._batches.complete(at_once=not (self._full or self._next))

    @property
    def idle(self) -> bool:
        """Return whether everything added has been stored."""
        return self._idle.is_set() and not self._sender.deferring

    async def drained(self) -> None:
        """Wait until everything added so far has been sent; deferred outcomes may not be stored yet."""
        await self._idle.wait()

    async def stored(self) -> None:
        """Wait until everything added so far has been stored."""
        while not self.idle:
            await self._idle.wait()
            if self._sender.deferring:
                await asyncio.sleep(FIRST_PAUSE)

    async def sent(self) -> None:
        """Wait until everything added so far has been sent, for LONGEST_WAIT at most: the database may be down."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                await self._idle.wait()

    async def close(self) -> None:
        """Close the connection."""
        await self._sender.close()

    def _put_back(self, deferral: Flush) -> None:
        """Add deferred outcomes to the next flush."""
        self._next.extend(deferral)
        if self._next:
            self._idle.clear()
            self._something.set()
