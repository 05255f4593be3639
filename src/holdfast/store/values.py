"""What database calls take and answer, where it is more than a row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.model.job import Job


@dataclass(frozen=True, slots=True)
class Accepted:
    """What enqueue answered for one job."""

    id: str
    outcome: str

    def due(self) -> str | None:
        return None if self.outcome == "existing" else self.id


class ClaimInfo(msgspec.Struct, frozen=True):
    """What a claim tells beside its jobs."""

    waiting: int = 0  # rings in which jobs under a rate or a breaker wait for free slots
    started: frozenset[str] = frozenset()  # ids of such jobs: they start before all others
    closed: int = 0  # lanes that limits have closed
    limited: bool = False  # whether a whole queue has a limit
    busy: bool = False  # whether another claim kept this one from jobs of tenants and under limits
    more: bool = False  # whether another claim may find more at once


@dataclass(frozen=True, slots=True)
class Claimed:
    """Jobs claimed together, and what the claim tells."""

    jobs: list[Job]
    info: ClaimInfo


@dataclass(frozen=True, slots=True)
class Upkept:
    """What one round of upkeep did; term is None where another worker leads."""

    term: int | None
    promoted: int
    reclaimed: list[dict[str, Any]]
    expired: int
    next_slot: float | None  # seconds until a schedule comes due
    known: bool  # whether this worker is among the workers
    asleep: bool  # whether it is among the sleepers


@dataclass(frozen=True, slots=True)
class NextSlot:
    """A schedule and where its next slot is looked for; `now` is the database's time."""

    name: str
    cron: str
    zone: str
    missed: Any
    next_at: datetime
    now: datetime

    @property
    def wait(self) -> float:
        """Seconds until it is due; 0 or less when it is. In UTC, as the connection's zone may have summer time."""
        return (self.next_at.astimezone(UTC) - self.now.astimezone(UTC)).total_seconds()


@dataclass(frozen=True, slots=True)
class Fired:
    """What came of firing a schedule: how many jobs, None when there was nothing to fire, or why it could not be; and
    the first of the jobs."""

    name: str
    jobs: int | None
    problem: str | None
    job: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which jobs a list or an operator's action is about; everything given must hold."""

    status: str | None = None
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    error: str | None = None
    batch: str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        conditions, params = ["true"], []
        for column in ("task", "queue", "tenant"):
            if (value := getattr(self, column)) is not None:
                conditions.append(f"{column} = %s")
                params.append(value)
        if self.status is not None:
            conditions.append("status::text = %s")
            params.append(self.status)
        if self.batch is not None:
            conditions.append("batch = %s::uuid")
            params.append(self.batch)
        if self.error is not None:
            # Lists show the last part of a type, so that part alone is enough.
            ends = "right('.' || (last_error ->> 'type'), length(%s::text)) = %s"
            conditions.append(f"({ends} OR last_error ->> 'code' = %s)")
            params += [f".{self.error}", f".{self.error}", self.error]
        return " AND ".join(conditions), params
