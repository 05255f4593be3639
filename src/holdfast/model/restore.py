"""What `after_restore` finds and does in a database that was restored to the past."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LateSchedule:
    """A schedule that is behind: its slots that were due since, and how many its policy fires."""

    name: str
    missed: str
    since: datetime
    fires: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What after_restore has done, or would do.

    before: what was there before this moment belongs to the past. newest: the last sign of life in the data, so about
    the moment restored to. jobs: running jobs that are given back, attempts counted. workers: those that are no more.
    messages, deliveries: those that wait and may have been sent in the future that was lost; they are marked. tokens:
    whether tokens had to pass a stored one. schedules: those that are behind. actions: changes of many jobs that go on.
    examples: ids of the messages and deliveries, 1,000 at most.
    """

    before: datetime
    newest: datetime | None
    jobs: int
    workers: list[str]
    sleepers: int
    messages: int
    deliveries: int
    tokens: bool
    actions: int
    examples: list[str] = field(default_factory=list)
    more: bool = False
    schedules: list[LateSchedule] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        """Return whether everything is in order."""
        found = (self.jobs, self.workers, self.messages, self.deliveries, self.tokens, self.schedules)
        return not any(found)
