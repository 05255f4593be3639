"""Parameters and results of database calls that are more than a row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.model.job import Job


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of enqueue for one job."""

    id: str
    outcome: str

    def due(self) -> str | None:
        return None if self.outcome == "existing" else self.id


class ClaimInfo(msgspec.Struct, frozen=True):
    """What a claim returns besides its jobs."""

    waiting: int = 0  # rings in which jobs under a rate or a breaker wait for free slots
    started: frozenset[str] = frozenset()  # ids of such jobs, which start first
    closed: int = 0  # lanes that limits have closed
    limited: bool = False  # whether a whole queue has a limit
    busy: bool = False  # whether another claim kept this one from jobs of tenants and under limits
    more: bool = False  # whether another claim may find more at once


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of one claim."""

    jobs: list[Job]
    info: ClaimInfo


@dataclass(frozen=True, slots=True)
class Upkept:
    """The result of one round of upkeep; term is None if another worker leads."""

    term: int | None
    promoted: int
    reclaimed: list[dict[str, Any]]
    expired: int
    next_slot: float | None  # seconds until a schedule comes due
    known: bool  # whether this worker has a row in workers
    asleep: bool  # whether it has a row in sleepers


@dataclass(frozen=True, slots=True)
class NextSlot:
    """A schedule and the time from which to look for its next slot; `now` is the database's time."""

    name: str
    cron: str
    zone: str
    missed: Any
    next_at: datetime
    now: datetime

    @property
    def wait(self) -> float:
        """Return the seconds until it is due, 0 or less if it is. UTC avoids the connection's daylight saving time."""
        return (self.next_at.astimezone(UTC) - self.now.astimezone(UTC)).total_seconds()


@dataclass(frozen=True, slots=True)
class Fired:
    """The result of firing a schedule: the number of jobs (None if there was nothing to fire), the problem if it could
    not be fired, and the first job."""

    name: str
    jobs: int | None
    problem: str | None
    job: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions on jobs, for lists and operators' actions; all that are given must hold."""

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
            # Lists show only the last part of a type, so that part alone must match.
            ends = "right('.' || (last_error ->> 'type'), length(%s::text)) = %s"
            conditions.append(f"({ends} OR last_error ->> 'code' = %s)")
            params += [f".{self.error}", f".{self.error}", self.error]
        return " AND ".join(conditions), params
