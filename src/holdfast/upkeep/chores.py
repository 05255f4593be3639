"""The upkeep loop in each worker. Every few seconds it tries for the lead; the leader promotes due jobs, reclaims
expired leases, fires schedules, prunes and makes partitions. Each chore is safe when two leaders overlap; the lead only
saves work."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.session import Session
from holdfast.store.values import Upkept
from holdfast.telemetry import logs
from holdfast.upkeep.timetable import Timetable

log = logs.get("upkeep")
PRUNE_EVERY = 60.0
PRUNE_STEP = 1000
FULL_ROUND = 1000  # promoted in one round: there is more, do not wait


OnRound = Callable[[Upkept], Awaitable[None]]  # hears what each round found of this worker


class Upkeep:
    """One worker's part in the fleet's upkeep."""

    def __init__(
        self, worker: str, settings: Settings, session: Session, calls: Calls, on_round: OnRound | None = None
    ) -> None:
        self._worker = worker
        self._on_round = on_round
        self._every = settings.upkeep
        self._session = session
        self._calls = calls
        self._prune_at = 0.0
        self._warnings = logs.Seldom(log)
        self._timetable = Timetable(settings, session, calls)

    async def run(self) -> None:
        """Rounds for ever."""
        while True:
            busy = False
            try:
                busy = await self._round()
            except HoldfastError as error:
                self._timetable.expect(None)
                self._warnings.failed("upkeep failed", error)
            await self._rest(0 if busy else self._every * random.uniform(0.75, 1.25))

    async def once(self) -> None:
        """One round, and the schedules that are due, for who is there for a moment only: where workers run, one of them
        leads, and there is nothing to do."""
        try:
            while await self._round():
                pass
            await self._timetable.keep(time.monotonic())
        except HoldfastError as error:
            self._warnings.failed("upkeep failed", error)

    async def _rest(self, seconds: float) -> None:
        """Waits for the next round; the leader fires the schedules that come due meanwhile."""
        until = time.monotonic() + seconds
        try:
            await self._timetable.keep(until)
        except HoldfastError as error:
            self._timetable.expect(None)
            self._warnings.failed("timetable failed", error)
        await asyncio.sleep(until - time.monotonic())

    async def _round(self) -> bool:
        """One round; answers whether there is more to do at once."""
        done = await self._session.run(self._calls.upkeep(self._worker, self._every * 3))
        self._timetable.expect(done.next_slot)
        if self._on_round is not None:
            await self._on_round(done)
        if done.term is None:
            return False
        self._tell(done)
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + PRUNE_EVERY * random.uniform(0.75, 1.25)
            await self._prune()
        return max(done.promoted, done.expired) >= FULL_ROUND or bool(done.reclaimed)

    async def _prune(self) -> None:
        """Partitions and pruning each on their own: one that cannot have its lock now does not keep back the other."""
        try:
            await self._session.run(self._calls.make_partitions())
        except HoldfastError as error:
            self._warnings.failed("history partitions not created", error)
        while (await self._session.run(self._calls.prune(PRUNE_STEP)))[1] >= PRUNE_STEP:
            pass

    def _tell(self, done: Upkept) -> None:
        for each in done.reclaimed:
            logs.event(log, logging.WARNING, "lease reclaimed", prior_worker=each["worker"], jobs=each["jobs"])
