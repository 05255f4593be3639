"""The database's clock, for tests."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.errors import UsageError
from holdfast.store.dev.scratch import Scratch


class Clock:
    """Sets the engine's only clock, SQL's clock(). Python's own clock stays unchanged. Each test begins with the real
    time."""

    def __init__(self, database: Scratch) -> None:
        self._database = database

    def now(self) -> datetime:
        """Return the current time of this clock."""
        return self._database.now()

    def travel(self, by: float | timedelta) -> datetime:
        """Move the clock by seconds or a timedelta, forward or back; a frozen clock stays frozen. Return the new
        time."""
        return self._database.travel(by.total_seconds() if isinstance(by, timedelta) else by)

    def set(self, at: datetime) -> datetime:
        """Move the clock to a time; a frozen clock stays frozen."""
        return self._database.set(zoned(at))

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stop the clock now, or at a time."""
        return self._database.freeze(None if at is None else zoned(at))

    def resume(self) -> datetime:
        """Let a frozen clock run again."""
        return self._database.resume()

    def reset(self) -> datetime:
        """Set the clock to the real time."""
        return self._database.set_right()


def zoned(at: datetime) -> datetime:
    """Return the time; raise UsageError if it has no time zone."""
    if at.tzinfo is None:
        raise UsageError(f"{at} has no time zone; use datetime(..., tzinfo=timezone.utc) or zoneinfo")
    return at
