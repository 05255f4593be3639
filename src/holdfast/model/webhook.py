"""Webhooks: events, the endpoints that receive them, and deliveries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

TASK = "holdfast.webhook"
QUEUE = "webhooks"
"""A delivery is a job of this task on this queue."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event to send to endpoints: `Event("order.paid", {"order": 7}, tenant="acme")`.

    body is sent as JSON; bytes are sent unchanged. Publishing a tenant's second event with the same key has no effect
    and returns the first. id is generated unless given; an event with the same id is delivered to each endpoint once.
    """

    type: str
    body: Any
    tenant: str | None = None
    id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A published event: its id, the ids of its deliveries, and whether it was published before."""

    event: str
    deliveries: list[str]
    existing: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the `webhook_endpoint_state` view: where a tenant receives events.

    events: types, or all of a kind ("order.*"); None is all. secrets: how many are valid; all but the newest expire at
    old_secrets_until. secret is set only in the result of `add`.
    """

    id: str
    tenant: str | None
    url: str
    events: list[str] | None
    prefix: str
    timeout: float
    dev: bool
    enabled: bool
    disabled_reason: str | None
    description: str | None
    created_at: datetime
    updated_at: datetime
    secrets: int
    old_secrets_until: datetime | None
    failure_streak: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    breaker_open_until: datetime | None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DeliveryInfo:
    """One row of the `webhook_deliveries` view. status: PENDING, DELIVERED or FAILED; job_status has more detail.

    The endpoint's last response is in http_status, response_headers and response_body, truncated to 16 kB.
    """

    id: str
    tenant: str | None
    endpoint: str | None
    event: str | None
    event_type: str
    status: str
    job_status: str
    http_status: int | None
    response_headers: dict[str, str] | None
    response_body: bytes | None
    error: str | None
    attempts: int
    max_attempts: int
    created_at: datetime
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    finished_at: datetime | None
    body: str | None


@dataclass(frozen=True, slots=True)
class Redelivered:
    """The result of redelivering one delivery.

    outcome: retried (it had failed), copied (it had ended; delivery is the id of the new one), due (it was waiting and
    is now due), running, disabled (its endpoint is disabled; nothing was done) or unknown.
    """

    id: str
    outcome: str
    delivery: str | None


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint as a worker needs it to send; `secrets` are the valid ones, newest first."""

    tenant: str | None
    url: str
    prefix: str
    timeout: float
    dev: bool
    enabled: bool
    disabled_reason: str | None
    secrets: list[str] = field(repr=False)
