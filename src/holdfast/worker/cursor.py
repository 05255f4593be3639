"""Where a worker's scans of plain jobs begin: after the last one that it claimed of each queue and priority.

Behind a transaction that is held open elsewhere, index entries of finished jobs cannot be removed; starting after them
keeps a claim's cost flat. A job may land behind the cursor, when its transaction commits late or it is retried. So now
and then a scan begins at the start: at once when the queue seems empty, else once a second, and never for more than a
twentieth of the worker's time.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.model.job import Job

SCAN_EVERY = 1.0  # seconds
SCAN_SHARE = 20  # the next scan from the start may come after this many times the duration of the last
CHEAP = 0.005  # seconds that any claim may take: not a cost of where it began


class Cursor:
    """The last plain job claimed, by queue and priority: a hint, never the truth."""

    def __init__(self) -> None:
        self._marks: dict[str, tuple[float, str]] = {}
        self._due_at = 0.0
        self._affordable_at = 0.0
        self._near_end = True  # whether the last claim found less than it asked for
        self.from_start = True  # whether the last claim began at the start

    def hint(self, now: float, *, from_start: bool = False) -> str | None:
        """Where the next claim begins, as SQL's claim() reads it."""
        due = self._affordable_at if self._near_end else self._due_at
        self.from_start = from_start or now >= due or not self._marks
        return None if self.from_start else msgspec.json.encode(self._marks).decode()

    def learn(self, jobs: Sequence[Job], *, enough: bool, began: float, now: float) -> None:
        """Take what a claim found, and how long it took."""
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
        if job is not None:  # never back: a delayed job that has just become due may stand before the others
            place, mark = f"{job.queue}/{job.priority}", (job.run_at, job.id)
            self._marks[place] = max(self._marks.get(place, mark), mark)

    def affordable_in(self, now: float) -> float:
        """Seconds until a scan from the start is worth its cost again; 0 when it is."""
        return 0.0 if self.from_start else max(self._affordable_at - now, 0.0)
