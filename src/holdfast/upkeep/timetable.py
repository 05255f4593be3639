"""Fires schedules at their slots. The leader alone looks, but two leaders that overlap do no harm: firing compares
where the schedule stands and moves it on in one transaction, so the second finds nothing to fire.

The leader learns from each round of upkeep in how many seconds the next slot comes due, waits for it, and asks which
schedules are due by the database's clock. From their cron text it works out the slots to fire and the one to follow.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Iterable, Iterator

from holdfast.model.schedule import MOST, Cron, Due
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.session import Session
from holdfast.store.values import Fired, NextSlot
from holdfast.telemetry import logs

log = logs.get("timetable")
PAGE = 100
LOOK_AGAIN = 0.05  # after somebody else was at a schedule that is due
ASIDE = 5.0  # seconds before a schedule that could not be fired is tried again
LEAST_LATE = 10.0


def tolerance(upkeep: float) -> float:
    """Seconds after which "skip" leaves a slot out. A killed leader's lead is free after three rounds, and another
    worker takes it a round and a quarter later: slots of that time are late, not missed."""
    return max(LEAST_LATE, upkeep * 5)


class Timetable:
    """The schedules of the fleet, while this worker leads."""

    def __init__(self, settings: Settings, session: Session, calls: Calls) -> None:
        self._session = session
        self._calls = calls
        self._late = tolerance(settings.upkeep)
        self._due_at: float | None = None  # on the monotonic clock
        self._aside: dict[str, float] = {}
        self._problems: dict[str, str] = {}  # to be flagged
        self._told: dict[str, str] = {}

    def expect(self, seconds: float | None) -> None:
        """Notes in how many seconds the next slot comes due; None when there is none, or when somebody else leads."""
        self._due_at = None if seconds is None else time.monotonic() + seconds

    async def keep(self, until: float) -> None:
        """Fires what comes due until a moment of the monotonic clock; at least once when something is due already."""
        while self._due_at is not None and self._due_at <= until:
            await asyncio.sleep(self._due_at - time.monotonic())
            self.expect(await self._fire_due(until))
            if time.monotonic() >= until:
                break

    async def _fire_due(self, until: float) -> float | None:
        """Fires what is due; answers in how many seconds to look again."""
        now = time.monotonic()
        self._aside = {name: again for name, again in self._aside.items() if again > now}
        page = await self._session.run(self._calls.next_schedules(PAGE, list(self._aside)))
        due = [each for each in page if each.wait <= 0]
        if not due:
            return page[0].wait if page else None
        moved = False
        for batch in batches(self._plan(due)):
            for told in await self._session.run(self._calls.fire_schedules(batch)):
                moved = self._note(told) or moved
            if time.monotonic() >= until:
                break
        await self._flag()
        return 0.0 if moved else LOOK_AGAIN

    def _plan(self, due: Iterable[NextSlot]) -> Iterator[tuple[NextSlot, Due]]:
        """What to fire of each schedule; one that this worker cannot read is set aside."""
        for it in due:
            try:
                plan = _read(it.cron, it.zone, it.missed).due(it.next_at, it.now, self._late)
            except Exception as error:  # whatever it is: one schedule must not end one leader after the other
                self._set_aside(it.name, str(error) or repr(error))
            else:
                yield it, plan

    def _note(self, told: Fired) -> bool:
        """Answers whether the schedule has moved on; one that could not be fired is set aside."""
        if told.problem is not None:
            self._set_aside(told.name, told.problem)
            return False
        self._told.pop(told.name, None)
        if told.jobs:
            logs.event(log, logging.DEBUG, "schedule fired", schedule=told.name, jobs=told.jobs)
        return told.jobs is not None

    def _set_aside(self, name: str, problem: str) -> None:
        """Leaves a schedule alone for a while, so that it does not keep the others from firing."""
        self._aside[name] = time.monotonic() + ASIDE
        self._problems[name] = problem
        if self._told.get(name) != problem:
            self._told[name] = problem
            logs.event(log, logging.ERROR, "schedule not fired", schedule=name, error=problem)

    async def _flag(self) -> None:
        """Notes in the database what could not be fired, for people to see."""
        problems, self._problems = self._problems, {}
        for name, problem in problems.items():
            await self._session.run(self._calls.flag_schedule(name, problem))


_read = functools.lru_cache(1000)(Cron)  # checking the text takes longer than finding its next slot


def batches(planned: Iterable[tuple[NextSlot, Due]]) -> Iterator[list[tuple[NextSlot, Due]]]:
    """Schedules to fire in one transaction: so many that it makes MOST jobs at most."""
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
