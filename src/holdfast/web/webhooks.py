"""/v1/webhooks: endpoints, events and deliveries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.model.webhook import DeliveryInfo, Endpoint, Event, Published, Redelivered
from holdfast.store.select import PAGE_BYTES, Page
from holdfast.store.webhooks import Deliveries
from holdfast.web.body import read_value
from holdfast.web.context import RequestContext
from holdfast.web.fields import (
    Body,
    Key,
    LongText,
    Moment,
    Name,
    Paged,
    ReasonBody,
    ReasonQuery,
    Seconds,
    Since,
    given,
    text,
)
from holdfast.web.jobs import AcceptedJob
from holdfast.web.problems import Problem, unknown
from holdfast.web.results import ChangeCount, changed
from holdfast.web.routing import READS_HOOKS, WRITES_HOOKS, Routes

routes = Routes("/webhooks", "webhooks")
MOST_ENDPOINTS = 1000  # in a list
PRIORITY = 2  # of deliveries, unless the token's best is lower
EventTypes = Annotated[list[Name], Meta(max_length=200)]
Timeout = Annotated[float, Meta(gt=0, le=300)]


class NewEndpoint(ReasonBody, kw_only=True):
    """A webhook endpoint of a tenant."""

    url: LongText
    """The https URL that receives the events."""
    tenant: Name | None = None
    events: EventTypes | None = None
    """Event types to deliver, such as order.paid; all if left out."""
    prefix: Name = "Holdfast"
    """Prefix of the headers: X-PREFIX-Signature ..."""
    timeout: Timeout = 30.0
    """Seconds for one delivery."""
    dev: bool = False
    """Allow http and private addresses; needs a token for all tenants."""
    description: LongText | None = None
    """For people."""


class EndpointChange(ReasonBody, kw_only=True):
    """Fields to change; fields that are left out stay as they are."""

    url: LongText | UnsetType = UNSET
    events: EventTypes | UnsetType | None = UNSET
    prefix: Name | UnsetType = UNSET
    timeout: Timeout | UnsetType = UNSET
    dev: bool | UnsetType = UNSET
    description: LongText | UnsetType | None = UNSET


class WhyDisabled(Body):
    """A reason, for people."""

    reason: LongText | None = None


class Rotation(ReasonBody, kw_only=True):
    """Seconds for which the previous secrets stay valid."""

    keep_old_for: Seconds = 86_400


class Removal(ReasonQuery, kw_only=True):
    """Reason of a removal."""


class NewEvent(Body):
    """An event for the tenant's endpoints."""

    type: Name
    """Such as order.paid."""
    body: msgspec.Raw
    """The JSON body to send."""
    tenant: Name | None = None
    key: Key | None = None
    """Identifies the event; a second one with the same key is not sent."""


