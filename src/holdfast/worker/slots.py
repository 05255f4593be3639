"""The slots of a worker: long-lived tasks that take jobs from the prefetch buffer. `_slot` is the path of one job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

from holdfast.client import Task
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.job import Job
from holdfast.model.outcome import SETTLED, WANTED_CANCELED, Outcome
from holdfast.telemetry import logs
from holdfast.worker.execute import Attempts
from holdfast.worker.finish import Finisher
from holdfast.worker.prefetch import PrefetchBuffer
from holdfast.worker.stop import Shutdown
from holdfast.worker.wakeup import Wakeup

log = logs.get("worker")
YIELD_AFTER = 32  # jobs a slot runs before it yields to the event loop
KEPT = Outcome("", 0, "kept")  # placeholder for no outcome: a thread that cannot be stopped keeps the job


class Slots:
    """Runs the jobs of the prefetch buffer, and stops those that are canceled or whose lease is lost."""

    def __init__(
        self,
        buffer: PrefetchBuffer,
        tasks: Mapping[str, Task[Any, Any]],
        attempts: Attempts,
        finisher: Finisher,
        wakeup: Wakeup,
        shutdown: Shutdown,
        clock: Clock = CLOCK,
    ) -> None:
        self._buffer = buffer
        self._tasks = tasks
        self.attempts = attempts
        self._finisher = finisher
        self._wakeup = wakeup
        self._shutdown = shutdown
        self._clock = clock
        self._slots: list[asyncio.Task[None]] = []

    def start(self, number: int) -> Sequence[asyncio.Task[None]]:
        """Start the slots."""
        self._slots = [asyncio.create_task(self._slot()) for _ in range(number)]
        return self._slots

    async def _slot(self) -> None:
        buffer, wakeup, finisher, execute = self._buffer, self._wakeup, self._finisher, self.attempts.execute
        me = cast("asyncio.Task[None]", asyncio.current_task())
        monotonic, streak, direct = self._clock.monotonic, 0, False
        while True:
            ready = buffer.ready
            if not ready or ((buffer.direct_waiting or direct) and not ready[0].direct and buffer.keep_slot()):
                streak, direct = 0, False
                if buffer.kept:
                    wakeup.set()
                await buffer.wait()
                continue
            job = ready.popleft()
            buffer.started += 1
            buffer.running[me] = job
            job.started = monotonic()
            direct = job.direct
            try:
                outcome = await execute(job)
            except asyncio.CancelledError:
                if not (job.lease.lost or job.canceled or self._shutdown.at_once.is_set()):
                    raise
                outcome = self._stopped(job)
            del buffer.running[me]
            while me.cancelling():  # the handler swallowed a cancellation, which was meant for that job alone
                me.uncancel()
            if outcome is not KEPT:
                finisher.add(job, outcome)
            if job.thread is not None:
                await self._outlast(job.thread)
            if wakeup.room is not None and buffer.held <= wakeup.room:
                wakeup.set()
            streak += 1
            if streak >= YIELD_AFTER:
                streak = 0
                await asyncio.sleep(0)

    def _stopped(self, job: Job) -> Outcome:
        """Return the outcome of an attempt that this worker has stopped."""
        if job.settled or job.canceled:
            return cancellation(job)
        if not (self._can_be_stopped(job) or self._shutdown.owns_process):
            return KEPT  # a thread that outlives the worker keeps its job until the lease expires
        task = self._tasks.get(job.task)
        return released(job) if task is None or task.refunds else _interrupted(job)

    async def _outlast(self, thread: asyncio.Future[Any]) -> None:
        """Wait for a thread whose attempt is over: until it ends, this slot has no thread for another job."""
        self._buffer.lingering += 1
        try:
            await asyncio.wait({thread})
        finally:
            self._buffer.lingering -= 1

    def _can_be_stopped(self, job: Job) -> bool:
        """Return whether the handler can be stopped, which holds for all but threads."""
        task = self._tasks.get(job.task)
        return task is None or task.runner != "thread"

    def cancel(self, ids: Set[str]) -> None:
        """Cancel jobs on request. Jobs not started are finished as canceled, a coroutine is canceled at its next await
        and a process is ended. A thread cannot be stopped; its handler can check ctx.canceled."""
        for job in self._buffer.take_out(ids):
            self._finisher.add(job, _canceled(job))
        for slot, job in list(self._buffer.running.items()):
            if job.id in ids and not job.canceled:
                job.canceled = True
                logs.event(log, logging.INFO, "canceling job", job=job.id, task=job.task, attempt=job.attempt)
                if self._can_be_stopped(job):
                    slot.cancel()

    def on_leases_lost(self, tokens: Sequence[int]) -> None:
        """Cancel the jobs of lost leases; called from any thread."""
        self._shutdown.call_soon(self._lose, tokens)

    def _lose(self, tokens: Sequence[int]) -> None:
        lost_jobs = {id(job) for job in self._buffer.lose(tokens)}
        for slot, job in list(self._buffer.running.items()):
            if id(job) in lost_jobs:
                slot.cancel()

    def release_unstarted(self) -> None:
        """Release the jobs that have not started."""
        for job in self._buffer.take_ready():
            self._finisher.add(job, released(job))

    async def finish(self, worker: str, grace: float) -> None:
        """Wait for running handlers until the grace time is over or a second stop is requested; then cancel them."""
        try:
            async with asyncio.timeout(grace):
                while self._buffer.running and not self._shutdown.at_once.is_set():  # noqa: ASYNC110 - only while stopping
                    await asyncio.sleep(0.01)
        except TimeoutError:
            number = len(self._buffer.running)
            logs.event(log, logging.WARNING, "grace time is over", worker=worker, given_back=number)
        self._shutdown.at_once.set()
        for slot in list(self._buffer.running):
            slot.cancel()
        if self._buffer.running:
            await asyncio.wait(self._slots, timeout=0.1)


def cancellation(job: Job) -> Outcome:
    """Return the outcome of an attempt that was canceled on request, or that had succeeded before."""
    return Outcome(job.id, job.lease.token, SETTLED) if job.settled else _canceled(job)


def released(job: Job) -> Outcome:
    """Return the outcome of a job that is released: no attempt counts."""
    return Outcome(job.id, job.lease.token, "released")


def _canceled(job: Job) -> Outcome:
    error = {"type": "Cancel", "code": "CANCELED", "message": WANTED_CANCELED}
    return Outcome(job.id, job.lease.token, "canceled", error=error)


def _interrupted(job: Job) -> Outcome:
    """Return an error that is retried at once. The attempt counts, because its message may have been sent."""
    error = {"type": "Interrupted", "code": "INTERRUPTED", "message": "worker stopped while the job was running"}
    return Outcome(job.id, job.lease.token, "error", error=error, delay=0.0, counts=[])
