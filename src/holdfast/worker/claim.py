"""The claim loop: claim as many jobs as fit, a little ahead of need, and sleep while there are none.

Jobs under a rate or a breaker start when they are claimed, so they are claimed only for free slots, and slots are
reserved for them (prefetch.py).

Sleep: before it waits, the worker inserts itself into `sleepers` and claims once more. An enqueue notifies only workers
found there. The row stays while the worker is idle, so an idle worker makes one query for each poll.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from operator import attrgetter

from holdfast.errors import ConfigurationError, DatabaseUnavailable, HoldfastError
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.jobs import Claimed, ClaimInfo
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs
from holdfast.worker.cursor import Cursor
from holdfast.worker.finish import Finisher
from holdfast.worker.prefetch import Lease, PrefetchBuffer

log = logs.get("worker")
LEAVE_ABOVE = 200.0  # jobs a second
LONGEST_PAUSE = 5.0
BUSY_PAUSE, LONGEST_BUSY = 0.001, 0.1  # seconds of backoff after other claims held the ring
FRUITLESS = 5  # claims in a row without a job, after which there are pauses
PATIENCE = 20  # claims in a row that a run until idle waits for the ring
# An enqueue that began before this worker's row in `sleepers` was committed, and commits after its last claim, sends no
# notification. So the first waits of a sleep are short.
LOOKS = (0.01, 0.1)
_TENANT = attrgetter("tenant")


class Claimer:
    """One worker's claim loop."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        session: Session,
        calls: Calls,
        buffer: PrefetchBuffer,
        may_claim: Callable[[], bool],
        ends_stored: Callable[[], Awaitable[None]],
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._queues = settings.queue_list
        # A worker that does not listen cannot be notified, so it must not stand among the sleepers.
        self._listens = settings.notify and not settings.pooler
        self.session = session
        self._calls = calls
        self._buffer = buffer
        self.may_claim = may_claim
        self._ends_stored = ends_stored
        self._cursor = Cursor()
        self._info = ClaimInfo()  # of the last claim
        self._ends_seen = False  # whether ends since the last claim are stored
        self._fruitless = 0  # claims in a row that found nothing and reported more
        self._busy = 0  # claims in a row without the ring's lock
        self.throttled = 0  # lanes that limits have closed
        self.contention = 0  # claims without the ring's lock
        self._rate = Rate()
        self._registered = False  # whether this worker may have a row in `sleepers`
        self._due: float | None = None
        self._due_known = False
        self._looks: list[float] = []
        self._free = 0  # free slots at the last claim
        self._stopping = False
        self.stir = asyncio.Event()
        self.wants_room: int | None = None  # wake the loop when no more jobs than this are held
        self.claimed = 0
        self.tenants: Counter[str | None] = Counter()  # jobs claimed of each tenant in this window
        self._warnings = logs.Seldom(log)
        self._away_since: float | None = None  # since when the database is unavailable
        self.turned_at = 0.0  # start of the loop's last step, or of its next one after a failure

    async def run(self) -> None:
        """Claim until stopped. The current call is finished first, so that no claimed job is lost."""
        pause, self._buffer.keeps_slots = 0.05, True
        while not self._stopping:
            self.turned_at = time.monotonic()
            try:
                await self._step()
                pause = 0.05
            except ConfigurationError:
                raise
            except HoldfastError as error:
                self._registered, self._due_known = True, False
                self._log_failure(error)
                self.turned_at = time.monotonic() + pause * 1.25
                await self._wait(pause * random.uniform(0.75, 1.25))
                pause = min(pause * 2, LONGEST_PAUSE)

    async def run_until_idle(self, finisher: Finisher) -> None:
        """Claim until no job is due or running. Each claim waits until earlier outcomes are stored, so that a run with
        one slot is reproducible."""
        self.wants_room = self._settings.concurrency  # each job that ends wakes the loop
        while not self._stopping:
            await finisher.drained()
            quiet = not self._buffer.held and finisher.idle
            room = self._room() if self.may_claim() and not self._stopping else 0
            if room and (await self._claim(room) or self._info.more or await self._claim_behind(room)):
                continue
            held_up = 0 < self._busy < PATIENCE
            if room and quiet and not held_up:
                return
            await self._wait(self._busy_pause() if held_up else self._settings.poll)

    def stop(self) -> None:
        """Stop claiming."""
        self._stopping = True
        self.stir.set()

    async def _step(self) -> None:
        if not self.may_claim():
            self._buffer.release_slots(direct_waiting=False)
            await self._wait(self._settings.poll)
        elif self._buffer.kept:
            await self._ends_stored()  # an ended job makes room for the next
            if self._buffer.kept and not self._stopping:
                await self._claim(self._buffer.kept, direct=True)
        elif self._info.started and not self._ends_seen:
            await self._ends_stored()  # recent failures may open a breaker
            self._ends_seen = True
        elif not (room := self._room()):
            await self._wait_for_room()
        elif await self._claim(room) < room and not self._stopping:
            await self._found_less()

    def _room(self) -> int:
        """Return how many jobs to claim now; 0 while enough are prefetched."""
        self._rate.update(self._buffer.started)
        ahead = self._ahead()
        room = self._settings.concurrency + ahead - self._buffer.held
        enough = self._enough(ahead) if self._buffer.ready else 1
        return min(room, self._settings.claim_size) if room >= enough else 0

    def _ahead(self) -> int:
        """Return how many jobs to prefetch: enough for the prefetch time at the present rate."""
        return min(int(self._rate.value * self._settings.prefetch), 4 * self._settings.claim_size)

    def _enough(self, ahead: int) -> int:
        """Return the smallest claim worth a round trip while prefetched jobs are left."""
        return max(1, min(ahead // 2, self._settings.claim_size))

    async def _claim_behind(self, limit: int) -> int:
        """Claim jobs behind the cursor, unless the last claim started at the beginning."""
        return 0 if self._cursor.from_start else await self._claim(limit, from_start=True)

    async def _claim(self, limit: int, *, from_start: bool = False, direct: bool = False) -> int:
        began = time.monotonic()
        self._free = self._buffer.kept if direct else max(self._settings.concurrency - self._buffer.held, 0)
        hint = None if direct else self._cursor.hint(began, from_start=from_start)
        # At a low rate the row in `sleepers` stays: inserting and deleting it for each job costs more than the
        # notifications it saves.
        leaving = self._registered and self._rate.value > LEAVE_ABOVE
        claimed = await self.session.run(
            self._calls.jobs.claim(
                self._worker, self._queues, limit, self._settings.lease, hint, leaving, self._free, direct=direct
            )
        )
        if self._away_since is not None:
            self._log_back(self._away_since)
        if not direct:
            self._cursor.learn(claimed.jobs, enough=len(claimed.jobs) >= limit, began=began, now=time.monotonic())
        if claimed.jobs:
            self._registered = self._registered and not leaving
        self._take_up(claimed, began)
        return len(claimed.jobs)

    def _log_failure(self, error: HoldfastError) -> None:
        if self._away_since is None and isinstance(error, DatabaseUnavailable):
            self._away_since = time.monotonic()
        self._warnings.failed("claim failed", error)

    def _log_back(self, since: float) -> None:
        away = round(time.monotonic() - since, 1)
        logs.event(log, logging.INFO, "database is back", worker=self._worker, seconds=away)
        self._away_since = None
        self._warnings.forget()

    def _take_up(self, claimed: Claimed, began: float) -> None:
        jobs, self._info, self._ends_seen = claimed.jobs, claimed.info, False
        self._buffer.queue_limited = self._info.limited
        self._busy = self._busy + 1 if self._info.busy else 0
        self._fruitless = self._fruitless + 1 if self._info.more and not jobs else 0
        self.contention += self._info.busy
        self.throttled += self._info.closed
        if jobs:
            self._buffer.add(Lease(jobs[0].token, len(jobs), began, self._settings.lease), jobs, self._info.started)
            self.claimed += len(jobs)
            self.tenants.update(map(_TENANT, jobs))
        self._buffer.release_slots(direct_waiting=self._info.waiting > 0)

    def _busy_pause(self) -> float:
        return min(BUSY_PAUSE * 2.0 ** min(self._busy, 10), LONGEST_BUSY) * random.uniform(0.5, 1.0)

    def check_asleep(self, asleep: bool) -> None:
        """Register as a sleeper again if another process has removed this worker."""
        if self._listens and self._registered and not asleep:
            self._registered = False

    def freed(self) -> None:
        """Wake the loop after jobs under limits have ended: their limits may have room."""
        self.stir.set()

    async def _found_less(self) -> None:
        """Decide what to do after a claim that was not full: claim from the start, wait, or sleep."""
        if self._buffer.ready:  # start the claimed jobs before the next call
            await asyncio.sleep(0)
        affordable = self._cursor.affordable_in(time.monotonic())
        if self._busy:
            await self._wait(self._busy_pause())
            return
        if self._fruitless > FRUITLESS:  # open lanes whose jobs are locked, for example
            await self._wait(min(BUSY_PAUSE * 2.0 ** (self._fruitless - FRUITLESS), LONGEST_BUSY))
            return
        if self._info.more or not (self._cursor.from_start or affordable):
            return  # the next claim looks further
        if self._info.waiting and not self._free:
            await self._wait_for_slot()
            return
        if not self._registered or not self._due_known:
            call = self._calls.workers.sleep(self._worker, self._queues, listens=self._listens)
            self._due = await self.session.run(call)
            entered, self._registered, self._due_known = not self._registered, True, True
            if entered:  # claim once more before the first wait
                self._looks = list(LOOKS)
            else:
                await self._sleep(affordable)
        else:
            await self._sleep(affordable)

    async def _sleep(self, affordable: float) -> None:
        poll = self._settings.poll * random.uniform(0.75, 1.25)
        if first := bool(self._looks):
            poll = min(poll, self._looks.pop(0))
        if not self._cursor.from_start:
            poll = min(poll, affordable)
        soon = self._due is not None and self._due <= poll
        woken = await self._wait(max(self._due or 0, 0.001) if soon else poll)
        # A wake-up without a job may announce a delayed job, and so may a commit before the first waits: read the next
        # due time again.
        self._due_known = not woken and not soon and not first
        if self._due is not None:
            self._due -= poll

    async def _wait_for_room(self) -> None:
        ahead = self._ahead()
        self.wants_room = self._settings.concurrency + ahead - self._enough(ahead)
        try:
            await self._wait(1.0)
        finally:
            self.wants_room = None

    async def _wait_for_slot(self) -> None:
        """Wait until a slot is free for a job under a rate or a breaker."""
        self.wants_room = self._settings.concurrency - 1
        try:
            if self._buffer.held > self.wants_room:
                await self._wait(1.0)
        finally:
            self.wants_room = None

    async def _wait(self, seconds: float) -> bool:
        """Wait until woken or for some seconds; return whether the loop was woken."""
        try:
            async with asyncio.timeout(seconds):
                await self.stir.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self.stir.clear()


class Rate:
    """Jobs started per second: a moving average over about 0.1 s."""

    def __init__(self) -> None:
        self.value = 0.0
        self._count = 0
        self._since = time.monotonic()

    def update(self, count: int) -> None:
        """Update the average with the running count."""
        now = time.monotonic()
        if (passed := now - self._since) >= 0.02:
            self.value += (min(passed / 0.1, 1.0)) * ((count - self._count) / passed - self.value)
            self._count, self._since = count, now
