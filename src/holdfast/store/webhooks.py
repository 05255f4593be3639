"""Calls of webhooks: endpoints, events, deliveries. See call.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.model.webhook import DeliveryInfo, Endpoint, Event, Published, Redelivered, Target
from holdfast.store.call import Call, Rows, array, last, text_array

MOVED = ("retried", "copied", "due")  # outcomes of a redelivery after which a delivery is due
ENDPOINT = (
    "id::text, tenant, url, events, prefix, timeout, dev, enabled, disabled_reason, description, created_at, "
    "updated_at, secrets, old_secrets_until, failure_streak, last_success_at, last_failure_at, breaker_open_until"
)
DELIVERY = (
    "webhook_delivery_id::text, tenant_id, webhook_endpoint_id::text, event_id::text, event_type, status, "
    "job_status::text, http_status, response_headers, response_body, error_message, attempts, max_attempts, "
    "created_at, next_attempt_at, delivered_at, finished_at, body"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """Conditions on deliveries; all that are given must hold. Times are compared with created_at."""

    id: str | None = None
    endpoint: str | None = None
    tenant: str | None = None
    event: str | None = None
    event_type: str | None = None
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def sql(self) -> tuple[str, list[Any]]:
        conditions, params = ["true"], []
        for condition, value in (
            ("webhook_delivery_id = %s::uuid", self.id),
            ("endpoint_key = %s", self.endpoint),
            ("tenant_id = %s", self.tenant),
            ("event_id = %s::uuid", self.event),
            ("event_type = %s", self.event_type),
            ("status = %s", self.status),
            ("created_at >= %s", self.since),
            ("created_at < %s", self.until),
            # A job ends after it is created, so this skips older partitions of history.
            ("(finished_at >= %s OR finished_at IS NULL)", self.since),
        ):
            if value is not None:
                conditions.append(condition)
                params.append(value)
        return " AND ".join(conditions), params


class WebhookCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def add(
        self,
        id_: str,
        url: str,
        sealed: str,
        *,
        tenant: str | None,
        events: Sequence[str] | None,
        prefix: str,
        timeout: float,
        dev: bool,
        description: str | None,
    ) -> Call[bool]:
        return Call(
            f"SELECT {self.schema}.add_endpoint(%s::uuid, %s, %s, %s, %s::text[], %s, %s, %s, %s)",
            (id_, url, sealed, tenant, _texts(events), prefix, float(timeout), dev, description),
            _first,
        )

    def endpoints(self, *, tenant: str | None = None, id_: str | None = None) -> Call[list[Endpoint]]:
        """Return all endpoints, those of a tenant, or one."""
        conditions = {"tenant = %s": tenant, "id = %s::uuid": id_}
        params = {condition: value for condition, value in conditions.items() if value is not None}
        where = " AND ".join(["true", *params])
        return Call(
            f"SELECT {ENDPOINT} FROM {self.schema}.webhook_endpoint_state WHERE {where} ORDER BY tenant, id",
            tuple(params.values()),
            lambda rows: [Endpoint(*row) for row in rows],
        )

    def change(self, id_: str, change: Mapping[str, Any]) -> Call[bool]:
        data = msgspec.json.encode(change).decode()
        return Call(f"SELECT {self.schema}.change_endpoint(%s::uuid, %s::jsonb)", (id_, data), _first)

    def enable(self, id_: str) -> Call[bool]:
        return Call(f"SELECT {self.schema}.enable_endpoint(%s::uuid)", (id_,), _first)

    def disable(self, id_: str, reason: str | None, url: str | None = None) -> Call[bool]:
        return Call(f"SELECT {self.schema}.disable_endpoint(%s::uuid, %s, %s)", (id_, reason, url), _first)

    def remove(self, id_: str) -> Call[bool]:
        return Call(f"SELECT {self.schema}.remove_endpoint(%s::uuid)", (id_,), _first)

    def rotate(self, id_: str, sealed: str, keep: float) -> Call[bool]:
        return Call(
            f"SELECT {self.schema}.rotate_secret(%s::uuid, %s, make_interval(secs => %s))",
            (id_, sealed, float(keep)),
            _first,
        )

    def test(self, id_: str, event: str, body: str) -> Call[str | None]:
        return Call(
            f"SELECT {self.schema}.test_endpoint(%s::uuid, %s, %s::uuid)::text",
            (id_, body, event),
            _first,
            due=lambda delivery: delivery,
        )

    def read(self, id_: str) -> Call[Target | None]:
        """Return what is needed to send; the secrets are as stored."""
        return Call(
            "SELECT tenant, url, prefix, timeout, dev, enabled, disabled_reason, secrets "
            f"FROM {self.schema}.read_endpoint(%s::uuid)",
            (id_,),
            lambda rows: Target(*rows[0]) if rows else None,
        )

    def read_body(self, id_: str, tenant: str | None) -> Call[str | None]:
        """Return the body of an event."""
        return Call(f"SELECT {self.schema}.read_body(%s::uuid, %s)", (id_, tenant), _first)

    def wanted(self) -> Call[bool]:
        """Return whether any delivery is pending, now or later."""
        return Call(f"SELECT {self.schema}.webhooks_wanted()", (), _first)

    def publish(
        self, event: Event, id_: str, body: str, *, priority: int, max_attempts: int | None, fresh: bool
    ) -> Call[Published]:
        return Call(
            "SELECT event::text, deliveries::text[], outcome "
            f"FROM {self.schema}.publish_event(%s, %s, %s, %s::uuid, %s, %s, %s, p_fresh => %s)",
            (event.type, body, event.tenant, id_, event.key, priority, max_attempts, fresh),
            lambda rows: Published(rows[0][0], list(rows[0][1]), rows[0][2] != "created"),
            lambda: self.publish(event, id_, body, priority=priority, max_attempts=max_attempts, fresh=False),
            lambda published: last(published.deliveries),
        )

    def deliveries(self, which: Deliveries, *, limit: int) -> Call[list[DeliveryInfo]]:
        """Return the newest matching deliveries."""
        where, params = which.sql()
        return Call(
            f"SELECT {DELIVERY} FROM {self.schema}.webhook_deliveries WHERE {where} "
            "ORDER BY webhook_delivery_id DESC LIMIT %s",  # ids grow with time, and every table has an index on them
            (*params, limit),
            lambda rows: [DeliveryInfo(*row) for row in rows],
        )

    def some_ids(self, which: Deliveries, after: str | None, *, limit: int) -> Call[list[str]]:
        """Return the next ids of matching deliveries, in order."""
        where, params = which.sql()
        if after is not None:
            where, params = f"{where} AND webhook_delivery_id > %s::uuid", [*params, after]
        return Call(
            f"SELECT webhook_delivery_id::text FROM {self.schema}.webhook_deliveries WHERE {where} "
            "ORDER BY webhook_delivery_id LIMIT %s",
            (*params, limit),
            lambda rows: [row[0] for row in rows],
        )

    def redeliver(self, ids: Sequence[str]) -> Call[list[Redelivered]]:
        return Call(
            f"SELECT id::text, outcome, delivery::text FROM {self.schema}.redeliver(%s::uuid[])",
            (array(ids),),
            lambda rows: [Redelivered(*row) for row in rows],
            due=lambda results: last([each.delivery or each.id for each in results if each.outcome in MOVED]),
        )

    def now(self) -> Call[datetime]:
        """Return the database's time."""
        return Call(f"SELECT {self.schema}.clock()", (), _first)


def _first(rows: Rows) -> Any:
    return rows[0][0]


def _texts(items: Sequence[str] | None) -> str | None:
    return None if items is None else text_array(items)
