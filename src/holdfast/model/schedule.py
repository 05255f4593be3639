"""Schedules: compute slots from a cron expression in a time zone. The current time always comes from the database."""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Any, Literal, get_args

from cronsim import CronSim, CronSimError

from holdfast.errors import ConfigurationError
from holdfast.model.job import NewJob

Missed = Literal["skip", "once", "all"]
MOST = 1000  # slots of one schedule fired in one transaction
_TICK = timedelta(microseconds=1)
_LONGEST_TEXT = 200
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
# How far back to look for the latest slot: the next window is tried only if this one has none.
_WINDOWS = [timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=366)]


@dataclass(frozen=True, slots=True)
class Due:
    """Slots to fire now, and the time from which to look next; None if no slot will ever come."""

    slots: list[datetime]
    then: datetime | None


@dataclass(frozen=True, slots=True)
class Cron:
    """When a schedule comes due: a cron expression in a time zone, and what to do with missed slots.

    text: minute, hour, day of month, month, day of week; a sixth field in front is seconds. zone: as in
    "Europe/Berlin". missed: "skip" leaves out late slots, "once" fires the latest one, "all" fires each.
    """

    text: str
    zone: str = "UTC"
    missed: Missed = "once"

    def __post_init__(self) -> None:
        if self.missed not in get_args(Missed):
            raise ConfigurationError(f"missed must be 'skip', 'once' or 'all', got {self.missed!r}")
        _find_zone(self.zone)
        _check_text(self.text)
        if next(self.slots(_SOME_DAY), None) is None:
            raise ConfigurationError(f"cron expression {self.text!r} names a time that never comes")

    def slots(self, since: datetime) -> Iterator[datetime]:
        """Yield the slots at or after a time, in UTC, in ascending order."""
        last = since.astimezone(UTC) - _TICK
        with suppress(OverflowError):  # the calendar ends
            for local in _WallClock(self.text, local_time(last, self.zone)):
                # When clocks go back, CronSim finds a time of day in its first hour even if `last` is in the second.
                if (slot := local.astimezone(UTC)) > last:
                    yield slot
                    last = slot

    def due(self, since: datetime, now: datetime, late: float) -> Due:
        """Return the slots from `since` to fire at `now`; "skip" leaves out those more than `late` seconds old."""
        # In UTC, because within one zone Python subtracts wall-clock times, which is wrong across clock changes.
        since, now = since.astimezone(UTC), now.astimezone(UTC)
        if self.missed == "once":
            latest = self._latest(since, now)
            return Due([] if latest is None else [latest], self._after(now))
        start = since if self.missed == "all" else max(since, now - timedelta(seconds=late))
        found = list(islice(self._between(start, now), MOST + 1))
        return Due(found, self._after(now)) if len(found) <= MOST else Due(found[:MOST], found[MOST])

    def _between(self, since: datetime, now: datetime) -> Iterator[datetime]:
        return takewhile(lambda slot: slot <= now, self.slots(since))

    def _after(self, now: datetime) -> datetime | None:
        return next(self.slots(now + _TICK), None)

    def _latest(self, since: datetime, now: datetime) -> datetime | None:
        for start in (*(now - window for window in _WINDOWS if now - window > since), since):
            latest = None
            for latest in self._between(start, now):  # noqa: B007 - the last one is the result
                pass
            if latest is not None:
                return latest
        return None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as declared in code: a name, a cron, and the job that each slot enqueues."""

    name: str
    cron: Cron
    job: NewJob


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as stored in the database; times are in UTC.

    next_at: the time from which to look for the next slot, and that slot itself once the leader has computed it.
    last_at: the slot fired last. problem: why the leader could not fire it. live: whether a live worker has its task.
    served: whether a live worker serves its queue. now: the database's time.
    """

    name: str
    task: str
    cron: str
    zone: str
    missed: str
    payload: dict[str, Any]
    options: dict[str, Any]
    paused: bool
    next_at: datetime | None
    last_at: datetime | None
    last_job: str | None
    problem: str | None
    registered_at: datetime
    live: bool
    served: bool
    now: datetime

    @property
    def queue(self) -> str:
        """Return the queue of its jobs."""
        return str(self.options.get("queue") or "default")

    @property
    def overdue(self) -> float:
        """Return the seconds since it came due; 0 or less if it is not due."""
        return 0.0 if self.next_at is None else (self.now - self.next_at).total_seconds()


class _WallClock(CronSim):
    """CronSim for zones whose clocks change by half an hour (Australia/Lord_Howe). CronSim advances by whole hours, and
    skips slots after such a change; where the offset has changed, this class advances in small steps."""

    def advance_hour(self) -> bool:
        before = self.dt
        moved = super().advance_hour()
        if moved and self.dt.utcoffset() != before.utcoffset():
            self.dt = before
            while self.dt.hour not in self.hours:
                self.tick(seconds=3600 - self.dt.minute * 60 - self.dt.second)  # to the next full hour
                if self.dt.date() != before.date():
                    break
        return moved

    def advance_minute(self) -> bool:
        before = self.dt
        moved = super().advance_minute()
        if moved and self.dt.utcoffset() != before.utcoffset():
            self.dt = before.replace(second=0)
            while self.dt.minute not in self.minutes and self.dt.hour == before.hour:
                self.tick(seconds=60)
        return moved


def local_time(moment: datetime, zone: str) -> datetime:
    """Return a time in a zone's local time."""
    return moment.astimezone(_find_zone(zone))


def _check_text(text: str) -> None:
    value: Any = text  # not every caller has a type checker
    hint = "write minute, hour, day of month, month, day of week, as in '0 3 * * *'; a sixth field in front is seconds"
    if not isinstance(value, str) or len(text) > _LONGEST_TEXT:
        raise ConfigurationError(
            f"a cron expression must be a string of at most {_LONGEST_TEXT} characters, got {text!r}; {hint}"
        )
    try:
        CronSim(text, _SOME_DAY)
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        why = str(error).lower() or "bad step"
        raise ConfigurationError(f"cron expression {text!r} cannot be read: {why}; {hint}") from None


def _find_zone(name: str) -> tzinfo:
    if name == "UTC":  # needs no time zone database
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, TypeError, ValueError, OSError):
        raise ConfigurationError(f"there is no time zone {name!r} on this machine{_zone_hint(name)}") from None


def _zone_hint(name: object) -> str:
    known = {zone.lower(): zone for zone in zoneinfo.available_timezones()}
    if not known:
        return ", nor any other; install them: pip install tzdata"
    near = difflib.get_close_matches(str(name).lower(), known, n=1)
    return f"; did you mean {known[near[0]]!r}?" if near else "; zones are named as in 'Europe/Berlin'"
