"""/v1/webhooks: endpoints, events and deliveries."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.model.webhook import DeliveryInfo, Endpoint, Event, Published, Redelivered
from holdfast.store.call import Call
from holdfast.store.select import PAGE_BYTES, Page
from holdfast.store.webhooks import Deliveries
from holdfast.web import shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES, FOR_ONE, Problem, unknown
from holdfast.web.service import ReadsHooks, RequestContext, WritesHooks, respond

router = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=BodyRoute)
MOST_ENDPOINTS = 1000  # in a list
PRIORITY = 2  # of deliveries, unless the token's best is lower
DeliveryStatus = Literal["PENDING", "DELIVERED", "FAILED"]


@router.get("/endpoints", response_model=shapes.Endpoints)
async def endpoints(ctx: ReadsHooks) -> Response:
    """List the newest 1,000 endpoints, without their secrets."""
    return respond(
        shapes.Endpoints(await ctx.run(ctx.hf.webhooks.calls.endpoints(ctx.caller.view, limit=MOST_ENDPOINTS)))
    )


@router.post("/endpoints", status_code=201, response_model=Endpoint, responses=FOR_CHANGES)
async def add(new: shapes.NewEndpoint, ctx: WritesHooks) -> Response:
    """Create an endpoint. Only this response contains its secret."""
    _check_dev(ctx, new.dev)
    given = {**new.model_dump(), "tenant": ctx.tenant(new.tenant), "secret": None}

    async def act(conn: Any) -> Response:
        id_, secret, call = ctx.hf.webhooks.adding(**given)
        await ctx.run(call, conn)
        made = (await ctx.run(ctx.hf.webhooks.calls.endpoints(ctx.caller.view, id_=id_), conn))[0]
        return _without_secret(respond(replace(made, secret=secret), 201), made)

    return await ctx.once(act)


@router.get("/endpoints/{endpoint_id}", response_model=Endpoint, responses=FOR_ONE)
async def get(endpoint_id: UUID, ctx: ReadsHooks) -> Response:
    """Return an endpoint, without its secrets."""
    return respond(await _look(ctx, endpoint_id))


@router.patch("/endpoints/{endpoint_id}", response_model=Endpoint, responses=FOR_CHANGES)
async def update(endpoint_id: UUID, change: shapes.EndpointChange, ctx: WritesHooks) -> Response:
    """Change an endpoint."""
    found = await _look(ctx, endpoint_id)
    given = change.model_dump(exclude_unset=True)
    for name in ("url", "prefix", "timeout", "dev"):
        if name in given and given[name] is None:
            raise Problem(422, f"{name} cannot be null; leave it out to keep it")
    # Where an operator has allowed private addresses, only operators may change the url.
    _check_dev(ctx, given.get("dev", found.dev and "url" in given))
    return respond(await ctx.hf.webhooks.aupdate(found.id, **given))


@router.delete("/endpoints/{endpoint_id}", response_model=shapes.Done, responses=FOR_CHANGES)
async def remove(endpoint_id: UUID, ctx: WritesHooks) -> Response:
    """Remove an endpoint and its secrets."""
    found = await _look(ctx, endpoint_id)
    await ctx.run(ctx.hf.webhooks.calls.remove(found.id))
    return respond(shapes.Done(1))


@router.post("/endpoints/{endpoint_id}/rotate", response_model=shapes.Secret, responses=FOR_CHANGES)
async def rotate(endpoint_id: UUID, ctx: WritesHooks, how: shapes.Rotation | None = None) -> Response:
    """Give an endpoint a new secret. Only this response contains it."""
    found = await _look(ctx, endpoint_id)
    keep = (how or shapes.Rotation()).keep_old_for

    async def act(conn: Any) -> Response:
        secret, call = ctx.hf.webhooks.rotating(found.id, keep)
        if not await ctx.run(call, conn):
            raise unknown("endpoint", endpoint_id)
        return _without_secret(respond(shapes.Secret(found.id, secret)), shapes.Secret(found.id, None))

    return await ctx.once(act)


@router.post("/endpoints/{endpoint_id}/enable", response_model=shapes.Done, responses=FOR_CHANGES)
async def enable(endpoint_id: UUID, ctx: WritesHooks) -> Response:
    """Enable deliveries to an endpoint, and close its breaker."""
    found = await _look(ctx, endpoint_id)

    async def act(conn: Any) -> Response:
        return await _changed(ctx, ctx.hf.webhooks.calls.enable(found.id), conn)

    return await ctx.once(act)


@router.post("/endpoints/{endpoint_id}/disable", response_model=shapes.Done, responses=FOR_CHANGES)
async def disable(endpoint_id: UUID, ctx: WritesHooks, why: shapes.Reason | None = None) -> Response:
    """Disable deliveries to an endpoint."""
    found = await _look(ctx, endpoint_id)

    async def act(conn: Any) -> Response:
        call = ctx.hf.webhooks.calls.disable(found.id, None if why is None else why.reason)
        return await _changed(ctx, call, conn)

    return await ctx.once(act)


@router.post("/endpoints/{endpoint_id}/test", status_code=201, response_model=shapes.Made, responses=FOR_CHANGES)
async def test(endpoint_id: UUID, ctx: WritesHooks) -> Response:
    """Deliver an event of type holdfast.test to an endpoint, in one attempt. Return the delivery's id."""
    found = await _look(ctx, endpoint_id)

    async def act(conn: Any) -> Response:
        if (made := await ctx.run(ctx.hf.webhooks.testing(found.id), conn)) is None:
            raise unknown("endpoint", endpoint_id)
        return respond(shapes.Made(made, existing=False), 201)

    return await ctx.once(act)


