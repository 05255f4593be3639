"""Flow control for operators: limits and their use, and why a job does not run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """One row of the `limit_use` view: a key, its effective limits and their use.

    template: the rule of the key. tokens: starts that the rate allows now; next_token: seconds until it allows one.
    breaker: "closed", "open" or "half-open"; None without a breaker. throttled: how often lanes were skipped because of
    this key. override: operators' values, last set by changed_by.
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
    """One reason why a job waits, or its state: `kind` for programs, `text` for people, and the facts."""

    kind: str
    text: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job does not run. `sentence` is a summary; reasons[0] is the main reason. status is None for an unknown
    job. Notes do not block the job."""

    id: str
    status: str | None
    sentence: str
    reasons: list[Reason]
    notes: list[Reason]
