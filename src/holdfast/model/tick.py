"""Results of a bounded pass or of a worker's window, and the usage of tenants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of `hf.tick()`, also stored in the table `ticks`."""

    id: str
    worker: str
    seconds: float
    claimed: int
    """Claimed jobs: at most `max_jobs`, and at most `per_tenant` of one tenant."""
    processed: int
    """Attempts made: claimed jobs without those canceled or lost before their start."""
    succeeded: int
    failed: int
    """Failed attempts, with or without a retry."""
    throttled: int
    """Lanes (a tenant's jobs under the same limits) that were skipped because a limit was reached, or because their
    tenant had its `per_tenant` while there was room for more."""
    contention: int
    """Limits that were skipped because another transaction had locked them."""
    depth: int
    """Jobs that waited at the end: exact up to 10,000, an estimate above that."""
    tenants: dict[str, int]
    """Claimed jobs of each tenant; those without one count under ''."""


class Counts(NamedTuple):
    """Counters of a worker: since its start, or of one pass or window."""

    claimed: int = 0
    processed: int = 0
    succeeded: int = 0
    failed: int = 0
    throttled: int = 0
    contention: int = 0

    def since(self, earlier: Counts) -> Counts:
        """Return the difference to earlier counters."""
        return Counts(*(now - then for now, then in zip(self, earlier, strict=True)))


@dataclass(frozen=True, slots=True)
class Level:
    """One row of the view `health_levels`: a metric of the last five minutes, its level and its thresholds."""

    metric: str
    value: float | None
    level: str | None
    warning: float | None = None
    critical: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """The database's figures for Prometheus: jobs by queue and state, seconds that each queue's oldest due job has
    waited, live workers, levels, the states whose counts are estimates, when they were counted (Unix time), and what
    holds the vacuum horizon, by kind."""

    jobs: dict[str, dict[str, int]]
    waits: dict[str, float]
    workers: int
    levels: list[Level]
    estimated: set[str]
    taken_at: float = 0.0
    holders: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one group; `by` has the values it was grouped by."""

    by: dict[str, Any]
    runs: int
    failures: int
    run_seconds: float
    queue_seconds: float
