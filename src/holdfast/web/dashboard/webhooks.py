"""Webhooks: endpoints with their state, and their deliveries; redeliver, enable, disable, rotate the secret, remove."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from starlette.responses import Response

from holdfast.model.webhook import DeliveryInfo, Endpoint
from holdfast.store.select import PAGE_BYTES, Page
from holdfast.store.webhooks import Deliveries
from holdfast.web.dashboard import paging
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Name, Paged, Seconds
from holdfast.web.problems import Problem, unknown
from holdfast.web.routing import READS_HOOKS, WRITES_HOOKS
from holdfast.web.webhooks import delivery as find_delivery
from holdfast.web.webhooks import get as find_endpoint

section = Section("Webhooks", "/webhooks", key="h", needs=READS_HOOKS)
MOST = 500  # endpoints in the list
STATUSES = ("PENDING", "DELIVERED", "FAILED")
OUTCOMES = {
    "retried": "It is delivered again, with fresh attempts.",
    "copied": "A new delivery of the same event is due.",
    "due": "It was waiting, and is due now.",
    "running": "It is being delivered now.",
}


class ListDeliveries(Paged):
    status: Literal["PENDING", "DELIVERED", "FAILED"] | None = None
    event_type: Name | None = None


class Rotate(ReasonForm):
    """Hours for which deliveries are signed with the old secrets, too."""

    hours: Seconds = 24.0


@section.page("/webhooks", "webhooks.html", READS_HOOKS)
async def show(visit: Visit) -> Values:
    """List the newest endpoints."""
    found = await visit.shared(visit.calls.webhooks.endpoints(visit.view, limit=MOST), 2.0)
    endpoints = [(each, state(each)) for each in found]
    return {"title": "Webhooks", "endpoints": endpoints, "most": MOST, "changes": WRITES_HOOKS}


@section.page("/webhooks/{endpoint_id}", "endpoint.html", READS_HOOKS)
async def show_endpoint(visit: Visit, endpoint_id: UUID, query: ListDeliveries) -> Values:
    """Show an endpoint and its deliveries, newest first."""
    found = await find_endpoint(visit, endpoint_id)
    which = Deliveries(endpoint=found.id, status=query.status, event_type=query.event_type)
    page = Page(limit=query.limit, before=await visit.before(query.cursor), size=PAGE_BYTES)
    part = await visit.run(visit.calls.webhooks.deliveries(which, page, visit.view))
    end = part.rows[-1].id if part.cut or len(part.rows) == query.limit else None
    return {
        "title": found.url[:60],
        "endpoint": found,
        "state": state(found),
        "changes": WRITES_HOOKS,
        "deliveries": part.rows,
        "given": paging.filters(visit, "status", "event_type"),
        "statuses": STATUSES,
        "newest": paging.newest(visit),
        "older": await paging.older(visit, end),
    }


def state(endpoint: Endpoint) -> str:
    """Return the state of an endpoint in one word."""
    if not endpoint.enabled:
        return "disabled"
    return "open" if endpoint.breaker_open_until is not None else "enabled"


@section.page("/webhooks/deliveries/{delivery_id}", "delivery.html", READS_HOOKS)
async def show_delivery(visit: Visit, delivery_id: UUID) -> Values:
    """Show what was sent, and the response."""
    found = await find_delivery(visit, delivery_id)
    removed = await is_removed(visit, found)
    return {"title": f"Delivery {found.id[-8:]}", "delivery": found, "removed": removed, "changes": WRITES_HOOKS}


async def is_removed(visit: Visit, delivery: DeliveryInfo) -> bool:
    """Return whether the endpoint of a delivery is gone."""
    calls = visit.calls.webhooks
    return delivery.endpoint is None or not await visit.run(calls.endpoints(visit.view, id_=delivery.endpoint))


@section.action("/webhooks/deliveries/{delivery_id}/redeliver", WRITES_HOOKS)
async def redeliver(visit: Visit, delivery_id: UUID) -> Done:
    """Deliver again: a failed delivery with fresh attempts, an ended one as a new one, a waiting one at once."""
    found = await find_delivery(visit, delivery_id)
    if await is_removed(visit, found):
        raise Problem(409, "the endpoint has been removed; publish the event again for those that exist")
    (result,) = await visit.run(visit.calls.webhooks.redeliver([found.id], visit.view))
    if result.outcome == "disabled":
        raise Problem(409, "the endpoint is disabled; enable it first")
    if result.outcome not in OUTCOMES:
        raise unknown("delivery", delivery_id)
    return Done(f"/webhooks/deliveries/{result.delivery or found.id}", OUTCOMES[result.outcome])


@section.action("/webhooks/{endpoint_id}/enable", WRITES_HOOKS)
async def enable(visit: Visit, endpoint_id: UUID) -> Done:
    """Enable deliveries to an endpoint, and close its breaker."""
    found = await find_endpoint(visit, endpoint_id)
    await visit.run(visit.calls.webhooks.enable(found.id, visit.caller.name, view=visit.view))
    return done(visit, found, "Enabled.")


@section.action("/webhooks/{endpoint_id}/disable", WRITES_HOOKS)
async def disable(visit: Visit, endpoint_id: UUID, form: ReasonForm) -> Done:
    """Disable deliveries to an endpoint."""
    found = await find_endpoint(visit, endpoint_id)
    await visit.run(visit.calls.webhooks.disable(found.id, form.reason, by=visit.caller.name, view=visit.view))
    return done(visit, found, "Disabled: waiting deliveries fail when they are due.")


@section.action("/webhooks/{endpoint_id}/test", WRITES_HOOKS)
async def test(visit: Visit, endpoint_id: UUID) -> Done:
    """Send an event of type holdfast.test to an endpoint."""
    found = await find_endpoint(visit, endpoint_id)
    delivery = await visit.run(visit.hf.webhooks.testing(found.id))
    if delivery is None:
        raise unknown("endpoint", endpoint_id)
    return Done(f"/webhooks/deliveries/{delivery}", "A test event is on its way, in one attempt.")


@section.action("/webhooks/{endpoint_id}/rotate", WRITES_HOOKS)
async def rotate(visit: Visit, endpoint_id: UUID, form: Rotate) -> Response:
    """Give an endpoint a new secret, and show it in the response, which no browser keeps."""
    found = await find_endpoint(visit, endpoint_id)
    secret, call = visit.hf.webhooks.rotating(
        found.id, 3600 * form.hours, by=visit.caller.name, reason=form.reason, view=visit.view
    )
    if not await visit.run(call):
        raise unknown("endpoint", endpoint_id)
    visit.forget()
    values = {
        "title": "New secret",
        "secret": secret,
        "about": f"It signs deliveries to {found.url}. The old secret signs them, too, for {form.hours:g} hours.",
        "back": f"/webhooks/{found.id}",
    }
    return await visit.dashboard.html(visit, "secret.html", values)


@section.action("/webhooks/{endpoint_id}/remove", WRITES_HOOKS)
async def remove(visit: Visit, endpoint_id: UUID, form: ReasonForm) -> Done:
    """Remove an endpoint with its secrets."""
    found = await find_endpoint(visit, endpoint_id)
    await visit.run(visit.calls.webhooks.remove(found.id, visit.caller.name, form.reason, visit.view))
    visit.forget()
    return Done("/webhooks", f"Removed {found.url}: waiting deliveries fail when they are due.")


def done(visit: Visit, endpoint: Endpoint, text: str) -> Done:
    visit.forget()
    return Done(f"/webhooks/{endpoint.id}", text)
