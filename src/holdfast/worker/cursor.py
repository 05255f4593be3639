"""The cursor: a worker's scans of plain jobs start after the last job it claimed of each queue and priority.

While a transaction is held open elsewhere, index entries of finished jobs cannot be removed. A scan that starts after
them has a constant cost. A job may commit behind the cursor, late or after a retry. So a scan starts at the beginning
when the queue seems empty, else once a second, and for at most a twentieth of the worker's time.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.model.job import Job

SCAN_EVERY = 1.0  # seconds
SCAN_SHARE = 20  # the next scan from the start may come after this many times the duration of the last
CHEAP = 0.005  # seconds: a claim this short is not slow because of where it started


class Cursor:
    """The last plain job claimed, by queue and priority: a hint, never the truth."""

    def __init__(self) -> None:
        self._marks: dict[str, tuple[float, str]] = {}
        self._due_at = 0.0
        self._affordable_at = 0.0
        self._near_end = True  # whether the last claim found less than it asked for
        self.from_start = True  # whether the last claim began at the start

    def hint(self, now: float, *, from_start: bool = False) -> str | None:
        """Return the start of the next claim in the form that claim() in SQL reads."""
        due = self._affordable_at if self._near_end else self._due_at
        self.from_start = from_start or now >= due or not self._marks
        return None if self.from_start else msgspec.json.encode(self._marks).decode()

    def learn(self, jobs: Sequence[Job], *, enough: bool, began: float, now: float) -> None:
        """Update the cursor with the jobs of a claim and its duration."""
        self._near_end = not enough
        if self.from_start:
            self._affordable_at = now + max(now - began - CHEAP, 0.0) * SCAN_SHARE
            self._due_at = max(now + SCAN_EVERY, self._affordable_at)
            self._marks.clear()
        place, last = None, None
        for job in jobs:
            if job.lane == 0:
                if place is not None and place != (job.queue, job.priority):
                    self._mark(last)
                place, last = (job.queue, job.priority), job
        self._mark(last)

    def _mark(self, job: Job | None) -> None:
        if job is not None:  # never back: a delayed job may stand before jobs claimed earlier
            place, mark = f"{job.queue}/{job.priority}", (job.run_at, job.id)
            self._marks[place] = max(self._marks.get(place, mark), mark)

    def affordable_in(self, now: float) -> float:
        """Return the seconds until a scan from the beginning is affordable."""
        return 0.0 if self.from_start else max(self._affordable_at - now, 0.0)
