"""The claim loop: claim as many jobs as fit, a little ahead of need, and sleep while there are none.

Jobs under a rate or a breaker start when they are claimed, so they are claimed only for free slots, and slots are
reserved for them (prefetch.py). How many are claimed is decided by claim_size.py, how long an idle worker sleeps by
sleeper.py, and the pauses between claims that other workers hold up by backoff.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from msgspec import UNSET

from holdfast.errors import ConfigurationError, DatabaseUnavailable, HoldfastError
from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import Settings
from holdfast.telemetry import logs
from holdfast.worker.backoff import Backoff
from holdfast.worker.claim_size import ClaimSize
from holdfast.worker.finish import Finisher
from holdfast.worker.intake import Intake
from holdfast.worker.prefetch import PrefetchBuffer
from holdfast.worker.sleeper import Sleeper
from holdfast.worker.wakeup import Wakeup

log = logs.get("worker")
LONGEST_PAUSE = 1.0  # seconds, jittered: the most that a failover costs beyond its own time


class Claimer:
    """One worker's claim loop."""

    def __init__(
        self,
        settings: Settings,
        intake: Intake,
        sleeper: Sleeper,
        wakeup: Wakeup,
        buffer: PrefetchBuffer,
        may_claim: Callable[[], bool],
        ends_stored: Callable[[], Awaitable[None]],
        clock: Clock = CLOCK,
    ) -> None:
        self._settings = settings
        self.intake = intake
        self._sleeper = sleeper
        self.wakeup = wakeup
        self._buffer = buffer
        self.may_claim = may_claim
        self._ends_stored = ends_stored
        self._clock = clock
        self._claim_size = ClaimSize(settings, buffer, clock)
        self._backoff = Backoff(clock)
        self._outage = Outage(intake.worker, clock)
        self.turned_at = 0.0  # start of the loop's last step, or of its next one after a failure

    async def run(self) -> None:
        """Claim until stopped. The current call is finished first, so that no claimed job is lost."""
        pause, self._buffer.keeps_slots = 0.05, True
        while not self.wakeup.stopped:
            self.turned_at = self._clock.monotonic()
            try:
                await self._step()
                pause = 0.05
            except ConfigurationError:
                raise
            except HoldfastError as error:
                self._sleeper.on_error()
                self._outage.note(error)
                self.turned_at = self._clock.monotonic() + pause * 1.25
                await self.wakeup.pause(self._clock.jitter(pause))
                pause = min(pause * 2, LONGEST_PAUSE)

    async def run_until_idle(self, finisher: Finisher) -> None:
        """Claim until no job is due or running. Each claim waits until earlier outcomes are stored, so that a run with
        one slot is reproducible."""
        self.wakeup.room = self._settings.concurrency  # each job that ends wakes the loop
        while not self.wakeup.stopped:
            await finisher.drained()
            quiet = not self._buffer.held and finisher.idle
            room = self._claim_size.room() if self.may_claim() and not self.wakeup.stopped else 0
            if room and (await self._claim(room) or self.intake.info.more or await self._claim_behind(room)):
                continue
            held_up = self._backoff.held_up
            if room and quiet and not held_up:
                return
            await self.wakeup.pause(self._backoff.pause() if held_up else self._settings.poll)

    def stop(self) -> None:
        """Stop claiming."""
        self.wakeup.stop()

    async def _step(self) -> None:
        if not self.may_claim():
            self._buffer.release_slots(direct_waiting=False)
            await self.wakeup.pause(self._settings.poll)
        elif self._buffer.kept:
            await self._ends_stored()  # an ended job makes room for the next
            if self._buffer.kept and not self.wakeup.stopped:
                await self._claim(self._buffer.kept, direct=True)
        elif self.intake.info.started and not self.intake.ends_seen:
            await self._ends_stored()  # recent failures may open a breaker
            self.intake.ends_seen = True
        elif not (room := self._claim_size.room()):
            await self.wakeup.pause_for_room(self._claim_size.held_with_room(), 1.0)
        elif await self._claim(room) < room and not self.wakeup.stopped:
            await self._found_less()

    async def _claim(self, limit: int, *, direct: bool = False, from_start: bool = False) -> int:
        # At a low rate the row in `sleepers` stays: inserting and deleting it for each job costs more than the
        # notifications it saves.
        leaving = self._sleeper.registered and self._claim_size.rate_is_high
        free = self._buffer.kept if direct else self._claim_size.free
        jobs = await self.intake.claim(limit, free, direct=direct, from_start=from_start, leaving=leaving)
        self._outage.end()
        if jobs and leaving:
            self._sleeper.registered = False
        if (due := self.intake.info.due) is not UNSET:
            self._sleeper.learn(due)
        self._backoff.note(self.intake.info, jobs)
        return jobs

    async def _claim_behind(self, limit: int) -> int:
        """Claim jobs behind the cursor, unless the last claim started at the beginning."""
        return 0 if self.intake.next_scan() is None else await self._claim(limit, from_start=True)

    async def _found_less(self) -> None:
        """Decide what to do after a claim that was not full: claim from the start, wait, or sleep."""
        if self._buffer.ready:  # start the claimed jobs before the next call
            await asyncio.sleep(0)
        intake, scan = self.intake, self.intake.next_scan()
        if pause := self._backoff.pause():
            await self.wakeup.pause(pause)
        elif intake.info.more or scan == 0:
            return  # the next claim looks further
        elif intake.info.waiting and not intake.free:
            await self._wait_for_slot()
        elif not await self._sleeper.enter(intake.session):
            await self._sleeper.sleep(math.inf if scan is None else scan)

    async def _wait_for_slot(self) -> None:
        """Wait until a slot is free for a job under a rate or a breaker."""
        held = self._settings.concurrency - 1
        if self._buffer.held > held:
            await self.wakeup.pause_for_room(held, 1.0)


class Outage:
    """The time in which the database is unavailable: a warning when it begins, and a line when it ends."""

    def __init__(self, worker: str, clock: Clock = CLOCK) -> None:
        self._worker = worker
        self._clock = clock
        self._since: float | None = None
        self._warnings = logs.RateLimitedLog(log, clock=clock)

    def note(self, error: HoldfastError) -> None:
        """Log that a claim has failed."""
        if self._since is None and isinstance(error, DatabaseUnavailable):
            self._since = self._clock.monotonic()
        self._warnings.failed("claim failed", error)

    def end(self) -> None:
        """Note that a claim has succeeded."""
        if self._since is not None:
            seconds = round(self._clock.monotonic() - self._since, 1)
            logs.event(log, logging.INFO, "database is back", worker=self._worker, seconds=seconds)
            self._since = None
            self._warnings.forget()
