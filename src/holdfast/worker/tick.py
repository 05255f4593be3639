"""One bounded pass: claim a number of jobs fairly, run them, wait for their outcomes, and return.

It is meant for cron, serverless functions, and hosts without a long-running worker. Concurrent passes are safe, because
each claims as a worker does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast.client import Holdfast
from holdfast.errors import UsageError
from holdfast.model.clock import Clock
from holdfast.model.tick import Tick
from holdfast.store.calls import Calls
from holdfast.upkeep.chores import Upkeep
from holdfast.worker.claim import Claimer
from holdfast.worker.finish import Finisher
from holdfast.worker.intake import Intake
from holdfast.worker.loop import Worker
from holdfast.worker.sleeper import Sleeper
from holdfast.worker.wakeup import Wakeup

PATIENCE = 50  # claims for which a pass waits while another claim holds the ring


class Pass(Claimer):
    """Claims in ring order while slots come free, until no job is due or the bound is reached."""

    def __init__(self, *parts: Any, calls: Calls, max_jobs: int, per_tenant: int, upkeep: Upkeep) -> None:
        super().__init__(*parts)
        self._calls = calls
        self._max_jobs = max_jobs
        self._per_tenant = per_tenant
        self._upkeep = upkeep
        self.served: Counter[str] = Counter()
        self.depth: int | None = None  # jobs waiting when the pass begins

    async def run_until_idle(self, finisher: Finisher) -> None:
        """Run the pass: the upkeep that is due, the claims, and the last outcome."""
        intake, counts, wakeup = self.intake, self.intake.counts, self.wakeup
        slots, poll = self._settings.concurrency, self._settings.poll
        wakeup.room = slots  # every job that ends wakes the claim loop
        await self._upkeep.once()
        self.depth = await intake.session.run(self._calls.workers.count_waiting(intake.queues))
        patience = PATIENCE
        while not wakeup.stopped and counts.claimed < self._max_jobs:
            free = slots - self._buffer.held
            before = counts.contention
            if free > 0 and not await self._take(free):
                if not intake.info.more and (counts.contention == before or patience <= 0):
                    break
                patience -= 1  # another claim held the ring
                await wakeup.pause(0.02)
            if self._buffer.held >= slots:
                await wakeup.pause(poll)
        while self._buffer.held and not wakeup.stopped:
            await wakeup.pause(poll)
        await finisher.drained()

    async def _take(self, free: int) -> int:
        """Claim once, jobs under limits only up to the free slots; return the number of jobs found."""
        limit = self._max_jobs - self.intake.counts.claimed
        jobs = await self.intake.claim_fairly(limit, free, self._per_tenant, self.served)
        self.served.update(job.tenant or "" for job in jobs)
        self._buffer.release_slots(direct_waiting=False)  # a pass claims again when slots come free
        return len(jobs)


class TickWorker(Worker):
    """A worker for the length of one pass."""

    line = "tick"
    is_long_running = False

    def __init__(self, hf: Holdfast, max_jobs: int, per_tenant: int, **settings: Any) -> None:
        if max_jobs < 1 or per_tenant < 1:
            raise UsageError(f"max_jobs and per_tenant must be at least 1, got {max_jobs} and {per_tenant}")
        self._bounds = {"max_jobs": max_jobs, "per_tenant": per_tenant}
        super().__init__(hf, **settings)

    def _make_claimer(
        self, calls: Calls, sleeper: Sleeper, wakeup: Wakeup, may_claim: Callable[[], bool], clock: Clock
    ) -> Claimer:
        intake = Intake(self.id, self.settings, self._session("claim"), calls, self.buffer, clock)
        upkeep = Upkeep(self.id, self.settings, self._presence.session, calls, clock=clock)
        parts = (self.settings, intake, sleeper, wakeup, self.buffer, may_claim, self.finisher.sent, clock)
        self._pass = Pass(*parts, calls=calls, upkeep=upkeep, **self._bounds)
        return self._pass

    async def tick(self, *, handle_signals: bool = False) -> Tick:
        """Run the pass and store its counts."""
        began = time.monotonic()
        await self.run(until_idle=True, handle_signals=handle_signals)
        seconds, counts, rows = time.monotonic() - began, self.counts, self.windows.rows
        tenants = dict(sorted(self._pass.served.items()))
        id_, depth = await rows.record(seconds, counts, tenants, "tick", self._pass.depth)
        await rows.close()
        return Tick(id_, self.id, seconds, *counts, depth, tenants)


async def tick(hf: Holdfast, max_jobs: int, per_tenant: int, **settings: Any) -> Tick:
    """Run one bounded pass of an application's jobs."""
    return await TickWorker(hf, max_jobs, per_tenant, **settings).tick()
