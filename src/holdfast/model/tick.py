"""What one bounded pass did, or a worker in one window, and what tenants used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


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
    """Lanes (a tenant's jobs under the same limits) that were stepped over because a limit had no room, or because
    their tenant had its `per_tenant` while there was room for more."""
    contention: int
    """Limits that were stepped over because somebody else was working on them at that moment."""
    depth: int
    """Jobs that waited at the end: exact up to 10,000, about how many above that."""
    tenants: dict[str, int]
    """Jobs taken of each tenant; those without one count under ''."""


class Counts(NamedTuple):
    """What a worker has done: since it started, or in one pass or window."""

    claimed: int = 0
    processed: int = 0
    succeeded: int = 0
    failed: int = 0
    throttled: int = 0
    contention: int = 0

    def since(self, earlier: Counts) -> Counts:
        """What has been done since then."""
        return Counts(*(now - then for now, then in zip(self, earlier, strict=True)))


@dataclass(frozen=True, slots=True)
class Level:
    """One row of the view `health_levels`: a figure of the last five minutes, how it stands, and from where on."""

    metric: str
    value: float | None
    level: str | None
    warning: float | None = None
    critical: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What is in the database: jobs by queue and state, for how many seconds the oldest due one of a queue waits, which
    states hold estimates, and what else Prometheus is told."""

    jobs: dict[str, dict[str, int]]
    waits: dict[str, float]
    workers: int
    levels: list[Level]
    estimated: set[str]


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used, by the names it was summed by."""

    by: dict[str, Any]
    runs: int
    failures: int
    run_seconds: float
    queue_seconds: float
