"""What operators read of flow control: limits as they are in force and in use, and why a job does not run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """One row of the `limit_use` view: a key, what is in force for it and how much of that is in use.

    template: the rule that it comes from. tokens: starts that the rate allows now; next_token: seconds until it allows
    one. breaker: "closed", "open" or "half-open"; None where there is none. throttled: how often work was stepped over
    because of this key. override: what operators have set, and changed_by who.
    """

    key: str
    kind: str
    template: str | None
    concurrency: int | None
    running: int
    rate: float | None
    per: float | None
    burst: float | None
    tokens: float | None
    next_token: float | None
    paused: bool
    paused_at: datetime | None
    paused_until: datetime | None
    paused_by: str | None
    paused_reason: str | None
    breaker: str | None
    open_until: datetime | None
    probe: str | None
    failure_streak: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    breaker_after: int | None
    breaker_pause: float | None
    breaker_cap: float | None
    throttled: int
    weight: float | None
    override: dict[str, Any]
    changed_by: str | None
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is in a job's way, or where it is: `kind` for programs, `text` for people, and the facts."""

    kind: str
    text: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job does not run. `sentence` says it; reasons[0] is what blocks hardest. status is None when no such job is
    known. Notes are worth knowing and hold nothing up."""

    id: str
    status: str | None
    sentence: str
    reasons: list[Reason]
    notes: list[Reason]
