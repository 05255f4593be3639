"""What a worker holds: claimed jobs that are ready to start, those running, and the leases they came with."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Set

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


class Hand:
    """Jobs in this worker's hand, and the slots that wait for one."""

    def __init__(self) -> None:
        self.ready: deque[Job] = deque()
        self.leases: dict[int, Lease] = {}
        self.running: dict[asyncio.Task[None], Job] = {}
        self.started = 0
        self.lingering = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def held(self) -> int:
        """Jobs claimed and not yet run to their end, and slots that wait for a thread to end."""
        return len(self.ready) + len(self.running) + self.lingering

    def add(self, lease: Lease, jobs: Iterable[Job]) -> None:
        """Takes up a claim and sets waiting slots to work."""
        self.leases[lease.token] = lease
        self.ready.extend(jobs)
        # The slot that waited last goes first: its memory is warm, and the others may stay asleep.
        for _ in range(min(len(self.ready), len(self._waiting))):
            waiter = self._waiting.pop()
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """A slot's wait for a job."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                self._waiting = [w for w in self._waiting if w is not waiter]

    def take_ready(self) -> list[Job]:
        """Everything not yet started, to be given back."""
        jobs = [job for job in self.ready if not job.lease.lost]
        self.ready.clear()
        return jobs

    def take_out(self, ids: Set[str]) -> list[Job]:
        """Those of the given jobs that have not been started."""
        out = [job for job in self.ready if job.id in ids]
        if out:
            self.ready = deque(job for job in self.ready if job.id not in ids)
        return out

    def lose(self, tokens: Iterable[int]) -> list[Job]:
        """Marks leases as lost; answers with the jobs that are running under them."""
        lost = {token for token in tokens if token in self.leases}
        for token in lost:
            self.leases.pop(token).lost = True
        self.ready = deque(job for job in self.ready if not job.lease.lost)
        return [job for job in self.running.values() if job.lease.token in lost]
