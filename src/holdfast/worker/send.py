"""Send flushes to the database until they are stored.

A flush never waits for one job. finish() skips jobs whose rows are locked by other transactions (an uncommitted cancel,
for example). These are deferred and sent again until they are stored, while their leases are renewed. A success that
the database refuses is deferred too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence, Set

from holdfast.errors import DatabaseUnavailable, HoldfastError, LockTimeout, SchemaError, UsageError
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.job import Job
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs
from holdfast.worker.flush import Deferrals, Flush
from holdfast.worker.link import Progress
from holdfast.worker.wakeup import Wakeup

log = logs.get("worker")
POLL_INTERVAL = 0.25  # seconds between checks for completed batches while flushes follow each other


class OutcomeSender:
    """Stores the outcomes of a worker's attempts. `put_back` receives deferred outcomes when they are to be sent
    again."""

    def __init__(
        self,
        session: Session,
        calls: Calls,
        deferrals: Deferrals,
        progress: Progress,
        wakeup: Wakeup,
        put_back: Callable[[Flush], None],
        on_mismatch: Callable[[SchemaError], None],
        clock: Clock = CLOCK,
    ) -> None:
        self._session = session
        self._calls = calls
        self._deferrals = deferrals
        self._progress = progress
        self._wakeup = wakeup
        self._put_back = put_back
        self._on_mismatch = on_mismatch
        self._clock = clock
        self._warnings = logs.RateLimitedLog(log, clock=clock)
        self.starts = LateStarts(session, calls, clock)
        self.stale = 0  # outcomes refused because their lease was lost

    @property
    def deferring(self) -> bool:
        """Return whether outcomes wait to be sent again."""
        return bool(self._deferrals)

    async def send(self, flush: Flush) -> None:
        """Store a flush, and wake the claim loop if limits may have room."""
        await self.starts.store()
        await self._progress.store(self._session)  # first: reports of finished jobs are refused
        await self._send(flush)
        await self._keep_results(flush)
        if flush.freed:
            self._wakeup.set()

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def _send(self, flush: Flush) -> None:
        """Send a flush until it is stored. Data that the database refuses is sent in parts, so one outcome that cannot
        be stored blocks no other. Other errors are retried."""
        repeated, pause, locked_rows = False, 0.05, "fail"
        while True:
            try:
                return await self._finish(flush, locked_rows, repeated)
            except (UsageError, TypeError, ValueError, OverflowError) as error:  # refused, or not encodable
                return await self._on_refusal(flush, error, repeated)
            except LockTimeout as error:
                if locked_rows == "fail":
                    locked_rows = "skip"
                    continue
                # The lock is not on a job's row.
                self._warnings.failed("finish waits for a lock", error, jobs=len(flush))
                return await self._send_halves(flush, repeated)
            except HoldfastError as error:
                self._warnings.failed("finish waits for database", error, jobs=len(flush))
                if isinstance(error, SchemaError):
                    self._on_mismatch(error)
                await asyncio.sleep(pause * self._clock.uniform(0.5, 1.5))
                repeated, pause = True, min(pause * 2, 1.0)

    async def _finish(self, flush: Flush, locked_rows: str, repeated: bool) -> None:
        jobs, to_close = self._calls.jobs, self._deferrals.closable(flush)
        call = jobs.finish(flush.ids, flush.tokens, flush.outcomes, to_close, locked=locked_rows)
        refused = await self._session.run(call)
        if not refused:
            return self._close(flush, [], frozenset(), repeated)
        held = flush.held  # by this worker; rows of refused jobs that it still holds are locked by other transactions
        still_held = await self._session.run(jobs.held_jobs(refused, [held[each] for each in refused]))
        locked = frozenset(still_held)
        return self._close(flush, [each for each in refused if each not in locked], locked, repeated)

    async def _on_refusal(self, flush: Flush, error: Exception, repeated: bool) -> None:
        logs.event(log, logging.ERROR, "finish refused", jobs=len(flush), error=str(error))
        if flush.plain:  # it has no data to leave out, and its handler has succeeded
            return self._close(flush, [], set(flush.held), repeated)
        parts = flush.parts(error)
        for part in parts:
            await self._send(part)
        if not parts:
            self._deferrals.abandon(flush)
            self._deferrals.forget(flush.closed)
        return None

    async def _send_halves(self, flush: Flush, repeated: bool) -> None:
        if len(flush) < 2:
            return self._close(flush, [], set(flush.held), repeated)
        for part in flush.halves():
            await self._send(part)
        return None

    def _close(self, flush: Flush, refused: Sequence[str], locked: Set[str], repeated: bool) -> None:
        if locked or self._deferrals:
            self._defer(flush, locked)
        self._deferrals.forget(flush.closed)
        # After a lost reply the first attempt may have been stored; then the second is refused, but not as stale.
        if refused and not repeated:
            self.stale += len(refused)
            logs.event(log, logging.WARNING, "stale results refused", jobs=len(refused), first=refused[0])
        if any(each.outcome != "succeeded" for each in flush.outcomes):
            self._wakeup.set()

    def _defer(self, flush: Flush, locked: Set[str]) -> None:
        if pause := self._deferrals.add(flush.held, locked):
            self._warnings.warn(
                "outcomes deferred: their jobs' rows are locked, or were refused", jobs=len(locked), first=min(locked)
            )
            asyncio.get_running_loop().call_later(pause, self._send_again, flush.only(locked))

    def _send_again(self, deferral: Flush) -> None:
        """Put deferred outcomes back; drop those whose lease was lost meanwhile."""
        again, lost = self._deferrals.take(deferral)
        self.stale += lost
        self._put_back(again)

    async def _keep_results(self, flush: Flush) -> None:
        """Store results of jobs whose success is already committed; failures are logged and not retried."""
        for each in flush.results:
            if each.result is not None:
                try:
                    await self._session.run(self._calls.jobs.keep_result(each.id, bytes(each.result)))
                except HoldfastError as error:
                    logs.event(log, logging.WARNING, "result not stored", job=each.id, error=str(error))
                    if isinstance(error, DatabaseUnavailable):
                        return


class EndingBatches(set[str]):
    """The batches that may have ended. The upkeep leader completes them if this worker cannot."""

    def __init__(self, session: Session, calls: Calls, clock: Clock = CLOCK) -> None:
        super().__init__()
        self._session = session
        self._calls = calls
        self._clock = clock
        self._look_at = 0.0
        self._warnings = logs.RateLimitedLog(log, clock=clock)

    async def complete(self, *, at_once: bool) -> None:
        """Complete those whose last job has ended: every POLL_INTERVAL seconds, or at once."""
        if not self or not (at_once or self._clock.monotonic() >= self._look_at):
            return
        batches = set(self)
        self.clear()
        self._look_at = self._clock.monotonic() + POLL_INTERVAL
        try:
            await self._session.run(self._calls.batches.complete(batches))
        except HoldfastError as error:
            self._warnings.failed("batches not completed", error, batches=len(batches))


class LateStarts:
    """Jobs that started long after they were claimed. Their starts are stored for display only, so a failure is not
    retried."""

    def __init__(self, session: Session, calls: Calls, clock: Clock = CLOCK) -> None:
        self._session = session
        self._calls = calls
        self._clock = clock
        self._warnings = logs.RateLimitedLog(log, clock=clock)
        self.jobs: list[Job] = []

    async def store(self) -> None:
        """Store the starts of jobs whose lease is not lost."""
        if not self.jobs:
            return
        jobs, self.jobs = [job for job in self.jobs if not job.lease.lost], []
        now = self._clock.monotonic()
        ids, tokens = [job.id for job in jobs], [job.lease.token for job in jobs]
        try:
            if jobs:
                call = self._calls.jobs.mark_started(ids, tokens, [now - job.started for job in jobs])
                await self._session.run(call)
        except HoldfastError as error:
            self._warnings.failed("starts not stored", error, jobs=len(jobs))
