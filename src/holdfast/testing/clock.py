"""The database's clock, as a test sees it."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.errors import UsageError
from holdfast.store.scratch import Scratch


class Clock:
    """Moves the only time the engine knows: SQL's clock(). Python's own is left alone. Each test begins with the real
    time."""

    def __init__(self, database: Scratch) -> None:
        self._database = database

    def now(self) -> datetime:
        """What it says."""
        return self._database.now()

    def travel(self, by: float | timedelta) -> datetime:
        """Moves it by seconds or a timedelta, also back; it runs or stands as before. Answers the new time."""
        return self._database.travel(by.total_seconds() if isinstance(by, timedelta) else by)

    def set(self, at: datetime) -> datetime:
        """Moves it to a time; it runs or stands as before."""
        return self._database.set(zoned(at))

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stops it where it is, or at a time."""
        return self._database.freeze(None if at is None else zoned(at))

    def resume(self) -> datetime:
        """Lets it run on from where it stands."""
        return self._database.resume()

    def reset(self) -> datetime:
        """Gives it the real time again."""
        return self._database.set_right()


def zoned(at: datetime) -> datetime:
    """The same time; refused where nobody can tell which it is."""
    if at.tzinfo is None:
        raise UsageError(f"{at} has no time zone; use datetime(..., tzinfo=timezone.utc) or zoneinfo")
    return at
