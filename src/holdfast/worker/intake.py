"""Make claims, and take their jobs into the prefetch buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from holdfast.model.clock import CLOCK, Clock
from holdfast.model.job import Job
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.jobs import ClaimInfo
from holdfast.store.wire.session import Session
from holdfast.worker.cursor import Cursor
from holdfast.worker.prefetch import Lease, PrefetchBuffer

_TENANT = attrgetter("tenant")


@dataclass(slots=True)
class ClaimCounts:
    """What a worker has claimed."""

    claims: int = 0
    claimed: int = 0
    throttled: int = 0  # lanes that limits have closed
    contention: int = 0  # claims without the ring's lock
    tenants: Counter[str | None] = field(default_factory=Counter)  # jobs claimed of each tenant in this window


class Intake:
    """The claims of one worker."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        session: Session,
        calls: Calls,
        buffer: PrefetchBuffer,
        clock: Clock = CLOCK,
    ) -> None:
        self.worker = worker
        self.queues = settings.queue_list
        self._lease = settings.lease
        self.session = session
        self._calls = calls
        self._buffer = buffer
        self._clock = clock
        self._cursor = Cursor()
        self.counts = ClaimCounts()
        self.info = ClaimInfo()  # of the last claim
        self.free = 0  # free slots at the last claim
        self.ends_seen = False  # whether ends since the last claim are stored

    async def claim(
        self, limit: int, free: int, *, from_start: bool = False, direct: bool = False, leaving: bool = False
    ) -> int:
        """Claim up to `limit` jobs after the cursor; return how many were found. direct: only jobs under a rate or a
        breaker, for the slots reserved for them."""
        began = self._clock.monotonic()
        hint = None if direct else self._cursor.hint(began, from_start=from_start)
        call = self._calls.jobs.claim(self.worker, self.queues, limit, self._lease, hint, leaving, free, direct=direct)
        claimed = await self.session.run(call)
        if not direct:
            enough = len(claimed.jobs) >= limit
            self._cursor.learn(claimed.jobs, enough=enough, began=began, now=self._clock.monotonic())
        self._take_up(claimed.jobs, claimed.info, free, began)
        return len(claimed.jobs)

    async def claim_fairly(self, limit: int, free: int, per_tenant: int, served: Mapping[str, int]) -> list[Job]:
        """Claim from the start with a bound for each tenant; return the jobs."""
        began = self._clock.monotonic()
        call = self._calls.jobs.claim(
            self.worker, self.queues, limit, self._lease, None, False, free, per_tenant=per_tenant, served=dict(served)
        )
        claimed = await self.session.run(call)
        self._take_up(claimed.jobs, claimed.info, free, began)
        return claimed.jobs

    def next_scan(self) -> float | None:
        """Return the seconds until a claim from the beginning is affordable; None if the last one was such a claim."""
        return None if self._cursor.from_start else self._cursor.affordable_in(self._clock.monotonic())

    def _take_up(self, jobs: list[Job], info: ClaimInfo, free: int, began: float) -> None:
        self.info, self.free, self.ends_seen = info, free, False
        self._buffer.queue_limited = info.limited
        counts = self.counts
        counts.claims += 1
        counts.contention += info.busy
        counts.throttled += info.closed
        if jobs:
            self._buffer.add(Lease(jobs[0].token, len(jobs), began, self._lease), jobs, info.started)
            counts.claimed += len(jobs)
            counts.tenants.update(map(_TENANT, jobs))
        self._buffer.release_slots(direct_waiting=info.waiting > 0)
