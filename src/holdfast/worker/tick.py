"""One bounded pass: claim a number of jobs fairly, run them, wait for their outcomes, and return.

It is meant for cron, serverless functions, and hosts without a long-running worker. Concurrent passes are safe, because
each claims as a worker does.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import Any

from holdfast.client import Holdfast
from holdfast.errors import UsageError
from holdfast.model.tick import Tick
from holdfast.store.wire.pools import first_look
from holdfast.store.workers import WorkerCalls
from holdfast.upkeep.chores import Upkeep
from holdfast.worker.claim import Claimer
from holdfast.worker.finish import Finisher
from holdfast.worker.loop import Worker


class Pass(Claimer):
    """Claims in ring order while slots come free, until no job is due or the bound is reached."""

    def __init__(self, *args: Any, max_jobs: int, per_tenant: int, upkeep: Upkeep) -> None:
        super().__init__(*args)
        self._max_jobs = max_jobs
        self._per_tenant = per_tenant
        self._upkeep = upkeep
        self.served: Counter[str] = Counter()
        self.depth: int | None = None  # jobs waiting when the pass begins

    async def run_until_idle(self, finisher: Finisher) -> None:
        """Run the pass: the upkeep that is due, the claims, and the last outcome."""
        self.wants_room = self._settings.concurrency  # every job that ends wakes the claim loop
        await self._upkeep.once()
        self.depth = await self.session.run(self._calls.workers.count_waiting(self._queues))
        patience = 50
        while not self._stopping and self.claimed < self._max_jobs:
            free = self._settings.concurrency - self._buffer.held
            before = self.contention
            if free > 0 and not await self._take(free):
                if not self._info.more and (self.contention == before or patience <= 0):
                    break
                patience -= 1  # another claim held the ring
                await self._wait(0.02)
            if self._buffer.held >= self._settings.concurrency:
                await self._wait(self._settings.poll)
        while self._buffer.held and not self._stopping:
            await self._wait(self._settings.poll)
        await finisher.drained()

    async def _take(self, free: int) -> int:
        """Claim once, jobs under limits only up to the free slots; return the number of jobs found."""
        began = time.monotonic()
        claimed = await self.session.run(
            self._calls.jobs.claim(
                self._worker,
                self._queues,
                self._max_jobs - self.claimed,
                self._settings.lease,
                None,
                False,
                free,
                per_tenant=self._per_tenant,
                served=dict(self.served),
            )
        )
        self.served.update(job.tenant or "" for job in claimed.jobs)
        self._take_up(claimed, began)
        self._buffer.release_slots(direct_waiting=False)  # a pass claims again when slots come free
        return len(claimed.jobs)


class TickWorker(Worker):
    """A worker for the length of one pass."""

    line = "tick"

    def __init__(self, hf: Holdfast, max_jobs: int, per_tenant: int, **settings: Any) -> None:
        super().__init__(hf, **settings)
        if max_jobs < 1 or per_tenant < 1:
            raise UsageError(f"max_jobs and per_tenant must be at least 1, got {max_jobs} and {per_tenant}")
        self._bounds = {"max_jobs": max_jobs, "per_tenant": per_tenant}
        self._patience = math.inf  # claimed jobs run in this pass, however long they wait for a slot

    async def _enter(self) -> bool:
        """Register the worker; unlike a long-running one, fail if the database is unavailable."""
        await asyncio.to_thread(first_look, self.settings)
        return await super()._enter()

    def _build(self) -> None:
        super()._build()
        arguments = (
            self.id,
            self.settings,
            self.claimer.session,
            self._hf.database.calls,
            self.buffer,
            self.claimer.may_claim,
            self.finisher.sent,
        )
        upkeep = Upkeep(self.id, self.settings, self._service, self._hf.database.calls)
        self.claimer: Pass = Pass(*arguments, **self._bounds, upkeep=upkeep)
        self.finisher.on_put_back = [self.claimer.stir]
        self.finisher.on_freed = self.claimer.freed

    async def tick(self, *, handle_signals: bool = False) -> Tick:
        """Run the pass and store its counts."""
        began = time.monotonic()
        await self.run(until_idle=True, handle_signals=handle_signals)
        claimer = self.claimer
        seconds = time.monotonic() - began
        counts = self.counts
        tenants = dict(sorted(claimer.served.items()))
        calls = WorkerCalls(self.settings.schema)
        call = calls.record_tick(self.id, self.settings.queue_list, seconds, counts, tenants, "tick", claimer.depth)
        id_, depth = await self._service.run(call)
        await self._service.close()
        return Tick(id_, self.id, seconds, *counts, depth, tenants)


async def tick(hf: Holdfast, max_jobs: int, per_tenant: int, **settings: Any) -> Tick:
    """Run one bounded pass of an application's jobs."""
    return await TickWorker(hf, max_jobs, per_tenant, **settings).tick()
