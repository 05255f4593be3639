"""After a restore to the past: the operation of `hf.actions.after_restore()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from holdfast.client.operation import Noun, Steps, operation
from holdfast.model.job import ids as new_ids
from holdfast.model.restore import LateSchedule, Restored
from holdfast.model.schedule import Cron, Due
from holdfast.store.schedules import NextSlot, ScheduleCalls

PAGE = 100
LATE = 10.0  # seconds; slots that are older are missed, not late


def _after_restore(
    self: Noun, *, plan: bool = False, by: str | None = None, reason: str | None = None, before: datetime | None = None
) -> Steps[Restored]:
    """Repair a database that was restored to an earlier time, and return the changes; with plan, only list them. A
    second call finds nothing to do.

    Reclaim the jobs of workers that no longer exist; their attempts count. Mark waiting messages and deliveries,
    because they may have been sent after that time. Fire schedules that are behind by their policy for missed slots.
    before: repair data from before this time; default: the server's start.
    """
    calls, id_ = self._calls, new_ids.make()
    done: Restored | None = None
    while done is None or (done.more and not plan):
        part: Restored = yield calls.restore.after_restore(id_, plan=plan, by=by, reason=reason, before=before)
        done = part if done is None else _sum(done, part)
    schedules = yield from _fire(calls.schedules, plan)
    return replace(done, schedules=schedules)


after_restore, aafter_restore = operation(_after_restore)


def _fire(calls: ScheduleCalls, plan: bool) -> Steps[list[LateSchedule]]:
    """Fire the schedules that are behind, or plan it, and return them."""
    found: list[LateSchedule] = []
    names: list[str] = []
    while due := [each for each in (yield calls.next(PAGE, names)) if each.wait <= 0]:
        for slot, fires in _planned(due):
            found.append(LateSchedule(slot.name, slot.missed, slot.next_at, len(fires.slots)))
            if not plan:
                yield calls.fire([(slot, fires)])
        names += [each.name for each in due]
    return found


def _planned(due: list[NextSlot]) -> Iterator[tuple[NextSlot, Due]]:
    """Yield what each schedule fires. One that cannot be read is left to the leader, which reports it."""
    for slot in due:
        fires = None
        with suppress(Exception):  # any error, as in the timetable
            fires = Cron(slot.cron, slot.zone, slot.missed).due(slot.next_at, slot.now, LATE)
        if fires is not None:
            yield slot, fires


def _sum(one: Restored, other: Restored) -> Restored:
    return replace(
        one,
        jobs=one.jobs + other.jobs,
        workers=[*one.workers, *other.workers],
        sleepers=one.sleepers + other.sleepers,
        messages=one.messages + other.messages,
        deliveries=one.deliveries + other.deliveries,
        tokens=one.tokens or other.tokens,
        examples=[*one.examples, *other.examples][:1000],
        more=other.more,
    )
