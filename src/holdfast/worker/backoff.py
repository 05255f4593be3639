"""Pauses after claims that found nothing although there may be jobs."""

from __future__ import annotations

from holdfast.model.clock import CLOCK, Clock
from holdfast.store.jobs import ClaimInfo

FIRST, LONGEST = 0.001, 0.1  # seconds
EMPTY_CLAIMS = 5  # claims in a row without a job, after which there are pauses
BUSY_CLAIMS = 20  # claims in a row that a run until idle waits for the ring


class Backoff:
    """The claims in a row without the ring's lock, and those without a job that reported more."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._busy = 0
        self._empty = 0

    def note(self, info: ClaimInfo, jobs: int) -> None:
        """Count a claim."""
        self._busy = self._busy + 1 if info.busy else 0
        self._empty = self._empty + 1 if info.more and not jobs else 0

    @property
    def held_up(self) -> bool:
        """Return whether other claims hold the ring, and not yet for long."""
        return 0 < self._busy < BUSY_CLAIMS

    def pause(self) -> float:
        """Return the seconds until the next claim; 0 for no pause."""
        if self._busy:
            return min(FIRST * 2.0 ** min(self._busy, 10), LONGEST) * self._clock.uniform(0.5, 1.0)
        if self._empty > EMPTY_CLAIMS:  # open lanes whose jobs are locked, for example
            return min(FIRST * 2.0 ** min(self._empty - EMPTY_CLAIMS, 10), LONGEST)
        return 0.0
