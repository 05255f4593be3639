"""Webhooks: the events that are published, the endpoints that are told of them, and how it went."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

TASK = "holdfast.webhook"
QUEUE = "webhooks"
"""A delivery is a job of this task on this queue."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that endpoints are to be told: `Event("order.paid", {"order": 7}, tenant="acme")`.

    body is sent as JSON; bytes are sent as they are. With a key, the tenant's second event with that key makes nothing
    and answers the first. id is made unless given; the same id again is delivered to no endpoint twice.
    """

    type: str
    body: Any
    tenant: str | None = None
    id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What came of an event: its id, the ids of its deliveries, and whether it was published before."""

    event: str
    deliveries: list[str]
    existing: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the `webhook_endpoint_state` view: where a tenant is told of events.

    events: types, or all of a kind ("order.*"); None is all. secrets: how many are valid; those before the newest are
    until old_secrets_until. secret is set only in what `add` answers, and shown nowhere else.
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
    """One row of the `webhook_deliveries` view. status: PENDING, DELIVERED or FAILED; job_status says it more finely.

    What the endpoint last answered is in http_status, response_headers and response_body, cut to 16 kB.
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
    """What came of the wish to deliver again.

    outcome: retried (it had failed), copied (it had ended; delivery is the id of the new one), due (it waited, and need
    not wait longer), running, disabled (its endpoint is, and nothing was done) or unknown.
    """

    id: str
    outcome: str
    delivery: str | None


@dataclass(frozen=True, slots=True)
class Target:
    """What a worker knows of an endpoint when it sends; the secrets that are valid now, the newest first."""

    tenant: str | None
    url: str
    prefix: str
    timeout: float
    dev: bool
    enabled: bool
    disabled_reason: str | None
    secrets: list[str] = field(repr=False)
