"""Calls of webhooks: endpoints, events, deliveries. See call.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from holdfast.model.view import EVERYTHING, View
from holdfast.model.webhook import DeliveryInfo, Endpoint, Event, Published, Redelivered, Target
from holdfast.store.call import Call, first, last, text_array
from holdfast.store.select import (
    Conditions,
    Page,
    Part,
    Shape,
    Where,
    changed_jobs,
    every,
    given,
    select_ids,
    select_page,
    visible,
)

MOVED = ("retried", "copied", "due")  # outcomes of a redelivery after which a delivery is due
_ENDPOINT = (
    "id::text, tenant, url, events, prefix, timeout, dev, enabled, disabled_reason, description, created_at, "
    "updated_at, secrets, old_secrets_until, failure_streak, last_success_at, last_failure_at, breaker_open_until"
)
_ID = "webhook_delivery_id"
_COLUMNS = (
    f"{_ID}::text, tenant_id, webhook_endpoint_id::text, event_id::text, event_type, status, "
    "job_status::text, http_status, response_headers, response_body, error_message, attempts, max_attempts, "
    "created_at, next_attempt_at, delivered_at, finished_at, body"
)
_NAMES = [each.name for each in fields(DeliveryInfo)]
_DELIVERY = Shape(
    dict(zip(_NAMES, _COLUMNS.split(", "), strict=True)), lambda row: DeliveryInfo(*row), ("body", "response_body")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries(Conditions):
    """Conditions on deliveries. Times are compared with created_at."""

    id: str | None = None
    endpoint: str | None = None
    tenant: str | None = None
    event: str | None = None
    event_type: str | None = None
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    SQL: ClassVar = {
        "id": "webhook_delivery_id = %s::uuid",
        "endpoint": "endpoint_key = %s",
        "tenant": "tenant_id = %s",
        "event": "event_id = %s::uuid",
        "event_type": "event_type = %s",
        "status": "status = %s",
        # A job ends after it is created, so the second condition skips older partitions of history.
        "since": "created_at >= %s AND (finished_at >= %s OR finished_at IS NULL)",
        "until": "created_at < %s",
    }


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
        by: str | None = None,
        reason: str | None = None,
        view: View = EVERYTHING,
    ) -> Call[bool]:
        values = (id_, url, sealed, tenant, _texts(events), prefix, float(timeout), dev, description, by, reason)
        return Call(
            f"SELECT {self.schema}.add_endpoint(%s::uuid, %s, %s, %s, %s::text[], %s, %s, %s, %s, %s, %s, %s)",
            (*values, view.tenant),
            first,
        )

    def endpoints(
        self, view: View = EVERYTHING, *, id_: str | None = None, limit: int | None = None
    ) -> Call[list[Endpoint]]:
        """Return all endpoints, or one; with a limit, the newest."""
        where = every((given("id = %s::uuid", id_), visible(self.schema, view, indexed=True)))
        order = "tenant, t.id" if limit is None else "t.id DESC"
        return Call(
            f"SELECT {_ENDPOINT} FROM {self.schema}.webhook_endpoint_state t WHERE {where.sql} "
            f"ORDER BY {order} LIMIT %s",
            (*where.params, limit),
            lambda rows: [Endpoint(*row) for row in rows],
        )

    def change(
        self,
        id_: str,
        change: Mapping[str, Any],
        by: str | None = None,
        reason: str | None = None,
        view: View = EVERYTHING,
    ) -> Call[bool]:
        values = (id_, msgspec.json.encode(change).decode(), by, reason, view.tenant)
        return Call(f"SELECT {self.schema}.change_endpoint(%s::uuid, %s::jsonb, %s, %s, %s)", values, first)

    def enable(self, id_: str, by: str | None = None, reason: str | None = None, view: View = EVERYTHING) -> Call[bool]:
        return self.change(id_, {"enabled": True}, by, reason, view)

    def disable(
        self, id_: str, reason: str | None, *, url: str | None = None, by: str | None = None, view: View = EVERYTHING
    ) -> Call[bool]:
        """Disable an endpoint; with a url, only if it still has that one."""
        values = (id_, reason, url, by, view.tenant)
        return Call(f"SELECT {self.schema}.disable_endpoint(%s::uuid, %s, %s, %s, %s)", values, first)

    def remove(self, id_: str, by: str | None = None, reason: str | None = None, view: View = EVERYTHING) -> Call[bool]:
        values = (id_, by, reason, view.tenant)
        return Call(f"SELECT {self.schema}.remove_endpoint(%s::uuid, %s, %s, %s)", values, first)

    def rotate(
        self,
        id_: str,
        sealed: str,
        keep: float,
        by: str | None = None,
        reason: str | None = None,
        view: View = EVERYTHING,
    ) -> Call[bool]:
        return Call(
            f"SELECT {self.schema}.rotate_secret(%s::uuid, %s, make_interval(secs => %s), %s, %s, %s)",
            (id_, sealed, float(keep), by, reason, view.tenant),
            first,
        )

    def test(self, id_: str, event: str, body: str) -> Call[str | None]:
        return Call(
            f"SELECT {self.schema}.test_endpoint(%s::uuid, %s, %s::uuid)::text",
            (id_, body, event),
            first,
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
        return Call(f"SELECT {self.schema}.read_body(%s::uuid, %s)", (id_, tenant), first)

    def wanted(self) -> Call[bool]:
        """Return whether any delivery is pending, now or later."""
        return Call(f"SELECT {self.schema}.webhooks_wanted()", (), first)

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

    def deliveries(self, which: Deliveries, page: Page, view: View = EVERYTHING) -> Call[Part[DeliveryInfo]]:
        """Return a page of the matching deliveries. The index on endpoints does not have the order of ids."""
        ids_first = which.endpoint is not None
        return select_page(_DELIVERY, *self._deliveries(which, view), page, id_=_ID, ids_first=ids_first)

    def delivery_ids(self, which: Deliveries, page: Page) -> Call[list[str]]:
        return select_ids(*self._deliveries(which, EVERYTHING), page, id_=_ID)

    def _deliveries(self, which: Deliveries, view: View) -> tuple[str, Where]:
        where = every((which.where(), visible(self.schema, view, "tenant_id")))
        return f"{self.schema}.webhook_deliveries", where

    def redeliver(self, ids: Sequence[str], view: View = EVERYTHING) -> Call[list[Redelivered]]:
        some = changed_jobs(self.schema, ids, view)
        return Call(
            f"SELECT id::text, outcome, delivery::text FROM {self.schema}.redeliver({some.sql})",
            some.params,
            lambda rows: [Redelivered(*row) for row in rows],
            due=lambda results: last([each.delivery or each.id for each in results if each.outcome in MOVED]),
        )

    def now(self) -> Call[datetime]:
        """Return the database's time."""
        return Call(f"SELECT {self.schema}.clock()", (), first)


def _texts(items: Sequence[str] | None) -> str | None:
    return None if items is None else text_array(items)
