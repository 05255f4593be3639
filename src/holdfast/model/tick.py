"""What one bounded pass did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """The answer of `hf.tick()`, also kept in the table `ticks`."""

    id: str
    worker: str
    seconds: float
    claimed: int
    """Jobs taken: at most `max_jobs`, and at most `per_tenant` of one tenant."""
    processed: int
    """Attempts made: what was claimed, without what was canceled or lost before it could start."""
    succeeded: int
    failed: int
    """Attempts that failed, whether the job will be tried again or not."""
    throttled: int
    """Lanes (a tenant's jobs under the same limits) that were stepped over because a limit had no room."""
    contention: int
    """Limits that were stepped over because somebody else was working on them at that moment."""
    depth: int
    """Jobs that waited at the end: exact up to 10,000, about how many above that."""
    tenants: dict[str, int]
    """Jobs taken of each tenant; those without one count under ''."""
