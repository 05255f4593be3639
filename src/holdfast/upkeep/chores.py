"""The upkeep loop in each worker. Every few seconds it tries to become the leader, which promotes due jobs, reclaims
expired leases, fires schedules, works on actions, prunes and creates partitions. Each chore is safe when two leaders
overlap; leadership only saves work."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from holdfast.errors import HoldfastError
from holdfast.model.action import REST
from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.store.workers import UpkeepResult
from holdfast.telemetry import logs
from holdfast.upkeep.timetable import Timetable

log = logs.get("upkeep")
PRUNE_EVERY = 60.0
PRUNE_STEP = 1000
LONGEST_WORK = 1.0  # seconds on actions, for a short-lived process
SNAPSHOT_EVERY = 1.25  # seconds at most, so that figures are hardly ever older than 2 seconds
SNAPSHOT_IDLE = 3.5  # seconds between snapshots while there is nothing to do
SNAPSHOT_SHARE = 20  # pause between snapshots, as a multiple of the duration of one
FULL_ROUND = 1000  # jobs promoted in one round from which the next follows at once


OnRound = Callable[[UpkeepResult], Awaitable[None]]  # receives the result of each round


class Upkeep:
    """The upkeep loop of one worker."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        session: Session,
        calls: Calls,
        on_round: OnRound | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._worker = worker
        self._on_round = on_round
        self._every = settings.upkeep
        self._session = session
        self._calls = calls
        self._clock = clock
        self._prune_at = 0.0
        self._leads = False
        self._snapshot_at = 0.0
        self._acting = False  # whether there are actions to work on
        self._warnings = logs.RateLimitedLog(log, clock=clock)
        self._timetable = Timetable(settings, session, calls, clock)

    async def run(self) -> None:
        """Run rounds until canceled."""
        while True:
            busy = False
            try:
                busy = await self._round()
            except HoldfastError as error:
                self._timetable.expect(None)
                self._warnings.failed("upkeep failed", error)
            await self._rest(0 if busy else self._clock.jitter(self._every))

    async def once(self) -> None:
        """Run one round and fire due schedules, for a short-lived process. Where workers run, one of them leads and
        this does nothing."""
        try:
            while await self._round():
                pass
            await self._timetable.keep(self._clock.monotonic())
            ends = self._clock.monotonic() + LONGEST_WORK
            while self._acting and self._clock.monotonic() < ends:
                await self._work_actions()
        except HoldfastError as error:
            self._warnings.failed("upkeep failed", error)

    async def _rest(self, seconds: float) -> None:
        """Wait for the next round; the leader fires the schedules that come due meanwhile, takes snapshots and works on
        actions."""
        steps = math.ceil(seconds / SNAPSHOT_EVERY)
        for _ in range(steps):
            until = self._clock.monotonic() + seconds / steps
            try:
                await self._take_snapshot()
                while self._acting and self._clock.monotonic() < until:
                    await self._keep_timetable(min(until, self._clock.monotonic() + await self._work_actions()))
                await self._keep_timetable(until)
            except HoldfastError as error:
                self._timetable.expect(None)
                self._warnings.failed("timetable, snapshot or action failed", error)
            await asyncio.sleep(until - self._clock.monotonic())

    async def _keep_timetable(self, until: float) -> None:
        await self._timetable.keep(until)
        await asyncio.sleep(until - self._clock.monotonic())

    async def _work_actions(self) -> float:
        """Make one step of an action. Return the seconds to pause, so that workers keep most of the database's time."""
        began, self._acting = self._clock.monotonic(), False  # after an error until the next round
        self._acting = (await self._session.run(self._calls.actions.work())).more
        return (self._clock.monotonic() - began) * REST

    async def _take_snapshot(self) -> None:
        if not self._leads or (began := self._clock.monotonic()) < self._snapshot_at:
            return
        busy = await self._session.run(self._calls.figures.take())
        pause = SNAPSHOT_SHARE * (self._clock.monotonic() - began)
        self._snapshot_at = began + max(pause, SNAPSHOT_IDLE if busy is False else 0)

    async def _round(self) -> bool:
        """Run one round; return whether the next should follow at once."""
        result = await self._session.run(self._calls.workers.upkeep(self._worker, self._every * 3))
        self._timetable.expect(result.next_slot)
        if self._on_round is not None:
            await self._on_round(result)
        self._leads = result.term is not None
        self._acting = result.acting
        if result.term is None:
            return False
        self._log_reclaims(result)
        if self._clock.monotonic() >= self._prune_at:
            self._prune_at = self._clock.monotonic() + self._clock.jitter(PRUNE_EVERY)
            await self._prune()
        return max(result.promoted, result.expired) >= FULL_ROUND or bool(result.reclaimed)

    async def _prune(self) -> None:
        """Create partitions, then prune; a partition that cannot be locked does not prevent pruning."""
        try:
            await self._session.run(self._calls.workers.make_partitions())
        except HoldfastError as error:
            self._warnings.failed("history partitions not created", error)
        while (await self._session.run(self._calls.workers.prune(PRUNE_STEP)))[1] >= PRUNE_STEP:
            pass

    def _log_reclaims(self, result: UpkeepResult) -> None:
        for each in result.reclaimed:
            logs.event(log, logging.WARNING, "lease reclaimed", prior_worker=each["worker"], jobs=each["jobs"])