@router.post("/events", status_code=201, response_model=Published, responses=FOR_CHANGES)
async def publish(new: shapes.NewEvent, ctx: WritesHooks) -> Response:
    """Publish an event to the tenant's endpoints that subscribe to its type."""

    async def act(conn: Any) -> Response:
        event = Event(new.type, new.body, tenant=ctx.tenant(new.tenant), key=new.key)
        priority = max(PRIORITY, ctx.caller.priority)
        return respond(await ctx.hf.webhooks.apublish(conn, event, priority=priority), 201)

    return await ctx.once(act)


@router.get("/deliveries", response_model=shapes.DeliveryPage)
async def deliveries(
    ctx: ReadsHooks,
    endpoint: UUID | None = None,
    event: UUID | None = None,
    event_type: shapes.Name | None = None,
    status: DeliveryStatus | None = None,
    tenant: shapes.Name | None = None,
    since: Annotated[shapes.Since | None, Query(description="a time with its zone, or 90m, 24h, 30d")] = None,
    until: Annotated[shapes.Moment | None, Query(description="a time with its zone")] = None,
    cursor: shapes.Cursor = None,
    limit: shapes.Limit = 50,
) -> Response:
    """List the deliveries that match, newest first."""
    ids = {"endpoint": shapes.text(endpoint), "event": shapes.text(event)}
    which = Deliveries(**ids, event_type=event_type, status=status, tenant=tenant, since=since, until=until)
    page = Page(limit=limit, before=await ctx.before(cursor))
    calls, view = ctx.hf.database.calls.webhooks, ctx.caller.view
    if endpoint is not None:  # an index covers this filter
        found = await ctx.run(calls.deliveries(which, replace(page, size=PAGE_BYTES), view))
        end = found.rows[-1].id if found.cut or len(found.rows) == limit else None
        return respond(shapes.DeliveryPage(found.rows, await ctx.service.seal(ctx.caller, end)))
    some = await ctx.service.page(ctx.caller, lambda part: calls.deliveries(which, part, view), page)
    return respond(shapes.DeliveryPage(*some))


@router.get("/deliveries/{delivery_id}", response_model=DeliveryInfo, responses=FOR_ONE)
async def delivery(delivery_id: UUID, ctx: ReadsHooks) -> Response:
    """Return a delivery: what was sent, and the response."""
    call = ctx.hf.database.calls.webhooks.deliveries(Deliveries(id=str(delivery_id)), Page(limit=1), ctx.caller.view)
    found = (await ctx.run(call)).rows
    if not found:
        raise unknown("delivery", delivery_id)
    return respond(found[0])


@router.post("/deliveries/{delivery_id}/redeliver", response_model=Redelivered, responses=FOR_CHANGES)
async def redeliver(delivery_id: UUID, ctx: WritesHooks) -> Response:
    """Deliver again: a failed delivery with fresh attempts, one that has ended as a new one, a waiting one at once."""

    async def act(conn: Any) -> Response:
        outcomes = await ctx.run(ctx.hf.database.calls.webhooks.redeliver([str(delivery_id)], ctx.caller.view), conn)
        if not outcomes or outcomes[0].outcome == "unknown":
            raise unknown("delivery", delivery_id)
        return respond(outcomes[0])

    return await ctx.once(act)


async def _look(ctx: RequestContext, endpoint_id: UUID) -> Endpoint:
    found = await ctx.run(ctx.hf.webhooks.calls.endpoints(ctx.caller.view, id_=str(endpoint_id)))
    if not found:
        raise unknown("endpoint", endpoint_id)
    return found[0]


def _check_dev(ctx: RequestContext, dev: bool) -> None:
    """Allow dev to operators only: it would let a tenant reach hosts behind the firewall."""
    if dev and not ctx.caller.everyone:
        raise Problem(403, "dev needs a token for all tenants; use an https url on a public address")


def _without_secret(made: Response, kept: Any) -> Response:
    """Set the body that is stored for repeated requests to one without the secret."""
    made.kept = msgspec.json.encode(kept)  # type: ignore[attr-defined]
    return made


async def _changed(ctx: RequestContext, call: Call[bool], conn: Any) -> Response:
    was = await ctx.run(call, conn)
    return respond(shapes.Done(int(was)))
