"""The last minutes of each queue as series for charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.store.call import Row

MINUTES = 60
ONE = timedelta(minutes=1)
Series = list[float | None]


@dataclass(frozen=True, slots=True)
class History:
    """For each of the last minutes, oldest first: attempts in all, and by queue the rows of the table `minutes`."""

    minutes: Sequence[datetime]
    rows: Mapping[str, Mapping[datetime, Row]] = field(default_factory=dict)

    def total(self, name: str) -> Series:
        """Return a count of all queues."""
        return [sum(rows[at][name] for rows in self.rows.values() if at in rows) for at in self.minutes]

    def worst(self, name: str) -> Series:
        """Return the highest value of any queue, None where there is none."""
        found = ([rows[at][name] for rows in self.rows.values() if at in rows] for at in self.minutes)
        return [max((each for each in values if each is not None), default=None) for values in found]

    def waiting(self, queue: str) -> Series:
        """Return the jobs of a queue that could start, at the end of each minute."""
        rows = self.rows.get(queue, {})
        return [(rows[at]["ready"] or 0) if at in rows else 0 for at in self.minutes]


def history(rows: Iterable[Row], now: datetime) -> History:
    """Return the history from the result of `calls.figures.minutes()`; the minute that is not over is left out."""
    last = now.replace(second=0, microsecond=0) - 2 * ONE  # the one before is written a few seconds late
    queues: dict[str, dict[datetime, Row]] = {}
    for row in rows:
        queues.setdefault(row["queue"], {})[row["minute"]] = row
    if any(last + ONE in found for found in queues.values()):
        last += ONE
    return History([last - ONE * (MINUTES - 1 - place) for place in range(MINUTES)], queues)
