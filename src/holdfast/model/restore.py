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

    before: data from before this time was repaired. newest: time of the newest entry, about the time restored to. jobs:
    running jobs that were reclaimed. workers: workers that no longer exist. messages, deliveries: waiting ones that may
    have been sent after that time; they are marked. tokens: whether tokens were raised above a stored one. schedules:
    those that are behind. actions: running changes of many jobs, which continue. examples: ids of the messages and
    deliveries, at most 1,000.
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