class ListDeliveries(Paged):
    endpoint: UUID | None = None
    event: UUID | None = None
    event_type: Name | None = None
    status: Literal["PENDING", "DELIVERED", "FAILED"] | None = None
    tenant: Name | None = None
    since: Since | None = None
    """A time with its zone, or 90m, 24h, 30d."""
    until: Moment | None = None
    """A time with its zone."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The endpoints, newest first."""

    items: list[Endpoint]


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """A page of deliveries; `next` is the cursor of the next page."""

    items: list[DeliveryInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, shown once: null in a repeated response."""

    id: str
    secret: str | None


@routes.get("/endpoints", READS_HOOKS)
async def endpoints(ctx: RequestContext) -> Endpoints:
    """List the newest 1,000 endpoints, without their secrets."""
    return Endpoints(await ctx.run(ctx.calls.webhooks.endpoints(ctx.view, limit=MOST_ENDPOINTS)))


@routes.post("/endpoints", WRITES_HOOKS, status=201, secret=True)
async def add(ctx: RequestContext, new: NewEndpoint) -> Endpoint:
    """Create an endpoint. Only this response contains its secret."""
    check_dev(ctx, new.dev)
    values = given(new) | {"tenant": ctx.tenant(new.tenant)}
    id_, secret, call = ctx.hf.webhooks.adding(**values, secret=None, by=ctx.caller.name, view=ctx.view)
    await ctx.run(call)
    return replace(await get(ctx, UUID(id_)), secret=secret)


@routes.get("/endpoints/{endpoint_id}", READS_HOOKS)
async def get(ctx: RequestContext, endpoint_id: UUID) -> Endpoint:
    """Return an endpoint, without its secrets."""
    found = await ctx.run(ctx.calls.webhooks.endpoints(ctx.view, id_=str(endpoint_id)))
    if not found:
        raise unknown("endpoint", endpoint_id)
    return found[0]


@routes.patch("/endpoints/{endpoint_id}", WRITES_HOOKS)
async def update(ctx: RequestContext, endpoint_id: UUID, change: EndpointChange) -> Endpoint:
    """Change an endpoint."""
    found = await get(ctx, endpoint_id)
    values = given(change)
    # Where an operator has allowed private addresses, only operators may change the url.
    check_dev(ctx, values.get("dev", found.dev and "url" in values))
    reason = values.pop("reason", None)
    steps = ctx.hf.webhooks.changing(found.id, values, by=ctx.caller.name, reason=reason, view=ctx.view)
    return await ctx.run_steps(steps)


@routes.delete("/endpoints/{endpoint_id}", WRITES_HOOKS)
async def remove(ctx: RequestContext, endpoint_id: UUID, query: Removal) -> ChangeCount:
    """Remove an endpoint and its secrets."""
    found = await get(ctx, endpoint_id)
    await ctx.run(ctx.calls.webhooks.remove(found.id, ctx.caller.name, query.reason, ctx.view))
    return ChangeCount(1)


@routes.post("/endpoints/{endpoint_id}/rotate", WRITES_HOOKS, optional_body=True, secret=True)
async def rotate(ctx: RequestContext, endpoint_id: UUID, how: Rotation) -> Secret:
    """Give an endpoint a new secret. Only this response contains it."""
    found = await get(ctx, endpoint_id)
    secret, call = ctx.hf.webhooks.rotating(
        found.id, how.keep_old_for, by=ctx.caller.name, reason=how.reason, view=ctx.view
    )
    if not await ctx.run(call):
        raise unknown("endpoint", endpoint_id)
    return Secret(found.id, secret)


@routes.post("/endpoints/{endpoint_id}/enable", WRITES_HOOKS, optional_body=True)
async def enable(ctx: RequestContext, endpoint_id: UUID, why: ReasonBody) -> ChangeCount:
    """Enable deliveries to an endpoint, and close its breaker."""
    found = await get(ctx, endpoint_id)
    return await changed(ctx, ctx.calls.webhooks.enable(found.id, ctx.caller.name, why.reason, ctx.view))


@routes.post("/endpoints/{endpoint_id}/disable", WRITES_HOOKS, optional_body=True)
async def disable(ctx: RequestContext, endpoint_id: UUID, why: WhyDisabled) -> ChangeCount:
    """Disable deliveries to an endpoint."""
    found = await get(ctx, endpoint_id)
    return await changed(ctx, ctx.calls.webhooks.disable(found.id, why.reason, by=ctx.caller.name, view=ctx.view))


@routes.post("/endpoints/{endpoint_id}/test", WRITES_HOOKS, status=201)
async def test(ctx: RequestContext, endpoint_id: UUID) -> AcceptedJob:
    """Deliver an event of type holdfast.test to an endpoint, in one attempt. Return the delivery's id."""
    found = await get(ctx, endpoint_id)
    if (made := await ctx.run(ctx.hf.webhooks.testing(found.id))) is None:
        raise unknown("endpoint", endpoint_id)
    return AcceptedJob(made, existing=False)


@routes.post("/events", WRITES_HOOKS, status=201)
async def publish(ctx: RequestContext, new: NewEvent) -> Published:
    """Publish an event to the tenant's endpoints that subscribe to its type."""
    body = read_value(new.body, "body", ctx.hf.settings.max_payload)
    event = Event(new.type, body, tenant=ctx.tenant(new.tenant), key=new.key)
    return await ctx.hf.webhooks.apublish(ctx.conn, event, priority=max(PRIORITY, ctx.caller.priority))


@routes.get("/deliveries", READS_HOOKS)
async def deliveries(ctx: RequestContext, query: ListDeliveries) -> DeliveryPage:
    """List the deliveries that match, newest first."""
    same = {name: getattr(query, name) for name in ("event_type", "status", "tenant", "since", "until")}
    which = Deliveries(endpoint=text(query.endpoint), event=text(query.event), **same)
    page = Page(limit=query.limit, before=await ctx.before(query.cursor))
    calls = ctx.calls.webhooks
    if query.endpoint is not None:  # an index covers this filter
        found = await ctx.run(calls.deliveries(which, replace(page, size=PAGE_BYTES), ctx.view))
        end = found.rows[-1].id if found.cut or len(found.rows) == query.limit else None
        return DeliveryPage(found.rows, await ctx.service.seal(ctx.caller, end))
    some = await ctx.service.page(ctx.caller, lambda part: calls.deliveries(which, part, ctx.view), page)
    return DeliveryPage(*some)


@routes.get("/deliveries/{delivery_id}", READS_HOOKS)
async def delivery(ctx: RequestContext, delivery_id: UUID) -> DeliveryInfo:
    """Return a delivery: what was sent, and the response."""
    call = ctx.calls.webhooks.deliveries(Deliveries(id=str(delivery_id)), Page(limit=1), ctx.view)
    found = (await ctx.run(call)).rows
    if not found:
        raise unknown("delivery", delivery_id)
    return found[0]


@routes.post("/deliveries/{delivery_id}/redeliver", WRITES_HOOKS)
async def redeliver(ctx: RequestContext, delivery_id: UUID) -> Redelivered:
    """Deliver again: a failed delivery with fresh attempts, an ended one as a new one, a waiting one at once."""
    outcomes = await ctx.run(ctx.calls.webhooks.redeliver([str(delivery_id)], ctx.view))
    if not outcomes or outcomes[0].outcome == "unknown":
        raise unknown("delivery", delivery_id)
    found: Redelivered = outcomes[0]
    return found


def check_dev(ctx: RequestContext, dev: bool) -> None:
    """Allow dev to operators only: it would let a tenant reach hosts behind the firewall."""
    if dev and not ctx.caller.everyone:
        raise Problem(403, "dev needs a token for all tenants; use an https url on a public address")
