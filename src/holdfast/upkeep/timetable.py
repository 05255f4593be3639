"""Fire schedules at their slots. Only the leader does this, but two overlapping leaders do no harm: firing compares and
advances the schedule in one transaction, so the second finds nothing to fire.

Each round of upkeep returns the seconds until the next slot. The leader waits for it and reads which schedules are due
by the database's clock. From the cron expression it computes the slots to fire and the next one.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Iterator

from holdfast.model.clock import CLOCK, Clock
from holdfast.model.schedule import MOST, Cron, Due
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.schedules import FireResult, NextSlot
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs

log = logs.get("timetable")
PAGE = 100
LOOK_AGAIN = 0.05  # seconds to wait when another transaction has locked a due schedule
ASIDE = 5.0  # seconds before a schedule that could not be fired is tried again
LEAST_LATE = 10.0


def tolerance(upkeep: float) -> float:
    """Return the seconds after which "skip" leaves a slot out. The leadership of a killed leader expires after three
    rounds, and another worker takes it within 1.25 rounds: slots in that time are late, not missed."""
    return max(LEAST_LATE, upkeep * 5)


class Timetable:
    """The schedules of the fleet, while this worker leads."""

    def __init__(self, settings: Settings, session: Session, calls: Calls, clock: Clock = CLOCK) -> None:
        self._session = session
        self._clock = clock
        self._calls = calls
        self._late = tolerance(settings.upkeep)
        self._due_at: float | None = None  # on the monotonic clock
        self._aside: dict[str, float] = {}
        self._problems: dict[str, str] = {}  # of schedules that this worker cannot read, to be stored
        self._last_logged: dict[str, str] = {}

    def expect(self, seconds: float | None) -> None:
        """Set the seconds until the next slot; None if there is none, or if another worker leads."""
        self._due_at = None if seconds is None else self._clock.monotonic() + seconds

    async def keep(self, until: float) -> None:
        """Fire schedules until a time on the monotonic clock; at least once if a slot is already due."""
        while self._due_at is not None and self._due_at <= until:
            await asyncio.sleep(self._due_at - self._clock.monotonic())
            self.expect(await self._fire_due(until))
            if self._clock.monotonic() >= until:
                break

    async def _fire_due(self, until: float) -> float | None:
        """Fire due schedules; return the seconds until the next check."""
        now = self._clock.monotonic()
        self._aside = {name: again for name, again in self._aside.items() if again > now}
        page = await self._session.run(self._calls.schedules.next(PAGE, list(self._aside)))
        due = [each for each in page if each.wait <= 0]
        if not due:
            return page[0].wait if page else None
        moved = False
        for batch in batches(self._plan(due)):
            for result in await self._session.run(self._calls.schedules.fire(batch)):
                moved = self._note(result) or moved
            if self._clock.monotonic() >= until:
                break
        if self._problems:
            await self._session.run(self._calls.schedules.flag(self._problems))
            self._problems = {}
        return 0.0 if moved else LOOK_AGAIN

    def _plan(self, due: Iterable[NextSlot]) -> Iterator[tuple[NextSlot, Due]]:
        """Yield the slots to fire of each schedule; set aside a schedule that this worker cannot read."""
        for slot in due:
            try:
                plan = read_cron(slot.cron, slot.zone, slot.missed).due(slot.next_at, slot.now, self._late)
            except Exception as error:  # any error: one schedule must not end one leader after another
                self._problems[slot.name] = str(error) or repr(error)
                self._set_aside(slot.name, self._problems[slot.name])
            else:
                yield slot, plan

    def _note(self, result: FireResult) -> bool:
        """Return whether the schedule has advanced; set it aside if it could not be fired."""
        if result.problem is not None:
            self._set_aside(result.name, result.problem)
            return False
        self._last_logged.pop(result.name, None)
        if result.jobs:
            logs.event(log, logging.DEBUG, "schedule fired", schedule=result.name, jobs=result.jobs)
        return result.jobs is not None

    def _set_aside(self, name: str, problem: str) -> None:
        """Skip a schedule for a while, so that it does not block other schedules."""
        self._aside[name] = self._clock.monotonic() + ASIDE
        if self._last_logged.get(name) != problem:
            self._last_logged[name] = problem
            logs.event(log, logging.ERROR, "schedule not fired", schedule=name, error=problem)


read_cron = functools.lru_cache(1000)(Cron)  # parsing takes longer than computing the next slot


def batches(planned: Iterable[tuple[NextSlot, Due]]) -> Iterator[list[tuple[NextSlot, Due]]]:
    """Group the schedules to fire in one transaction, which creates at most MOST jobs."""
    batch: list[tuple[NextSlot, Due]] = []
    jobs = 0
    for each in planned:
        if batch and jobs + len(each[1].slots) > MOST:
            yield batch
            batch, jobs = [], 0
        batch.append(each)
        jobs += len(each[1].slots)
    if batch:
        yield batch
