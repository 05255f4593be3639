"""The prefetch buffer: claimed jobs that are ready to start, running jobs, and their leases.

Jobs under a rate or a breaker start when they are claimed, so each needs a free slot. While prefetched jobs keep all
slots busy, seven of eight slots that become free are reserved for them, until a claim has filled these or found none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence, Set

from holdfast.model.job import Job


class Lease:
    """One claim: its token, how many of its jobs are not yet finished, and when it lapses unless renewed.

    `deadline` is on this machine's monotonic clock, counted from before the claim was sent, so it can only be early.
    """

    __slots__ = ("deadline", "lost", "open", "taken_at", "token")

    def __init__(self, token: int, jobs: int, taken_at: float, seconds: float) -> None:
        self.token = token
        self.open = jobs
        self.taken_at = taken_at
        self.deadline = taken_at + seconds
        self.lost = False


class PrefetchBuffer:
    """Jobs that this worker holds, and the slots that wait for one."""

    def __init__(self) -> None:
        self.ready: deque[Job] = deque()
        self.leases: dict[int, Lease] = {}
        self.running: dict[asyncio.Task[None], Job] = {}
        self.started = 0
        self.lingering = 0
        self.keeps_slots = False  # whether a claim loop fills reserved slots
        self.direct_waiting = False  # whether jobs under a rate or a breaker wait for free slots
        self.kept = 0  # slots reserved for them
        self.queue_limited = False  # whether a limit of a whole queue holds for jobs without a lane
        self._freed = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def held(self) -> int:
        """The number of claimed jobs that have not ended, and of slots that wait for a thread to end."""
        return len(self.ready) + len(self.running) + self.lingering

    def keep_slot(self) -> bool:
        """Return whether to reserve a slot that has become free: seven of eight are. Call it while direct jobs wait,
        and after one has ended, because the next one may take its place."""
        if not self.keeps_slots:
            return False
        self._freed += 1
        keeps = self._freed % 8 != 0
        self.kept += keeps
        self.direct_waiting = True
        return keeps

    def release_slots(self, *, direct_waiting: bool) -> None:
        """Release the reserved slots."""
        self.kept, self.direct_waiting = 0, direct_waiting
        self._start_waiting()

    def add(self, lease: Lease, jobs: Sequence[Job], first: Set[str]) -> None:
        """Add the jobs of a claim and wake waiting slots. The jobs in `first` start first."""
        self.leases[lease.token] = lease
        for job in jobs:
            job.lease = lease
        if first:
            for job in jobs:
                job.direct = job.id in first
            self.ready.extendleft([job for job in reversed(jobs) if job.direct])
            self.ready.extend([job for job in jobs if not job.direct])
        else:
            self.ready.extend(jobs)
        self._start_waiting()

    def _start_waiting(self) -> None:
        # The slot that waited last goes first: its memory is warm.
        for _ in range(min(len(self.ready), len(self._waiting))):
            waiter = self._waiting.pop()
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for a job, in a slot."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                self._waiting = [w for w in self._waiting if w is not waiter]

    def take_ready(self) -> list[Job]:
        """Remove and return all jobs that have not started."""
        jobs = [job for job in self.ready if not job.lease.lost]
        self.ready.clear()
        return jobs

    def take_out(self, ids: Set[str]) -> list[Job]:
        """Remove and return those of the given jobs that have not started."""
        out = [job for job in self.ready if job.id in ids]
        if out:
            self.ready = deque(job for job in self.ready if job.id not in ids)
        return out

    def lose(self, tokens: Iterable[int]) -> list[Job]:
        """Mark leases as lost; return the jobs that are running under them."""
        lost = {token for token in tokens if token in self.leases}
        for token in lost:
            self.leases.pop(token).lost = True
        self.ready = deque(job for job in self.ready if not job.lease.lost)
        return [job for job in self.running.values() if job.lease.token in lost]
